"""The Chrono-LSTM: an LSTM whose gates start out with long timescales (Tallec and Ollivier 2018, arXiv:1804.11188)."""

from __future__ import annotations

import torch

from elm_lib.models.lstm import LSTM

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class ChronoLSTM(LSTM):
    """`LSTM` with chrono-initialised biases: a unit forgets after about 1 + exp(b_f) steps, and

        b_f = log u,   u ~ U(low, high - 1),   b_i = -b_f          (low, high) = tau_range, in steps (Table S3)

    The other biases and all weights start as torch has them. Raises ValueError unless 1 <= low < high - 1.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 150,
        d_o: int | None = None,
        *,
        tau_range: tuple[float, float] = (1, 1000),
        **kwargs,
    ) -> None:
        super().__init__(input_size, hidden_size, d_o, **kwargs)
        low, high = tau_range
        if not 1 <= low < high - 1 < float("inf"):
            raise ValueError(f"tau_range={tuple(tau_range)}: needs 1 <= low < high - 1 (steps)")
        self.tau_range = (low, high)
        with torch.no_grad():
            b_i, b_f, _, _ = self.weights()[2].chunk(4)  # gates i, f, g, o
            b_f.uniform_(low, high - 1).log_()
            b_i.copy_(-b_f)
