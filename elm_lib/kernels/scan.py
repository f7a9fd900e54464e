"""A linear recurrence with complex decay, h_t = a h_{t-1} + x_t from h_0 = 0: the states of a state-space model.

Complex numbers are real ones side by side: a row of 2 P numbers holds P real parts, then P imaginary parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elm_lib.kernels.autograd import first_derivative, in_memory, transformed
from elm_lib.kernels.optional import there


def scan(a: Tensor, x: Tensor, backwards: bool = False) -> Tensor:
    """h_1 ... h_T; `backwards`, from the last step to the first: a complex (P,), x (B, T, 2 P) -> (B, T, 2 P)."""
    if (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and not transformed()
        and in_memory(x)
        and there("numba")
    ):
        return _Compiled.apply(a.real, a.imag, x, backwards)
    z = torch.complex(*x.chunk(2, -1))
    h = by_doubling(a, z.flip(1)).flip(1) if backwards else by_doubling(a, z)
    return torch.cat([h.real, h.imag], -1)


def by_doubling(a: Tensor, x: Tensor) -> Tensor:
    """The same for all t at once: a (P,), x (B, T, P), complex.

    After round k each h_t holds the last 2^k inputs: log2 T rounds of h_t <- h_t + a^(2^k) h_{t - 2^k}.
    """
    h, shift = x, 1
    while shift < x.shape[1]:
        h = torch.cat([h[:, :shift], torch.addcmul(h[:, shift:], a, h[:, :-shift])], 1)
        a, shift = a * a, 2 * shift
    return h


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, real, imaginary, x, backwards):
        from elm_lib.kernels.scan_loops import decay

        h = torch.empty_like(x, memory_format=torch.contiguous_format)
        arrays = (y.detach().contiguous().numpy() for y in (real, imaginary, x, h))
        decay(*arrays, backwards)
        ctx.save_for_backward(real, imaginary, h)
        ctx.backwards = backwards
        return h

    @staticmethod
    @first_derivative("`by_doubling` of elm_lib.kernels.scan has one")
    def backward(ctx, grad):
        from elm_lib.kernels.scan_loops import decay

        real, imaginary, h = ctx.saved_tensors
        errors = torch.empty_like(h)
        arrays = (y.detach().contiguous().numpy() for y in (real, -imaginary, grad, errors))
        decay(*arrays, not ctx.backwards)
        before, after = (h[:, :-1], errors[:, 1:]) if not ctx.backwards else (h[:, 1:], errors[:, :-1])
        (h_r, h_i), (e_r, e_i) = before.chunk(2, -1), after.chunk(2, -1)
        grad_real = (h_r * e_r + h_i * e_i).sum((0, 1))
        grad_imaginary = (h_r * e_i - h_i * e_r).sum((0, 1))
        return grad_real, grad_imaginary, errors, None
