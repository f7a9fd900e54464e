"""Large arrays on a CPU: memory in pages of 2 MB where the system has them, products in pieces that a cache holds.

The system takes longer to hand out 40 MB in pages of 4 KB than a program takes to fill them several times.
"""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.kernels.autograd import in_memory, transformed

LARGE, PAGE, HUGE_PAGES = 1 << 23, 1 << 21, 14  # bytes, bytes, Linux's MADV_HUGEPAGE
PIECE = 1 << 19  # numbers
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def empty(like: Tensor, *shape: int) -> Tensor:
    """`like.new_empty(shape)`, in large pages where that pays."""
    out = like.new_empty(shape)
    if _libc and out.device.type == "cpu" and out.nbytes >= LARGE:
        first = -(-out.data_ptr() // PAGE) * PAGE
        whole = (out.data_ptr() + out.nbytes - first) // PAGE * PAGE
        _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(whole), HUGE_PAGES)  # no error if refused
    return out


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear`: x (.., I), weight (O, I), bias (O,) -> (.., O)."""
    plain = x.device.type != "cpu" or x.dtype != weight.dtype or torch.is_autocast_enabled("cpu")
    if plain or transformed() or not in_memory(x) or x.numel() // x.shape[-1] * len(weight) * x.element_size() < LARGE:
        return F.linear(x, weight, bias)
    return _Affine.apply(x, weight, bias)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.shape[-1])
        out = empty(x, len(rows), len(weight))
        pieces = max(1, PIECE // len(weight))
        for piece, into in zip(rows.split(pieces), out.split(pieces)):
            torch.addmm(bias, piece, weight.T, out=into)
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx, grad):  # made of differentiable operations, so it has a derivative itself
        x, weight = ctx.saved_tensors
        rows, grad_rows = x.reshape(-1, x.shape[-1]), grad.reshape(-1, len(weight))
        wanted = ctx.needs_input_grad
        return (
            grad @ weight if wanted[0] else None,
            (rows.T @ grad_rows).T if wanted[1] else None,
            grad_rows.sum(0) if wanted[2] else None,
        )
