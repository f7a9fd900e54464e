"""Two towers for Retrieval: one network reads both texts, a small one compares what it made of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from elm_lib.kernels.spikes import Spikes
from elm_lib.models.chrono_lstm import ChronoLSTM
from elm_lib.neuron import ELM

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

ENCODERS = {"elm": ELM, "chrono_lstm": ChronoLSTM}


class TwoTower(nn.Module):
    """z_1, z_2 (B, d_latent) from the same encoder; scores = MLP([z_1, z_2, z_1 * z_2, z_1 - z_2]), (B, d_o).

    encoder   a `model:` entry of kind elm or chrono_lstm, whose read-out has d_latent outputs
    d_latent  75 in the paper

    The paper does not say how the two are compared. The features are those of the Long Range Arena's own dual encoder
    (Tay et al. 2021). The hidden layer has d_latent ReLU units.
    `forward` gives the encoder's outputs of each sequence on its own, `head` compares.
    Raises ValueError for another kind of encoder, or d_latent < 1.
    """

    def __init__(
        self, input_size: int, d_o: int = 2, *, encoder: dict[str, Any], d_latent: int = 75, batch_first: bool = False
    ) -> None:
        super().__init__()
        options = dict(encoder)
        kind = options.pop("kind", None)
        if kind not in ENCODERS or d_latent < 1:
            raise ValueError(
                f"encoder.kind={kind!r}, d_latent={d_latent}: choose one of {sorted(ENCODERS)} and d_latent >= 1"
            )
        self.encoder = ENCODERS[kind](input_size, d_o=d_latent, batch_first=batch_first, **options)
        self.compare = nn.Sequential(nn.Linear(4 * d_latent, d_latent), nn.ReLU(), nn.Linear(d_latent, d_o))

    def forward(self, x: Tensor | Spikes, state=None):
        """x (2 B, T, input_size), the B first sequences before the B second -> outputs (2 B, T, d_latent), state."""
        return self.encoder(x, state)

    def head(self, z: Tensor) -> Tensor:
        """Last outputs (2, B, d_latent) -> (B, d_o)."""
        z_1, z_2 = z
        return self.compare(torch.cat([z_1, z_2, z_1 * z_2, z_1 - z_2], -1))
