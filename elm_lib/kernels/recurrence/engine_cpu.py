"""The two loops over t compiled by numba (`simd`), for at most one hidden layer (l_mlp 0 or 1) on a CPU.

A sample gets the same numbers to the last bit, whichever samples are beside it and however many threads run. NaN stays
NaN.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elm_lib.kernels import affine
from elm_lib.kernels.autograd import in_memory
from elm_lib.kernels.recurrence import bptt, simd
from elm_lib.kernels.recurrence.simd import BLOCKS, known


def samples_of(batch: int) -> int:
    """Samples that a block of this batch has: they go through the loops together."""
    return batch if batch in BLOCKS else 8


def packed(matrix: Tensor, samples: int) -> np.ndarray:
    """See `simd.packed`, of a copy: see `arrays`."""
    return simd.packed(matrix.detach().clone().numpy(), samples, BLOCKS[samples])


@lru_cache(maxsize=1)
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="elm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked child has this pool, but not its threads


def over_samples(kernel, batch: int, *arguments) -> None:
    """Run kernel(*arguments, samples, first, end) on torch's number of threads, whole blocks of samples each."""
    samples = samples_of(batch)
    blocks, threads = -(-batch // samples), torch.get_num_threads()
    if threads == 1 or blocks <= 1:
        kernel(*arguments, known(samples), 0, batch)
        return
    share = -(-blocks // min(blocks, threads)) * samples
    parts = [(first, min(batch, first + share)) for first in range(0, batch, share)]
    for _ in pool(threads).map(lambda part: kernel(*arguments, known(samples), *part), parts):
        pass


def arrays(*tensors: Tensor) -> list[Any]:
    """Copies, contiguous: `numpy()` of a parameter would pin its storage, which FSDP frees and fills again."""
    return [tensor.detach().clone(memory_format=torch.contiguous_format).numpy() for tensor in tensors]


def rows(*tensors: Tensor):
    """(T, B, D) as (T B, D)."""
    return [tensor.detach().contiguous().flatten(0, 1).numpy() for tensor in tensors]


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float, keep: bool) -> Tensor:
    """See `bptt.Loops`. Returns z_1, or work space if it is not to be kept."""
    batch, samples = p.shape[1], samples_of(p.shape[1])
    z = affine.empty(p, p.shape[0] if keep else 1, *p.shape[1:])
    w_2, b_2 = layers
    over_samples(
        simd.forward,
        batch,
        *rows(p, m_all, z),
        batch,
        *arrays(kappa, gain_a),
        packed(w_m.T, samples),
        packed(w_2.T, samples),
        *arrays(b_2),
        p.numpy().dtype.type(b),
        known(bptt.ACTIVATIONS.index(activation)),
    )
    return z


def backward_loop(z, m_prev, grad_m, carry, kappa, slope, w_m, layers, activation: str, b: float, grad_p):
    """See `bptt.Loops`."""
    hidden, e_2 = torch.empty_like(z), torch.empty_like(m_prev)
    samples = samples_of(z.shape[1])
    sums = torch.zeros(-(-z.shape[1] // samples), 2, m_prev.shape[2], dtype=torch.float64)
    w_2, b_2 = layers
    arguments = rows(z, m_prev, grad_m)
    over_samples(
        simd.reverse,
        z.shape[1],
        *arguments,
        carry.numpy(),
        *arrays(kappa, slope),
        packed(w_m, samples),
        packed(w_2, samples),
        packed(w_2.T, samples),
        *arrays(b_2),
        arguments[0].dtype.type(b),
        *rows(hidden, e_2, grad_p),
        sums.numpy(),
        known(bptt.ACTIVATIONS.index(activation)),
    )
    grad_kappa, g_tanh = sums.sum(0).to(z.dtype)
    return [hidden], [grad_p, e_2], grad_kappa, g_tanh


LOOPS = bptt.Loops(forward_loop, backward_loop)


def serves(p: Tensor, mlp) -> bool:
    """Whether this engine can run these tensors."""
    return (
        p.device.type == "cpu" and len(mlp.layers) <= 1 and p.dtype in (torch.float32, torch.float64) and in_memory(p)
    )


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.kernels.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    if not serves(p_tbh, mlp):
        raise ValueError(
            "engine='cpu' (argument or ELM_ENGINE) needs l_mlp 0 or 1, float32 or float64, on the CPU; "
            f"got l_mlp={len(mlp.layers)}, {p_tbh.dtype} on {p_tbh.device}: choose 'auto' or 'torch'"
        )
    return bptt.recur(p_tbh, m_0, kappa_m, gain, bptt.with_two_layers(mlp), LOOPS)
