"""The LSTM with recurrent dropout, as the paper trains it on SHD: a variational LSTM (Gal and Ghahramani 2016, arXiv:1512.05287)."""

from __future__ import annotations

import torch
from torch import Tensor

from elm_lib.baselines.lstm import LSTM
from elm_lib.masks import Masks
from elm_lib.sparse import Spikes, project


class VLSTM(LSTM):
    """`LSTM` whose gates, in training, read h_{t-1} through a mask: one a sample, the same for all t.

    recurrent_dropout  probability that a unit is masked. Raises ValueError outside [0, 1).
    Training goes step by step and is slower than `LSTM`; evaluation is `LSTM`.
    """

    def __init__(self, input_size: int, hidden_size: int, d_o: int | None = None, *, recurrent_dropout: float = 0.3,
                 **kwargs) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, d_o, **kwargs)
        self.masks = Masks(recurrent_dropout)

    def forward(self, x: Tensor | Spikes, state: tuple[Tensor, Tensor] | None = None):
        """As `LSTM.forward`."""
        if not self.training:
            return super().forward(x, state)
        if isinstance(x, Spikes):
            x = x.check(self.cell.weight_ih_l0.dtype)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        gates = project(x, self.cell.weight_ih_l0.T) + self.cell.bias_ih_l0  # (B, T, 4 n)
        h, c = (s[0] for s in state) if state else (gates.new_zeros(len(gates), self.hidden_size) for _ in range(2))
        mask, w_hh, outputs = self.masks.draw(h.shape, h), self.cell.weight_hh_l0.T, []
        for gates_t in gates.unbind(1):
            i, f, g, o = torch.addmm(gates_t, h * mask, w_hh).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        h_all = torch.stack(outputs, 1 if self.batch_first else 0)
        return (h_all if self.w_y is None else self.w_y(h_all)), (h[None], c[None])
