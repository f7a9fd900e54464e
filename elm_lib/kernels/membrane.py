"""The loops over time of a leaky integrate-and-fire neuron (`elm_lib.models.lif`), compiled by numba: (T, B) arrays.

Sums run in the order written, in float64.
"""

from __future__ import annotations

from elm_lib.support.compiled import njit_cached

compiled = njit_cached(nogil=True, error_model="numpy")


@compiled
def forward(current, kappa_m, kappa_a, beta, v_all, a_all):
    """Fill v_all and a_all from rest."""
    steps, batch = current.shape
    for n in range(batch):
        v = a = z = 0.0
        for t in range(steps):
            a = kappa_a * a + (1.0 - kappa_a) * z
            v = kappa_m * v * (1.0 - z) + current[t, n]
            v_all[t, n] = v
            a_all[t, n] = a
            z = 1.0 if v_all[t, n] - (1.0 + beta * a_all[t, n]) > 0.0 else 0.0


@compiled
def backward(grad_v, grad_theta, v_all, a_all, kappa_m, kappa_a, beta, sharpness, grad_current):
    """Fill grad_current; return dL/dkappa_m and dL/dkappa_a.

    g_v, g_a are dL/dv_t and dL/da_t; what reaches z_t comes from the reset and the adaptation of the next step.
    """
    steps, batch = grad_v.shape
    of_m = of_a = 0.0
    for n in range(batch):
        next_v = next_a = 0.0
        for t in range(steps - 1, -1, -1):
            v, a = float(v_all[t, n]), float(a_all[t, n])
            u = v - (1.0 + beta * a)
            z = 1.0 if u > 0.0 else 0.0
            slope = 1.0 + sharpness * abs(u)
            through = ((1.0 - kappa_a) * next_a - kappa_m * v * next_v) / (slope * slope)
            g_v = grad_v[t, n] + kappa_m * (1.0 - z) * next_v + through
            g_a = kappa_a * next_a + beta * (grad_theta[t, n] - through)
            grad_current[t, n] = g_v
            if t:
                before_v, before_a = float(v_all[t - 1, n]), float(a_all[t - 1, n])
                before_z = 1.0 if before_v - (1.0 + beta * before_a) > 0.0 else 0.0
                of_m += g_v * before_v * (1.0 - before_z)
                of_a += g_a * (before_a - before_z)
            next_v, next_a = g_v, g_a
    return of_m, of_a
