"""The LSTM baseline (Tables S10 to S12) with one bias vector a gate, as its published parameter counts have it."""

from __future__ import annotations

from torch import Tensor, nn

from elm_lib.traces import Spikes


class LSTM(nn.Module):
    """One LSTM layer and a linear read-out; returns `(output, state)` like nn.LSTM.

    torch keeps two bias vectors a gate, which add up; the second stays at zero and is not trained, so that the trainable
    parameters are 4 n (d_s + n + 1) + d_o (n + 1): 77,672 for n = 15 on NeuronIO.
    """

    def __init__(self, input_size: int, hidden_size: int, d_o: int | None = None, *, batch_first: bool = False) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.d_o, self.batch_first = input_size, hidden_size, d_o, batch_first
        self.cell = nn.LSTM(input_size, hidden_size, batch_first=batch_first)
        self.cell.bias_hh_l0.requires_grad_(False).zero_()
        self.w_y = nn.Linear(hidden_size, d_o) if d_o else None

    def forward(self, x: Tensor | Spikes, state: tuple[Tensor, Tensor] | None = None):
        """x (B, T, input_size) with batch_first -> output (B, T, d_o or hidden_size), (h, c)."""
        h, state = self.cell(x.dense() if isinstance(x, Spikes) else x, state)
        return (h if self.w_y is None else self.w_y(h)), state

    def count_parameters(self) -> int:
        """Trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)
