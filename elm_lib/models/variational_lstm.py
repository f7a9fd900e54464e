"""The LSTM with recurrent dropout that the paper trains on SHD (Gal and Ghahramani 2016, arXiv:1512.05287)."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import Tensor

from elm_lib.kernels.autograd import first_derivative
from elm_lib.kernels.spikes import Spikes, project
from elm_lib.models.dropout import Masks
from elm_lib.models.lstm import LSTM

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class VariationalLSTM(LSTM):
    """`LSTM` whose gates, in training, read h_{t-1} through a mask: one a sample, the same for all t.

    recurrent_dropout  probability that a unit is masked. Raises ValueError outside [0, 1).
    In evaluation it is an `LSTM`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, d_o: int | None = None, *, recurrent_dropout: float = 0.3, **kwargs
    ) -> None:
        super().__init__(input_size, hidden_size, d_o, **kwargs)
        self.masks = Masks(recurrent_dropout)

    def forward(self, x: Tensor | Spikes, state: tuple[Tensor, Tensor] | None = None):
        """As `LSTM.forward`."""
        if not self.training:
            return super().forward(x, state)
        w_ih, w_hh, bias = self.weights()
        if isinstance(x, Spikes):
            x = x.check(w_ih.dtype)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        gates = (project(x, w_ih.T) + bias).to(w_hh.dtype)  # (B, T, 4 n)
        h, c = (s[0] for s in state) if state else (gates.new_zeros(len(gates), self.hidden_size) for _ in range(2))
        h_all, c = _Cell.apply(gates.transpose(0, 1), h, c, self.masks.draw(h.shape, h), w_hh)
        outputs = h_all.transpose(0, 1) if self.batch_first else h_all
        return (outputs if self.w_y is None else self.w_y(outputs)), (h_all[-1:], c[None])


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


class _Cell(torch.autograd.Function):
    """h_1 ... h_T (T, B, n) and c_T (B, n).

    gates (T, B, 4 n) are the input's part of i, f, g, o; h_0, c_0 and the mask of h (B, n); w_hh (4 n, n).
    Forward keeps gates, c and tanh(c). Backward computes what does not depend on later steps for all t at once.
    """

    @staticmethod
    def forward(ctx, gates, h, c, mask, w_hh):
        (steps, batch), n = gates.shape[:2], w_hh.shape[1]
        gates, w = gates.clone(memory_format=torch.contiguous_format), w_hh.T.contiguous()
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
    @first_derivative("call eval() for the cell of torch.nn.LSTM")
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
        kept = h_all[:-1] * mask
        return errors, dh, dc, None, errors.flatten(0, 1).T @ kept.flatten(0, 1)
