"""The two loops over t, and what backward needs of all t at once, compiled by numba: one hidden layer (l_mlp = 1), CPU.

Samples go eight at a time through the lanes of a SIMD register (`lanes`); what one sample gets does not depend on
which others are beside it, nor on the number of threads. NaN stays NaN.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numba
import numpy as np
import torch
from torch import Tensor

from elm_lib.recurrence import fused
from elm_lib.recurrence.lanes import LANES, add_product, padded, tanh

compiled = numba.njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


@compiled
def _forward(p, m_all, kappa, gain_a, w_m, w_2, b_2, silu, b, exact, first, last):
    """Samples first .. last of m_all (T + 1, B, d_m); w_m (d_1, d_m) and w_2 (d_m, d_1) have padded rows."""
    steps, _, d_1 = p.shape
    d_m = m_all.shape[2]
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((d_m, LANES), p.dtype), np.zeros((w_2.shape[0], LANES), p.dtype)
    h, m = np.zeros((w_m.shape[0], LANES), p.dtype), np.zeros((d_m, LANES), p.dtype)
    hidden = h[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                m[i, k] = m_all[0, begin + k, i]
        for t in range(steps):
            for i in range(d_m):
                for k in range(LANES):
                    u[i, k] = kappa[i] * m[i, k]
                    z[i, k] = b_2[i]
            for k in range(lanes):
                for j in range(d_1):
                    h[j, k] = p[t, begin + k, j]
            add_product(w_m, u, h)
            for j in range(d_1):
                for k in range(LANES):
                    if silu:
                        h[j, k] = h[j, k] / (one + math.exp(-h[j, k]))
                    else:
                        h[j, k] = zero if h[j, k] <= zero else h[j, k]
            add_product(w_2, hidden, z)
            if exact:
                for i in range(d_m):
                    for k in range(LANES):
                        z[i, k] = math.tanh(b * z[i, k])
            else:
                for i in range(d_m):
                    for k in range(LANES):
                        z[i, k] = tanh(b * z[i, k])
            for i in range(d_m):
                for k in range(LANES):
                    m[i, k] = u[i, k] + gain_a[i] * z[i, k]
            for k in range(lanes):
                for i in range(d_m):
                    m_all[t + 1, begin + k, i] = m[i, k]


@compiled
def _activations(
    p, m_prev, kappa, slope, w_m, w_2, b_2, silu, b, exact, u_all, h_all, slope_1, slope_2, tanh_all, first, last
):
    """Rows first .. last, any step of any sample: all that the forward step computes from m, and its slopes."""
    d_1, d_m = p.shape[1], m_prev.shape[1]
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((d_m, LANES), p.dtype), np.zeros((w_2.shape[0], LANES), p.dtype)
    h = np.zeros((w_m.shape[0], LANES), p.dtype)
    hidden = h[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                value = kappa[i] * m_prev[begin + k, i]
                u[i, k] = value
                u_all[begin + k, i] = value
            for j in range(d_1):
                h[j, k] = p[begin + k, j]
        for i in range(d_m):
            for k in range(LANES):
                z[i, k] = b_2[i]
        add_product(w_m, u, h)
        for k in range(lanes):
            for j in range(d_1):
                x = h[j, k]
                if silu:
                    sigma = one / (one + math.exp(-x))
                    slope_1[begin + k, j] = sigma * (one + x * (one - sigma))
                    x = x * sigma
                else:
                    slope_1[begin + k, j] = one if x > zero else zero
                    x = zero if x <= zero else x
                h[j, k] = x
                h_all[begin + k, j] = x
        add_product(w_2, hidden, z)
        if exact:
            for i in range(d_m):
                for k in range(LANES):
                    z[i, k] = math.tanh(b * z[i, k])
        else:
            for i in range(d_m):
                for k in range(LANES):
                    z[i, k] = tanh(b * z[i, k])
        for k in range(lanes):
            for i in range(d_m):
                tanh_all[begin + k, i] = z[i, k]
                slope_2[begin + k, i] = slope[i] * (one - z[i, k] * z[i, k])


@compiled
def _reverse(grad_m, slope_1, slope_2, g_all, carry, kappa, w_mt, w_2t, first, last):
    """Samples first .. last; w_mt (d_m, d_1) and w_2t (d_1, d_m) have padded rows."""
    steps, _, d_m = grad_m.shape
    d_1 = slope_1.shape[2]
    e_2 = np.zeros((d_m, LANES), grad_m.dtype)
    e_1, c = np.zeros((w_2t.shape[0], LANES), grad_m.dtype), np.zeros((w_mt.shape[0], LANES), grad_m.dtype)
    hidden = e_1[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                c[i, k] = carry[begin + k, i]
        for t in range(steps - 1, -1, -1):
            for k in range(lanes):
                n = begin + k
                for i in range(d_m):
                    g = grad_m[t, n, i] + c[i, k]
                    c[i, k] = g
                    g_all[t, n, i] = g
                    e = slope_2[t, n, i] * g
                    slope_2[t, n, i] = e
                    e_2[i, k] = e
            e_1[:] = 0
            add_product(w_2t, e_2, e_1)
            for k in range(lanes):
                n = begin + k
                for j in range(d_1):
                    e = slope_1[t, n, j] * e_1[j, k]
                    slope_1[t, n, j] = e
                    e_1[j, k] = e
            add_product(w_mt, hidden, c)
            for i in range(d_m):
                for k in range(LANES):
                    c[i, k] *= kappa[i]
        for k in range(lanes):
            for i in range(d_m):
                carry[begin + k, i] = c[i, k]


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="elm")


def _over_samples(kernel, batch: int, *arguments) -> None:
    """Run kernel(*arguments, first, last) on torch's number of threads, whole blocks of samples each."""
    blocks, threads = -(-batch // LANES), torch.get_num_threads()
    if threads == 1 or blocks == 1:
        kernel(*arguments, 0, batch)
        return
    share = -(-blocks // min(blocks, threads)) * LANES
    parts = [(first, min(batch, first + share)) for first in range(0, batch, share)]
    for _ in _pool(threads).map(lambda part: kernel(*arguments, *part), parts):
        pass


def _arrays(*tensors: Tensor):
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float) -> None:
    p, kappa, gain_a, w_m, w_2, b_2 = _arrays(p, kappa, gain_a, w_m, *layers)
    exact = p.dtype == np.float64
    _over_samples(
        _forward, p.shape[1], p, m_all.numpy(), kappa, gain_a, padded(w_m), padded(w_2), b_2, activation == "silu",
        p.dtype.type(b), exact,
    )  # fmt: skip


def activations(p, m_prev, kappa, slope, w_m, layers, activation: str, b: float, out: Tensor):
    u, h, slope_2, tanh_all = (torch.empty_like(x) for x in (m_prev, p, m_prev, m_prev))
    flat = [x.detach().contiguous().flatten(0, 1).numpy() for x in (p, m_prev)]
    kappa, slope, w_m, w_2, b_2 = _arrays(kappa, slope, w_m, *layers)
    results = [x.flatten(0, 1).numpy() for x in (u, h, out, slope_2, tanh_all)]
    dtype = flat[0].dtype
    _over_samples(
        _activations, len(flat[0]), *flat, kappa, slope, padded(w_m), padded(w_2), b_2, activation == "silu",
        dtype.type(b), dtype == np.float64, *results,
    )  # fmt: skip
    return [u, h], [out, slope_2], tanh_all


def reverse_loop(grad_m, errors, g_all, carry, kappa, w_m, weights) -> None:
    grad_m, kappa, w_mt, w_2t = _arrays(grad_m, kappa, w_m.T, weights[0].T)
    slope_1, slope_2 = (error.numpy() for error in errors)
    _over_samples(
        _reverse, grad_m.shape[1], grad_m, slope_1, slope_2, g_all.numpy(), carry.numpy(), kappa, padded(w_mt), padded(w_2t)
    )  # fmt: skip


def serves(p: Tensor, mlp) -> bool:
    """Whether this engine can run these tensors."""
    return p.device.type == "cpu" and len(mlp.layers) == 1 and p.dtype in (torch.float32, torch.float64)


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    if not serves(p_tbh, mlp):
        raise ValueError(
            f"engine='cpu' has l_mlp=1, float32 or float64, on the CPU; got l_mlp={len(mlp.layers)}, {p_tbh.dtype} on {p_tbh.device}"
        )
    return fused.recur(p_tbh, m_0, kappa_m, gain, mlp, (forward_loop, activations, reverse_loop))
