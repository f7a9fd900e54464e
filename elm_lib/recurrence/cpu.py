"""The two loops over t compiled by numba, for one hidden layer (l_mlp = 1) on the CPU.

Every product is written as a sum of scaled weight rows, so that the innermost loop runs over contiguous numbers and
vectorises in the order it is written: the same bits at any thread count, and NaN stays NaN.
"""

from __future__ import annotations

import math

import numba
import torch
from torch import Tensor

from elm_lib.recurrence import fused


@numba.njit(cache=True, nogil=True)
def _forward(p, m_all, kappa, gain_a, w_mt, w_2t, b_2, silu, b):
    steps, batch, d_1 = p.shape
    d_m = m_all.shape[2]
    h, z = p[0, 0].copy(), m_all[0, 0].copy()
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    for n in range(batch):
        for t in range(steps):
            for j in range(d_1):
                h[j] = p[t, n, j]
            for i in range(d_m):
                u = kappa[i] * m_all[t, n, i]
                for j in range(d_1):
                    h[j] += w_mt[i, j] * u
            for i in range(d_m):
                z[i] = b_2[i]
            for j in range(d_1):
                x = h[j]
                if silu:
                    x = x / (one + math.exp(-x))
                elif x <= 0:  # keeps NaN
                    x = zero
                for i in range(d_m):
                    z[i] += w_2t[j, i] * x
            for i in range(d_m):
                m_all[t + 1, n, i] = kappa[i] * m_all[t, n, i] + gain_a[i] * math.tanh(b * z[i])


@numba.njit(cache=True, nogil=True)
def _reverse(grad_m, slope_1, slope_2, g_all, carry, kappa, w_m, w_2):
    steps, batch, d_m = grad_m.shape
    d_1 = slope_1.shape[2]
    e_1, c = slope_1[0, 0].copy(), carry[0].copy()
    for n in range(batch):
        for i in range(d_m):
            c[i] = carry[n, i]
        for t in range(steps - 1, -1, -1):
            for j in range(d_1):
                e_1[j] = 0
            for i in range(d_m):
                g = grad_m[t, n, i] + c[i]
                g_all[t, n, i] = g
                c[i] = g
                e_2 = slope_2[t, n, i] * g
                slope_2[t, n, i] = e_2
                for j in range(d_1):
                    e_1[j] += e_2 * w_2[i, j]
            for j in range(d_1):
                e = slope_1[t, n, j] * e_1[j]
                slope_1[t, n, j] = e
                for i in range(d_m):
                    c[i] += e * w_m[j, i]
            for i in range(d_m):
                c[i] *= kappa[i]
        for i in range(d_m):
            carry[n, i] = c[i]


def _arrays(*tensors: Tensor):
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float) -> None:
    weight, bias = layers
    p, kappa, gain_a, w_mt, w_2t, b_2 = _arrays(p, kappa, gain_a, w_m.T, weight.T, bias)
    _forward(p, m_all.numpy(), kappa, gain_a, w_mt, w_2t, b_2, activation == "silu", p.dtype.type(b))


def reverse_loop(grad_m, errors, g_all, carry, kappa, w_m, weights) -> None:
    grad_m, kappa, w_m, w_2 = _arrays(grad_m, kappa, w_m, weights[0])
    _reverse(grad_m, errors[0].numpy(), errors[1].numpy(), g_all.numpy(), carry.numpy(), kappa, w_m, w_2)


def serves(p: Tensor, mlp) -> bool:
    """Whether this engine can run these tensors."""
    return p.device.type == "cpu" and len(mlp.layers) == 1 and p.dtype in (torch.float32, torch.float64)


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    if not serves(p_tbh, mlp):
        raise ValueError(
            f"engine='cpu' has l_mlp=1, float32 or float64, on the CPU; got l_mlp={len(mlp.layers)}, {p_tbh.dtype} on {p_tbh.device}"
        )
    return fused.recur(p_tbh, m_0, kappa_m, gain, mlp, (forward_loop, reverse_loop))
