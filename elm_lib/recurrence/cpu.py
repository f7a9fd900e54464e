"""The two loops over t, and what backward needs of all t at once, compiled by numba: one hidden layer (l_mlp = 1), CPU.

Samples go eight at a time through the lanes of a SIMD register (`cpu_kernels`); what one sample gets does not depend on
which others are beside it, nor on the number of threads. NaN stays NaN.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from elm_lib.recurrence import cpu_kernels, fused
from elm_lib.recurrence.cpu_kernels import LANES, ROWS


def padded(matrix: np.ndarray) -> np.ndarray:
    """The matrix with zero rows added up to a multiple of ROWS, contiguous."""
    more = -len(matrix) % ROWS
    return np.ascontiguousarray(np.pad(matrix, ((0, more), (0, 0))) if more else matrix)


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="elm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has the pool without its threads


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
        cpu_kernels.forward, p.shape[1], p, m_all.numpy(), kappa, gain_a, padded(w_m), padded(w_2), b_2, activation == "silu",
        p.dtype.type(b), exact,
    )  # fmt: skip


def activations(p, m_prev, kappa, slope, w_m, layers, activation: str, b: float, out: Tensor):
    u, h, slope_2, tanh_all = (torch.empty_like(x) for x in (m_prev, p, m_prev, m_prev))
    flat = [x.detach().contiguous().flatten(0, 1).numpy() for x in (p, m_prev)]
    kappa, slope, w_m, w_2, b_2 = _arrays(kappa, slope, w_m, *layers)
    results = [x.flatten(0, 1).numpy() for x in (u, h, out, slope_2, tanh_all)]
    dtype = flat[0].dtype
    _over_samples(
        cpu_kernels.activations, len(flat[0]), *flat, kappa, slope, padded(w_m), padded(w_2), b_2, activation == "silu",
        dtype.type(b), dtype == np.float64, *results,
    )  # fmt: skip
    return [u, h], [out, slope_2], tanh_all


def reverse_loop(grad_m, errors, g_all, carry, kappa, w_m, weights) -> None:
    grad_m, kappa, w_mt, w_2t = _arrays(grad_m, kappa, w_m.T, weights[0].T)
    slope_1, slope_2 = (error.numpy() for error in errors)
    _over_samples(
        cpu_kernels.reverse, grad_m.shape[1], grad_m, slope_1, slope_2, g_all.numpy(), carry.numpy(), kappa, padded(w_mt), padded(w_2t)
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
