"""The LSTM baseline (Tables S10 to S12) with one bias vector a gate, as its published parameter counts have it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elm_lib.kernels import lstm
from elm_lib.kernels.spikes import Spikes, project
from elm_lib.models.dropout import Masks

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class LSTM(nn.Module):
    """One LSTM layer and a linear read-out; returns `(output, state)` like nn.LSTM.

    torch keeps two bias vectors a gate, which add up. The second stays at zero and is not trained. So the trainable
    parameters are 4 n (d_s + n + 1) + d_o (n + 1): 77,672 for n = 15 on NeuronIO.
    """

    def __init__(self, input_size: int, hidden_size: int, d_o: int | None = None, *, batch_first: bool = False) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.d_o, self.batch_first = input_size, hidden_size, d_o, batch_first
        self.cell = nn.LSTM(input_size, hidden_size, batch_first=batch_first)
        _, _, _, bias_hh = self.cell.all_weights[0]
        bias_hh.requires_grad_(False).zero_()
        self.w_y = nn.Linear(hidden_size, d_o) if d_o else None

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """w_ih (4 n, d_s), w_hh (4 n, n) and the trained bias (4 n,), for the gates i, f, g, o."""
        w_ih, w_hh, bias, _ = self.cell.all_weights[0]
        return w_ih, w_hh, bias

    def forward(self, x: Tensor | Spikes, state: tuple[Tensor, Tensor] | None = None):
        """x (B, T, input_size) with batch_first, or `Spikes` -> output (B, T, d_o or hidden_size), (h, c)."""
        value = x.value if isinstance(x, Spikes) else x
        if lstm.is_compiled(value, self.weights()[1]) and len(x.shape) == 3:
            h, state = self._loop(x, state)
        elif isinstance(x, Spikes):
            x = x.check(self.weights()[0].dtype)
            h, state = self._on_gpu(x, state) if value.is_cuda else self._sparse(x, state)
        else:
            h, state = self.cell(x, state)
        return (h if self.w_y is None else self.w_y(h)), state

    def _loop(self, x: Tensor | Spikes, state, masks: Masks | None = None):
        """The cell with the loop of `elm_lib.kernels.lstm`; with `masks`, h_{t-1} is read through one of them."""
        w_ih, w_hh, bias = self.weights()
        if isinstance(x, Spikes):
            x = x.check(w_ih.dtype)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        p = project(x, w_ih.T, bias).to(w_hh.dtype).transpose(0, 1)  # (T, B, 4 n)
        h, c = (part[0] for part in state) if state else (p.new_zeros(p.shape[1], self.hidden_size) for _ in range(2))
        h_all, c = lstm.cell(p, h, c, None if masks is None else masks.draw(h.shape, h), w_hh)
        return (h_all.transpose(0, 1) if self.batch_first else h_all), (h_all[-1:], c[None])

    def _on_gpu(self, x: Spikes, state):
        dense = x.dense()
        return self.cell(dense if self.batch_first else dense.transpose(0, 1), state)

    def _sparse(self, x: Spikes, state):
        """The same cell, its input projected by gather and sum first: nn.LSTM then reads the four gates one to one."""
        n, batch = self.hidden_size, x.shape[0]
        w_ih, w_hh, bias = self.weights()
        gates = project(x, w_ih.T, bias)  # (B, T, 4 n)
        state = state or (gates.new_zeros(1, batch, n), gates.new_zeros(1, batch, n))
        weights = [torch.eye(4 * n, dtype=gates.dtype, device=gates.device), w_hh]
        h, h_n, c_n = torch._VF.lstm(gates, state, weights, False, 1, 0.0, self.training, False, True)
        return (h if self.batch_first else h.transpose(0, 1)), (h_n, c_n)
