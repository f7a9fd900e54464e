"""Large arrays on a CPU: memory in pages of 2 MB where the system has them, products in pieces that a cache holds.

To be given 40 MB in pages of 4 KB takes as long as to fill them several times over.
"""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from elm_lib.kernels.autograd import transformed

LARGE, PAGE, HUGE_PAGES = 1 << 23, 1 << 21, 14  # bytes, bytes, Linux's MADV_HUGEPAGE
PIECE = 1 << 19  # numbers
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def empty(like: Tensor, *shape: int) -> Tensor:
    """`like.new_empty(shape)`."""
    out = like.new_empty(shape)
    if _libc and out.device.type == "cpu" and out.nbytes >= LARGE:
        first = -(-out.data_ptr() // PAGE) * PAGE
        whole = (out.data_ptr() + out.nbytes - first) // PAGE * PAGE
        _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(whole), HUGE_PAGES)  # a wish: refused, all is as it was
    return out


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear`: x (.., I), weight (O, I), bias (O,) -> (.., O)."""
    plain = x.device.type != "cpu" or x.dtype != weight.dtype or torch.is_autocast_enabled("cpu")
    plain = plain or transformed() or forward_ad._current_level >= 0  # inside torch.func, or forward-mode derivatives
    if plain or x.numel() // x.shape[-1] * len(weight) * x.element_size() < LARGE:
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
    def backward(ctx, grad):  # of operations that have a derivative: so has it
        x, weight = ctx.saved_tensors
        rows, grad_rows = x.reshape(-1, x.shape[-1]), grad.reshape(-1, len(weight))
        wanted = ctx.needs_input_grad
        return (
            grad @ weight if wanted[0] else None,
            (rows.T @ grad_rows).T if wanted[1] else None,
            grad_rows.sum(0) if wanted[2] else None,
        )
