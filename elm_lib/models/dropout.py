"""Dropout whose random numbers depend on the seed and the step of a run alone.

So a run that is resumed draws what it would have drawn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class Masks(nn.Module):
    """Draws masks: 0 with probability p, else 1 / (1 - p). Its generator is its own; `reseed` sets it before each step.

    Raises ValueError unless 0 <= p < 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout={p}: must be at least 0 and below 1")
        self.p = p
        self.reseed(0)

    def reseed(self, *key: int) -> None:
        """Start the random numbers over from a key, such as (seed, step)."""
        self._generator = np.random.default_rng(key)

    def __deepcopy__(self, memo) -> Masks:
        return Masks(self.p)

    def draw(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A mask of that shape, with the dtype and on the device of `like`."""
        keep = self._generator.random(shape, np.float32) >= self.p
        return torch.from_numpy(keep.astype(np.float32)).to(like) / (1 - self.p)
