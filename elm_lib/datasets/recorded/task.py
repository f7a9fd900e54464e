"""Predict the output spikes and the soma voltage of a recorded neuron: the task of NeuronIO, for any neuron.

Loss, windows and scores are those of `elm_lib.datasets.neuronio`; lengths are in steps of the recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from elm_lib.datasets.neuronio.metrics import spike_scores, voltage_scores
from elm_lib.datasets.neuronio.task import joined, spike_and_voltage_loss
from elm_lib.datasets.recorded.schema import Prepared
from elm_lib.kernels.spikes import Spikes
from elm_lib.support.errors import ConfigError

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


@dataclass(frozen=True, eq=False)
class Batch:
    """B windows of T steps: input (B, T, C), spike 0/1 and scaled voltage (B, T) each."""

    x: Spikes
    spike: Tensor
    voltage: Tensor

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.x.to(device), self.spike.to(device), self.voltage.to(device))


class Task:
    """Batches, loss and scores of a recording, for `elm_lib.training.run`.

    path     file of `elm_lib.datasets.recorded.schema.Prepared`
    window   steps of a training sample; burn_in: its first steps, which the loss leaves out
    A model's output (B, T, 2) is a spike logit and the scaled voltage. A run keeps the weights of lowest `select`.
    The first burn_in steps of each trial are not scored. Raises ConfigError when the burn-in leaves nothing of a
    window.
    """

    select = "rmse"  # validation, mV
    shown = ("valid_rmse", "test_auc", "test_rmse")

    def __init__(
        self, path: str | Path, batch_size: int, seed: int, *, n_synapses: int, window: int, burn_in: int
    ) -> None:
        self.sizes(n_synapses, window, burn_in)
        self.data, self.batch_size, self.seed = Prepared.load(path), batch_size, seed
        self.window, self.burn_in = window, burn_in
        recording = self.data.recording
        if recording.n_synapses != n_synapses:
            raise ConfigError(f"task.n_synapses = {n_synapses}, but {path} has {recording.n_synapses} synapses")
        row_ptr, channel, value = map(torch.from_numpy, (recording.row_ptr, recording.channel, recording.value))
        self._x = Spikes(row_ptr, channel, value, (1, len(recording.spike), n_synapses))
        capped = np.minimum(recording.voltage, np.float32(self.data.cap_mv))
        self._voltage = torch.from_numpy(((capped - self.data.bias_mv) / self.data.scale_mv).astype(np.float32))
        self._spike = torch.from_numpy(recording.spike.astype(np.float32))
        starts = [np.arange(a, b - window + 1) for a, b in self._rows("train")]
        self._starts = np.concatenate(starts)

    @staticmethod
    def sizes(n_synapses: int, window: int, burn_in: int) -> dict[str, int]:
        """What a model of this task needs."""
        if not 0 <= burn_in < window:
            raise ConfigError(f"task.burn_in = {burn_in}: must be below task.window = {window}")
        return {"input_size": n_synapses, "d_o": 2}

    @staticmethod
    def steps(n_synapses: int, window: int, burn_in: int) -> int:
        """Time steps of a sample, for FLOPs."""
        return window

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of that name: windows that start at any step of the training trials, all as likely."""
        rng = np.random.default_rng([self.seed, epoch, step])
        first = self._starts[rng.integers(len(self._starts), size=self.batch_size)]
        return self._read([(int(row), int(row) + self.window) for row in first])

    def resident(self, device: str) -> None:
        return None

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """0.5 BCE(spike) + 0.5 MSE(scaled voltage), after the burn-in of each window."""
        y, _ = model(batch.x)
        return spike_and_voltage_loss(y, batch.spike, batch.voltage, self.burn_in)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores for model selection."""
        return self._scores(self.predictions(model, "valid"))

    def test(self, model: nn.Module) -> dict[str, float]:
        """The scores of `evaluate`."""
        return self.evaluate(model)[0]

    def evaluate(
        self, model: nn.Module, splits: Iterable[str] = ("valid", "test"), most: int | None = None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Scores of these parts, `test_auc` and so on; and of the test set its `predictions`.

        most  only the first so many trials of a part
        """
        scores: dict[str, float] = {}
        kept: dict[str, np.ndarray] = {}
        for split in splits:
            found = self.predictions(model, split, most)
            scores |= {f"{split}_{name}": value for name, value in self._scores(found).items()}
            if split == "test":
                kept = found
        return scores, kept

    @torch.no_grad()
    def predictions(self, model: nn.Module, part: str, most: int | None = None) -> dict[str, np.ndarray]:
        """Trials one after another, (R,) each: p, spike (0/1), v and voltage (mV, capped); first (N + 1,) as in
        `Recording`."""
        model.eval()
        p, v, rows = [], [], self._rows(part)[:most]
        for start, stop in rows:
            found = predict(model, self._x.window(start, stop), self.window, self.burn_in)
            p.append(found[0])
            v.append(found[1] * self.data.scale_mv + self.data.bias_mv)
        true = [slice(start, stop) for start, stop in rows]
        return {
            "p": np.concatenate(p),
            "v": np.concatenate(v),
            "spike": np.concatenate([self._spike[s].numpy() for s in true]),
            "voltage": np.concatenate(
                [np.minimum(self.data.recording.voltage[s], self.data.cap_mv).astype(np.float64) for s in true]
            ),
            "first": np.cumsum([0, *(stop - start for start, stop in rows)]),
        }

    def _rows(self, part: str) -> list[tuple[int, int]]:
        """Where each trial of a part begins and ends."""
        first = self.data.recording.first
        return [(int(first[k]), int(first[k + 1])) for k in self.data.trials(part)]

    def _scores(self, found: dict[str, np.ndarray]) -> dict[str, float]:
        kept = np.ones(len(found["p"]), bool)
        for first in found["first"][:-1]:
            kept[first : first + self.burn_in] = False
        p, v, spike, voltage = (found[name][kept] for name in ("p", "v", "spike", "voltage"))
        return spike_scores(spike, p) | voltage_scores(voltage, v)

    def _read(self, spans: list[tuple[int, int]]) -> Batch:
        x = Spikes.collate([self._x.window(start, stop) for start, stop in spans])
        spike, voltage = (torch.stack([part[a:b] for a, b in spans]) for part in (self._spike, self._voltage))
        return Batch(x, spike, voltage)


@torch.no_grad()
def predict(model: nn.Module, x: Spikes, window: int, burn_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Spike probability and scaled voltage that a model predicts for one trial x (1, T, C), (T,) each.

    Windows are read from a zero state, and the first burn_in steps of each but the first are discarded, as in the
    released evaluation of NeuronIO.
    """
    steps, stride = x.shape[1], window - burn_in
    count = 1 + max(0, -(-(steps - window) // stride))
    windows = [x.window(stride * k, min(stride * k + window, steps)) for k in range(count)]
    y, _ = model(Spikes.collate(windows).to(next(model.parameters()).device))
    y = joined(y, burn_in)[:steps].double().cpu()
    return torch.sigmoid(y[:, 0]).numpy(), y[:, 1].numpy()
