"""How a run is optimised: its hyper-parameters and its learning rate."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt


class Strict(BaseModel):
    """Frozen; refuses unknown keys and wrong types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Train(Strict):
    """How one run is trained; published values are in params.yaml."""

    optimizer: Literal["adam", "adamax"]
    lr: PositiveFloat
    batch_size: PositiveInt
    epochs: PositiveInt
    batches_per_epoch: PositiveInt
    window_ms: PositiveInt
    burn_in_ms: NonNegativeInt
    clip_grad_norm: PositiveFloat | None

    @property
    def steps(self) -> int:
        """Optimiser steps of a run."""
        return self.epochs * self.batches_per_epoch


def learning_rate(train: Train, step: int) -> float:
    """Cosine decay from lr to 0 over the whole run."""
    return train.lr * 0.5 * (1 + math.cos(math.pi * step / train.steps))
