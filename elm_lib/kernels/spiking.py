"""The loops of the spiking network (`elm_lib.models.snn`), compiled by numba.

A neuron reads few others of its layer, and few of them spike. So weights are sparse, CSR by the neuron that sends:
entries ptr[j] : ptr[j + 1] of col and weight are what neuron j sends to. Arrays of all steps are (T, B, n); those of
states v and z are (T + 1, B, n), the first of them before the first step. `constants` of the same type are threshold,
reset, sharpness of the surrogate gradient, 1 and 0, so that no sum is in another precision.
"""

from __future__ import annotations

from elm_lib.kernels.loops import compiled


@compiled
def forward(current, ptr, col, weight, kappa, constants, v_all, z_all):
    """v_t = kappa v_{t-1} - reset z_{t-1} + current_t + what z_{t-1} sends; z_t = 1 where v_t > threshold."""
    steps, batch, n = current.shape
    threshold, reset, one, nothing = constants[0], constants[1], constants[3], constants[4]
    for t in range(steps):
        for b in range(batch):
            before, now, sent, spikes = v_all[t, b], v_all[t + 1, b], z_all[t, b], z_all[t + 1, b]
            for k in range(n):
                now[k] = kappa[k] * before[k] + current[t, b, k]
            for j in range(n):
                if sent[j] != 0:
                    now[j] -= reset * sent[j]
                    for e in range(ptr[j], ptr[j + 1]):
                        now[col[e]] += weight[e] * sent[j]
            for k in range(n):
                spikes[k] = one if now[k] > threshold else nothing


@compiled
def backward(grad_z, ptr, col, weight, kappa, constants, v_all, z_all, dv, dz, errors, grad_weight):
    """Gradients of `forward`, a spike taken for u / (1 + sharpness |u|) of u = v - threshold.

    dv (B, n): dL/dv_T without what comes through z_T; at the end of v_0. dz (B, n): 0; at the end of z_0.
    errors (T, B, n): dL/dv_t, which is that of the current. grad_weight: that of weight is added to it
    """
    steps, batch, n = errors.shape
    threshold, reset, sharpness, one = constants[0], constants[1], constants[2], constants[3]
    for t in range(steps - 1, -1, -1):
        for b in range(batch):
            v, error, sent = v_all[t + 1, b], errors[t, b], z_all[t, b]
            for k in range(n):
                u = one + sharpness * abs(v[k] - threshold)
                error[k] = dv[b, k] + (dz[b, k] + grad_z[t, b, k]) / (u * u)
                dv[b, k] = kappa[k] * error[k]
            for j in range(n):
                total = -reset * error[j]
                for e in range(ptr[j], ptr[j + 1]):
                    total += weight[e] * error[col[e]]
                dz[b, j] = total
                if sent[j] != 0:
                    for e in range(ptr[j], ptr[j + 1]):
                        grad_weight[e] += sent[j] * error[col[e]]
