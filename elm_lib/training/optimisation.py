"""How a run is optimised: its hyper-parameters and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from elm_lib.support.strict import Count, Strict


class Train(Strict):
    """How one run is trained; published values are in params.yaml. All but `accumulate` is part of what a run is."""

    optimizer: Literal["adam", "adamax"]
    lr: PositiveFloat
    batch_size: Count
    epochs: Count
    batches_per_epoch: Count
    clip_grad_norm: PositiveFloat | None
    # Pieces of a batch, one after another. Memory is that of one piece, the gradient is that of the whole batch.
    accumulate: Count = 1

    @property
    def steps(self) -> int:
        """Optimiser steps of a run."""
        return self.epochs * self.batches_per_epoch


def learning_rate(train: Train, step: int) -> float:
    """Cosine decay from lr to 0 over the whole run."""
    return train.lr * 0.5 * (1 + math.cos(math.pi * step / train.steps))


def descend(model: nn.Module, optimizer, losses: Iterable[Tensor], clip_grad_norm: float | None) -> Tensor | float:
    """One optimiser step along the gradient of the sum of `losses`, each freed before the next is asked for; that
    sum."""
    optimizer.zero_grad(set_to_none=True)
    total: Tensor | float = 0.0
    for loss in losses:
        loss.backward()
        total = total + loss.detach()
    if clip_grad_norm:
        nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
    optimizer.step()
    return total
