"""SHD and SHD-Adding: name the spoken digit, or the sum of two, from the last output."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.datasets.shd.batches import Batch, ShdData, Split, n_bins, n_outputs
from elm_lib.datasets.shd.schema import N_CHANNELS
from elm_lib.support.errors import ConfigError

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

EVALUATED = 64  # samples at a time
shared = lru_cache(maxsize=4)(ShdData)  # the runs of a process read a file once


class Task:
    """Batches, loss and scores of SHD, for `elm_lib.training.run`.

    folder   of `elm_lib.datasets.shd.batches.ShdData`
    bin_ms   ms of a step
    adding   two digits one after the other, the target their sum
    dropout  probability that an entry of the input is dropped in training
    A run keeps the weights of the lowest validation error.
    """

    select = "error"
    shown = ("train_accuracy", "valid_accuracy", "test_accuracy", "test_accuracy_unseen_speakers")

    def __init__(
        self, folder: str | Path, batch_size: int, seed: int, *, bin_ms: int, adding: bool, dropout: float
    ) -> None:
        self.sizes(bin_ms, adding, dropout)
        self.data, self.seed, self.batch_size = shared(Path(folder)), seed, batch_size
        self.bin_ms, self.adding, self.dropout = bin_ms, adding, dropout

    @staticmethod
    def sizes(bin_ms: int, adding: bool, dropout: float) -> dict[str, int]:
        """What a model of this task needs. Raises ConfigError for options out of range."""
        try:
            n_bins(bin_ms)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"task.{error}") from None
        if not isinstance(adding, bool) or not 0 <= dropout < 1:
            raise ConfigError(f"task.adding = {adding}, task.dropout = {dropout}: true or false; 0 to below 1")
        return {"input_size": N_CHANNELS, "d_o": n_outputs(adding)}

    @staticmethod
    def steps(bin_ms: int, adding: bool, dropout: float) -> int:
        """Time steps of a sample, for FLOPs."""
        return n_bins(bin_ms) * (1 + adding)

    @staticmethod
    def arguments(bin_ms: int, adding: bool, dropout: float) -> dict[str, float]:
        """Arguments of a model that follow from the task, if it has them."""
        return {"delta_t": float(bin_ms)}

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of that name, whoever asks and in whatever order."""
        return self.data.batch(
            seed=self.seed,
            epoch=epoch,
            step=step,
            batch_size=self.batch_size,
            bin_ms=self.bin_ms,
            adding=self.adding,
            dropout=self.dropout,
        )

    def resident(self, device: str) -> None:
        return None

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the last output, and what the model adds for itself (`SNN.penalty`)."""
        y, _ = model(batch.x)
        return F.cross_entropy(y[:, -1], batch.label) + getattr(model, "penalty", 0.0)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores for model selection."""
        accuracy = float(self._right(model, "valid")[0].mean())
        return {"error": 1 - accuracy, "accuracy": accuracy}

    def test(self, model: nn.Module) -> dict[str, float]:
        """The scores of `evaluate`."""
        return self.evaluate(model)[0]

    def evaluate(
        self, model: nn.Module, splits: Iterable[Split] = ("train", "valid", "test"), most: int | None = None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Accuracy on these splits; on the test set also of speakers that were not in training, of the others, and with
        input dropout as in training, which the released code leaves on (`_dropped`). And statistics, of the splits that
        were asked for:

        right   bool (n,)  whether a sample was named right
        unseen  bool (n,)  whether none of its speakers was in training
        seen    bool (n,)  whether all of them were
        valid_right  bool (m,)  the first of the validation set, where that was asked for, too
        most    only the first so many samples of a split
        """
        scores: dict[str, float] = {}
        kept: dict[str, np.ndarray] = {}
        for split in splits:
            right, speaker = self._right(model, split, most=most)
            scores[f"{split}_accuracy"] = right.mean()
            if split == "valid":
                kept["valid_right"] = right
            if split == "test":
                unseen = np.isin(speaker, self.data.held_out_speakers)
                kept |= {"right": right, "unseen": np.asarray(unseen.all(1)), "seen": np.asarray(~unseen.any(1))}
                for name, part in (("unseen_speakers", unseen.all(1)), ("seen_speakers", ~unseen.any(1))):
                    scores[f"test_accuracy_{name}"] = right[part].mean() if part.any() else float("nan")
                scores["test_accuracy_dropped"] = self._right(model, "test", self.dropout, most)[0].mean()
        return {name: float(value) for name, value in scores.items()}, kept

    @staticmethod
    def scores_from_statistics(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        """Scores of the test set that follow from the statistics of `evaluate`."""
        right, unseen = arrays["right"], arrays["unseen"]
        found = {"test_accuracy": right, "test_accuracy_unseen_speakers": right[unseen]}
        return {name: float(part.mean()) for name, part in found.items() if len(part)}

    @torch.no_grad()
    def _right(
        self, model: nn.Module, split: Split, dropout: float = 0.0, most: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether each sample of a split was named right, (n,) bool, and its speakers, (n, 1 or 2)."""
        model.eval()
        device, right, speaker = next(model.parameters()).device, [], []
        for batch in self._batches(split, dropout, most):
            y, _ = model(batch.to(device).x)
            right.append((y[:, -1].argmax(1).cpu() == batch.label).numpy())
            speaker.append(batch.speaker.numpy())
        return np.concatenate(right), np.concatenate(speaker)

    def _batches(self, split: Split, dropout: float, most: int | None):
        if split == "train" and self.adding:  # pairs without end: as many as for validation, drawn as in training
            pairs = self.data.pairs["valid"] if most is None else min(most, self.data.pairs["valid"])
            few = pairs // EVALUATED or 1
            return (
                self.data.batch(
                    seed=self.seed, epoch=0, step=step, batch_size=EVALUATED, bin_ms=self.bin_ms, adding=True
                )
                for step in range(few)
            )
        return self.data.split_batches(
            split,
            batch_size=EVALUATED,
            bin_ms=self.bin_ms,
            adding=self.adding,
            dropout=dropout,
            seed=self.seed,
            most=most,
        )
