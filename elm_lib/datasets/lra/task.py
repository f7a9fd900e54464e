"""The Long Range Arena: name the class of a sequence of symbols from the output after its last symbol."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.datasets.lra.batches import Batch, LraData
from elm_lib.datasets.lra.schema import FORMS
from elm_lib.support.errors import ConfigError

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

EVALUATED = 64  # samples at a time
_DROPOUT = 1  # part of the key of its random numbers, apart from those of the order
STEPS = {"listops": 2000, "text": 4000, "retrieval": 4000, "image": 1024, "pathfinder": 1024, "pathfinder_x": 16384} | {
    "digits": 64
}
shared = lru_cache(maxsize=8)(LraData)  # the runs of a process read a file once


class Task:
    """Batches, loss and scores of one of the tasks, for `elm_lib.training.run`.

    folder   of the collection; the task's files are in folder/<name>
    name     listops, text, retrieval, image, pathfinder, pathfinder_x, digits
    dropout  probability that a step's input is dropped in training
    A run keeps the weights of the lowest validation error.
    """

    select = "error"
    shown = ("train_accuracy", "valid_accuracy", "test_accuracy")

    def __init__(self, folder: str | Path, batch_size: int, seed: int, *, name: str, dropout: float) -> None:
        self.sizes(name, dropout)
        self.data, self.seed, self.batch_size = shared(Path(folder), name), seed, batch_size
        self.name, self.dropout = name, dropout

    @staticmethod
    def sizes(name: str, dropout: float) -> dict[str, int]:
        """What a model of this task needs. Raises ConfigError for options out of range."""
        if name not in FORMS or not 0 <= dropout < 1:
            raise ConfigError(f"task.name = {name!r}, task.dropout = {dropout}: one of {sorted(FORMS)}; 0 to below 1")
        return {"input_size": FORMS[name].n_tokens, "d_o": FORMS[name].n_classes}

    @staticmethod
    def steps(name: str, dropout: float) -> int:
        """Time steps of the longest sample of the published data set, for FLOPs."""
        return STEPS[name]

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of that name, whoever asks and in whatever order."""
        batch = self.data.batch(self.seed, epoch, step, self.batch_size)
        return batch.dropped(self.dropout, np.random.default_rng([self.seed, epoch, step, _DROPOUT]))

    def resident(self, device: str) -> None:
        return None

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the class scores."""
        return F.cross_entropy(scores(model, batch), batch.label)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores for model selection."""
        accuracy = float(self._right(model, "valid").mean())
        return {"error": 1 - accuracy, "accuracy": accuracy}

    def test(self, model: nn.Module) -> dict[str, float]:
        """The scores of `evaluate`."""
        return self.evaluate(model)[0]

    def evaluate(
        self, model: nn.Module, splits: Iterable[str] = ("train", "valid", "test"), most: int | None = None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Accuracy on these splits; on the training set, of as many samples as the test set has. And the statistics of
        the test set, {} where it is not asked for:

        right  bool (n,)  whether a sample was named right, in the order of the split
        most   only so many samples of a split, evenly spread over it
        """
        scores, kept = {}, {}
        for split in splits:
            right = self._right(model, split, self.data.size("test") if split == "train" and most is None else most)
            scores[f"{split}_accuracy"] = float(right.mean())
            if split == "test":
                kept = {"right": right}
        return scores, kept

    @staticmethod
    def scores_from_statistics(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        """Scores of the test set that follow from the statistics of `evaluate`."""
        return {"test_accuracy": float(arrays["right"].mean())}

    @torch.no_grad()
    def _right(self, model: nn.Module, split: str, most: int | None = None) -> np.ndarray:
        """Whether each sample was named right, bool (n,), in the order of the split."""
        model.eval()
        device, right, index = next(model.parameters()).device, [], []
        for batch in self.data.split_batches(split, EVALUATED, most):
            here = batch.to(device)
            right.append((scores(model, here).argmax(1) == here.label).cpu().numpy())
            index.append(batch.index.numpy())
        return np.concatenate(right)[np.argsort(np.concatenate(index))]


def scores(model: nn.Module, batch: Batch) -> Tensor:
    """Class scores (B, d_o): the output after each sequence's own last symbol, whatever padding follows it. Of a model
    with a `head`, those outputs of a sample's sequences, side by side, through it."""
    y, _ = model(batch.x)
    last = y[torch.arange(len(y), device=y.device), batch.length - 1]
    head = getattr(model, "head", None)
    return last if head is None else head(last.view(-1, len(batch), last.shape[1]))
