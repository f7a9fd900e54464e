"""The two loops over t as Triton kernels (`triton_loops`), for at most one hidden layer (l_mlp 0 or 1) on a GPU.

Needs a GPU. With TRITON_INTERPRET=1 in the environment the same kernels run in Python, which tests them without one.
"""

from __future__ import annotations

import os

import torch
import triton
from torch import Tensor

from elm_lib.kernels.recurrence import bptt
from elm_lib.kernels.recurrence.triton_loops import forward_tile, forward_vector, reverse_tile, reverse_vector

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TILE = 16  # samples of a tile program: the smallest side of a tensor-core product
TILES_FROM = 128, 32  # batch, d_m: below, a program a sample is faster
HELD_MOST = 8192  # padded entries of one weight matrix that stay in registers


def plan(batch: int, d_m: int, d_1: int, dtype: torch.dtype) -> dict:
    """How a launch is laid out: whether in tiles, the grid, the padded sizes, and the warps of a program."""
    width = max(16, triton.next_power_of_2(d_m))
    if batch >= TILES_FROM[0] and d_m >= TILES_FROM[1] and dtype == torch.float32:
        precision = "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        return {
            "tiles": True,
            "grid": (triton.cdiv(batch, TILE),),
            "warps": 4,
            "sizes": {"WIDTH": width, "CHUNK": 32, "SAMPLES": TILE, "PRECISION": precision},
        }
    padded = max(16, triton.next_power_of_2(d_1))
    held = width * padded <= HELD_MOST
    chunk = padded if held else max(8, HELD_MOST // width)
    return {"tiles": False, "grid": (batch,), "warps": 4, "sizes": {"WIDTH": width, "CHUNK": chunk, "HELD": held}}


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float, keep: bool = True) -> Tensor:
    """See `bptt.Loops`. Returns p, not z_1."""
    weight, bias = layers
    steps, batch, d_1 = p.shape
    d_m = m_all.shape[2]
    how = plan(batch, d_m, d_1, p.dtype)
    kernel, w_in = (forward_tile, w_m.T) if how["tiles"] else (forward_vector, w_m)
    kernel[how["grid"]](
        p.contiguous(),
        m_all,
        kappa.contiguous(),
        gain_a.contiguous(),
        w_in.contiguous(),
        weight.T.contiguous(),
        bias.contiguous(),
        steps,
        batch,
        D_M=d_m,
        D_1=d_1,
        ACT=bptt.ACTIVATIONS.index(activation),
        B=b,
        num_warps=how["warps"],
        **how["sizes"],
    )
    return p


def reverse_loop(grad_m, errors, g_all, carry, kappa, w_m, weights) -> None:
    """`bptt.backward_by`, but for back_all: a kernel has no room for it."""
    slope_1, slope_2 = errors
    steps, batch, d_m = grad_m.shape
    d_1 = slope_1.shape[2]
    how = plan(batch, d_m, d_1, grad_m.dtype)
    kernel, w_out = (reverse_tile, weights[0]) if how["tiles"] else (reverse_vector, weights[0].T)
    kernel[how["grid"]](
        grad_m,
        slope_1,
        slope_2,
        g_all,
        carry,
        kappa.contiguous(),
        w_m.contiguous(),
        w_out.contiguous(),
        steps,
        batch,
        D_M=d_m,
        D_1=d_1,
        num_warps=how["warps"],
        **how["sizes"],
    )


def serves(p: Tensor, mlp) -> bool:
    """Whether this engine can run these tensors."""
    there = p.device.type == "cuda" or (INTERPRETED and p.device.type == "cpu")
    return there and len(mlp.layers) <= 1 and p.dtype in (torch.float32, torch.float64)


def _reverse(grad_m, errors, g_all, back_all, carry, kappa, w_m, weights) -> None:
    reverse_loop(grad_m, errors, g_all, carry, kappa, w_m, weights)
    torch.add(g_all, errors[0] @ w_m, out=back_all)


LOOPS = bptt.Loops(forward_loop, bptt.backward_by(_reverse, keeps_z=False))


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.kernels.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    if not serves(p_tbh, mlp):
        raise ValueError(
            "engine='cuda' (argument or ELM_ENGINE) needs l_mlp 0 or 1, float32 or float64, on a GPU; "
            f"got l_mlp={len(mlp.layers)}, {p_tbh.dtype} on {p_tbh.device}: choose 'auto' or 'torch'"
        )
    return bptt.recur(p_tbh, m_0, kappa_m, gain, bptt.with_two_layers(mlp), LOOPS)
