"""The cell of an LSTM over a whole sequence, its gates' input part already computed (Hochreiter and Schmidhuber 1997).

    i, f, o = sigmoid,  g = tanh  of  p_t + w_hh (mask * h_{t-1})
    c_t = f * c_{t-1} + i * g,   h_t = o * tanh(c_t)

The mask is that of recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287): one a sample, the same for all t.
On a CPU the loop over t is compiled by numba where that is installed; else it is a loop in torch.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import Tensor

from elm_lib.kernels.autograd import first_derivative, in_memory, transformed
from elm_lib.kernels.optional import there


def cell(p: Tensor, h: Tensor, c: Tensor, mask: Tensor | None, w_hh: Tensor) -> tuple[Tensor, Tensor]:
    """h_1 ... h_T (T, B, n) and c_T (B, n).

    p (T, B, 4 n): the input's part of i, f, g, o, biases included. h_0, c_0 and mask (B, n). w_hh (4 n, n).
    """
    mask = torch.ones_like(h) if mask is None else mask
    return (_Compiled if is_compiled(p, w_hh) else _Loop).apply(p, h, c, mask, w_hh)


def is_compiled(*tensors: Tensor) -> bool:
    """Whether the compiled loops run on these tensors."""
    kinds = all(x.device.type == "cpu" and in_memory(x) for x in tensors)
    return kinds and tensors[-1].dtype in (torch.float32, torch.float64) and not transformed() and there("numba")


@contextmanager
def denormals_flushed():
    """Numbers below 1e-38 count as 0 here.

    A gradient that vanishes over hundreds of steps ends in such numbers, and arithmetic with them is many times slower.
    """
    before = bool(torch.tensor(2e-38) * 0.1 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class _Compiled(torch.autograd.Function):
    """Forward keeps the gates' values and c."""

    @staticmethod
    def forward(ctx, p, h, c, mask, w_hh):
        from elm_lib.kernels import lstm_loops
        from elm_lib.kernels.recurrence import engine_cpu as blocks

        (steps, batch), n = p.shape[:2], w_hh.shape[1]
        gates = torch.empty_like(p, memory_format=torch.contiguous_format)
        h_all, c_all = (torch.cat([s[None], s.new_empty(steps, batch, n)]) for s in (h, c))
        weights = blocks.packed(w_hh.T, blocks.samples_of(batch))
        arrays = (*blocks.rows(p, gates, h_all, c_all), mask.contiguous().numpy())
        blocks.over_samples(lstm_loops.forward, batch, *arrays, weights, batch)
        ctx.save_for_backward(gates, h_all, c_all, mask, w_hh)
        return h_all[1:], c_all[-1].clone()

    @staticmethod
    @first_derivative("torch.nn.LSTM has one: `elm_lib.models.lstm.LSTM` holds one as `cell`")
    def backward(ctx, grad_h, grad_c):
        from elm_lib.kernels import lstm_loops
        from elm_lib.kernels.recurrence import engine_cpu as blocks

        gates, h_all, c_all, mask, w_hh = ctx.saved_tensors
        batch = gates.shape[1]
        errors = torch.empty_like(gates)
        dh, dc = torch.empty_like(mask), grad_c.clone(memory_format=torch.contiguous_format)
        weights = blocks.packed(w_hh, blocks.samples_of(batch))
        with denormals_flushed():
            blocks.over_samples(
                lstm_loops.reverse,
                batch,
                *blocks.rows(gates, c_all, grad_h),
                mask.contiguous().numpy(),
                weights,
                *blocks.rows(errors),
                dh.numpy(),
                dc.numpy(),
                batch,
            )
        return errors, dh, dc, None, _grad_of_weights(errors, h_all, mask)


class _Loop(torch.autograd.Function):
    """Forward keeps gates, c and tanh(c). Backward computes what does not depend on later steps for all t at once."""

    @staticmethod
    def forward(ctx, p, h, c, mask, w_hh):
        (steps, batch), n = p.shape[:2], w_hh.shape[1]
        gates, w = p.clone(memory_format=torch.contiguous_format), w_hh.T.contiguous()
        h_all, c_all = (torch.cat([s[None], s.new_empty(steps, batch, n)]) for s in (h, c))
        tanh_c, kept = torch.empty_like(h_all[1:]), torch.empty_like(h)
        for t, now in enumerate(gates):
            now.addmm_(torch.mul(h_all[t], mask, out=kept), w)
            i, f, g, o = now.chunk(4, 1)
            now[:, : 2 * n].sigmoid_()
            o.sigmoid_()
            g.tanh_()
            torch.mul(f, c_all[t], out=c_all[t + 1]).addcmul_(i, g)
            torch.mul(o, torch.tanh(c_all[t + 1], out=tanh_c[t]), out=h_all[t + 1])
        ctx.save_for_backward(gates, h_all, c_all, tanh_c, mask, w_hh)
        return h_all[1:], c_all[-1].clone()

    @staticmethod
    @first_derivative("torch.nn.LSTM has one: `elm_lib.models.lstm.LSTM` holds one as `cell`")
    def backward(ctx, grad_h, grad_c):
        gates, h_all, c_all, tanh_c, mask, w_hh = ctx.saved_tensors
        i, f, g, o = gates.chunk(4, 2)
        to_c = o * (1 - tanh_c.square())  # of c_t on h_t
        slope = torch.stack([g * i * (1 - i), c_all[:-1] * f * (1 - f), i * (1 - g.square()), tanh_c * o * (1 - o)], 2)
        errors = torch.empty_like(slope)  # of the gates before their activation, (T, B, 4, n)
        dh, dc = grad_h[-1].clone(), grad_c.clone()
        with denormals_flushed():
            for t in reversed(range(len(gates))):
                dc.addcmul_(dh, to_c[t])
                torch.mul(slope[t, :, :3], dc[:, None], out=errors[t, :, :3])
                torch.mul(slope[t, :, 3], dh, out=errors[t, :, 3])
                dc.mul_(f[t])
                torch.mm(errors[t].flatten(1), w_hh, out=dh).mul_(mask)
                if t:
                    dh.add_(grad_h[t - 1])
        errors = errors.flatten(2)
        return errors, dh, dc, None, _grad_of_weights(errors, h_all, mask)


def _grad_of_weights(errors: Tensor, h_all: Tensor, mask: Tensor) -> Tensor:
    return errors.flatten(0, 1).T @ (h_all[:-1] * mask).flatten(0, 1)
