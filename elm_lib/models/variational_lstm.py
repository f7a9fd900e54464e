"""The LSTM with recurrent dropout that the paper trains on SHD (Gal and Ghahramani 2016, arXiv:1512.05287)."""

from __future__ import annotations

from torch import Tensor

from elm_lib.kernels.spikes import Spikes
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
        h, state = self._loop(x, state, self.masks)
        return (h if self.w_y is None else self.w_y(h)), state
