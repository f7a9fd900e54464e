"""NeuronIO: predict the output spikes and the soma voltage of a layer-5 pyramidal cell from its synaptic input."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.datasets.neuronio import example
from elm_lib.datasets.neuronio.batches import Batch, Windows, read_batch
from elm_lib.datasets.neuronio.metrics import score
from elm_lib.datasets.neuronio.resident import DenseBatch, Resident
from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet, unscale_voltage
from elm_lib.datasets.neuronio.statistics import scores_from_statistics, statistics
from elm_lib.datasets.neuronio.teachers import taught
from elm_lib.simulate.point_neurons import KINDS
from elm_lib.support.errors import ConfigError

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

WINDOW_MS, STRIDE_MS = 500, 350  # released evaluation: windows every 350 ms; all but the first lose their first 150
CACHED = 256  # simulations of the validation set kept in memory, 2 MB each

_resident: dict[tuple[str, str], Resident] = {}  # training sets on a GPU, shared by the runs of a process
_loading = threading.Lock()


class Task:
    """Batches, loss and scores of NeuronIO, for `elm_lib.training.run`.

    folder  holds train/, valid/, test/; see `elm_lib.datasets.neuronio.schema`
    window_ms   of a training sample; burn_in_ms: its first ms, which the loss leaves out
    teacher     "lif" or "alif": the same input, with the output of that point neuron; None: of the pyramidal cell
    A model's output (B, T, 2) is a spike logit and the scaled voltage. A run keeps the weights of lowest `select`.
    Raises ConfigError when the burn-in leaves nothing of a window, or for another teacher.
    """

    select = "rmse"  # validation, mV
    shown = ("valid_rmse", "test_auc", "test_rmse", "test_released_auc", "test_released_rmse")

    def __init__(
        self,
        folder: str | Path,
        batch_size: int,
        seed: int,
        *,
        window_ms: int,
        burn_in_ms: int,
        teacher: str | None = None,
    ) -> None:
        self.sizes(window_ms, burn_in_ms, teacher)
        self.folder, self.window_ms, self.burn_in_ms, self.teacher = Path(folder), window_ms, burn_in_ms, teacher
        self.batch_size, self.seed = batch_size, seed
        self._valid: tuple[SimulationSet, list[Batch] | None, list[np.ndarray]] | None = None

    @staticmethod
    def sizes(window_ms: int, burn_in_ms: int, teacher: str | None = None) -> dict[str, int]:
        """What a model of this task needs."""
        if teacher is not None and teacher not in KINDS:
            raise ConfigError(f"task.teacher = {teacher!r}: choose of {list(KINDS)}, or leave it out")
        if not 0 <= burn_in_ms < window_ms:
            raise ConfigError(f"task.burn_in_ms = {burn_in_ms}: must be below task.window_ms = {window_ms}")
        return {"input_size": N_CHANNELS, "d_o": 2}

    @staticmethod
    def steps(window_ms: int, burn_in_ms: int, teacher: str | None = None) -> int:
        """Time steps of a sample, for FLOPs."""
        return window_ms

    def split(self, name: str) -> SimulationSet:
        return taught(self.folder, name, self.teacher) if self.teacher else SimulationSet(self.folder / name)

    @cached_property
    def _windows(self) -> Windows:
        """Training windows; only training needs the training set."""
        return Windows(self.split("train"), window_ms=self.window_ms, batch_size=self.batch_size, seed=self.seed)

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of that name, whoever asks and in whatever order."""
        return self._windows.batch(epoch, step)

    def resident(self, device: str) -> Resident | None:
        """The training set on that device, if it takes less than half of its free memory and has one length."""
        simulations = self._windows.simulations
        with _loading:
            if (name := (f"{self.folder} {self.teacher}", device)) not in _resident:
                lengths = {simulations.duration_ms(n) for n in range(len(simulations))}
                free, _ = torch.cuda.mem_get_info(device)
                if len(lengths) > 1 or Resident.size(simulations) > free / 2:
                    return None
                _resident[name] = Resident(simulations, device)
                torch.cuda.synchronize(device)  # whole before runs on other streams read it
            return _resident[name]

    def first_rows(self, epoch: int, steps: int) -> Tensor:
        """Where the windows of an epoch's batches start in the resident set, int64 (steps, B)."""
        draws = [self._windows.draw(epoch, step) for step in range(steps)]
        indices, starts = (torch.from_numpy(np.stack(a)) for a in zip(*draws))
        return indices * self._windows.simulations.duration_ms(0) + starts

    def loss(self, model: nn.Module, batch: Batch | DenseBatch) -> Tensor:
        """0.5 BCE(spike) + 0.5 MSE(scaled voltage), after the burn-in of each window."""
        y, _ = model(batch.x)
        return spike_and_voltage_loss(y, batch.spike, batch.voltage, self.burn_in_ms)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores for model selection."""
        if self._valid is None:
            simulations, device = self.split("valid"), next(model.parameters()).device
            few = range(len(simulations)) if len(simulations) <= CACHED else ()
            kept = [whole(simulations, n).to(device) for n in few] or None
            self._valid = simulations, kept, targets(simulations)
        return evaluate(model, *self._valid)["clean"]

    def test(self, model: nn.Module) -> dict[str, float]:
        """The scores of `evaluate`."""
        return self.evaluate(model)[0]

    def evaluate(
        self, model: nn.Module, splits: Iterable[str] = ("valid", "test"), most: int | None = None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Every score on these splits, by both protocols: `test_auc`, `test_released_auc`, ...; and the statistics of
        the test set (see `elm_lib.datasets.neuronio.statistics`), {} where it is not asked for.

        most  only the first so many simulations of a split
        """
        scores: dict[str, float] = {}
        kept: dict[str, np.ndarray] = {}
        for split in splits:
            predictions = predict_all(model, self.split(split), most=most)
            for protocol, values in score(*predictions).items():
                prefix = split if protocol == "clean" else f"{split}_{protocol}"
                scores |= {f"{prefix}_{name}": value for name, value in values.items()}
            if split == "test":
                kept = statistics(*predictions)
        return scores, kept

    @staticmethod
    def scores_from_statistics(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        """Scores of the test set that follow from the statistics of `evaluate`."""
        found = scores_from_statistics(arrays)
        names = {"clean": "test", "released": "test_released"}
        return {f"{names[protocol]}_{name}": value for protocol, of in found.items() for name, value in of.items()}

    def example(self, model: nn.Module) -> dict[str, np.ndarray]:
        """What figures show of the test set, with the model's prediction: see `elm_lib.datasets.neuronio.example`."""
        return example.shown(self.split("test"), model)


def spike_and_voltage_loss(y: Tensor, spike: Tensor, voltage: Tensor, burn_in: int) -> Tensor:
    """0.5 BCE(spike) + 0.5 MSE(scaled voltage) from step `burn_in` on.

    y (B, T, 2) spike logit and scaled voltage;  spike 0/1, voltage scaled: (B, T) each
    """
    logit, soma = y[:, burn_in:].unbind(-1)
    spike, voltage = spike[:, burn_in:], voltage[:, burn_in:]
    return 0.5 * F.binary_cross_entropy_with_logits(logit, spike) + 0.5 * F.mse_loss(soma, voltage)


def joined(y: Tensor, overlap: int) -> Tensor:
    """Outputs of windows that overlap, (n, T, d_o), one after another: each but the first loses its first steps."""
    return torch.cat([y[0], y[1:, overlap:].flatten(0, 1)])


def whole(simulations: SimulationSet, n: int) -> Batch:
    """Simulation n in windows of 500 ms moved by 350, the last one filled up with silence."""
    count = 1 + max(0, -(-(simulations.duration_ms(n) - WINDOW_MS) // STRIDE_MS))
    return read_batch(simulations, [n] * count, [STRIDE_MS * k for k in range(count)], WINDOW_MS)


@torch.no_grad()
def predict(
    model: nn.Module, simulations: SimulationSet, n: int, batch: Batch | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Spike probability and voltage (mV) that a model predicts for simulation n, (duration_ms,) each.

    Each window (see `whole`, which `batch` is, if given) is read from a zero state, as released, and the first 150 ms
    of each but the first are discarded.
    """
    batch = whole(simulations, n).to(next(model.parameters()).device) if batch is None else batch
    y, _ = model(batch.x)
    y = joined(y, WINDOW_MS - STRIDE_MS)[: simulations.duration_ms(n)].double().cpu()
    return torch.sigmoid(y[:, 0]).numpy(), unscale_voltage(y[:, 1].numpy())


def evaluate(
    model: nn.Module,
    simulations: SimulationSet,
    batches: list[Batch] | None = None,
    expected: list[np.ndarray] | None = None,
) -> dict[str, dict[str, float]]:
    """Scores by two protocols, from 500 ms on: see `score`.

    batches: `whole` of each simulation on the model's device, expected: `targets`, where they are at hand
    """
    return score(*predict_all(model, simulations, batches, expected))


def predict_all(
    model: nn.Module,
    simulations: SimulationSet,
    batches: list[Batch] | None = None,
    expected: list[np.ndarray] | None = None,
    most: int | None = None,
) -> list[np.ndarray]:
    """Predicted spike probability and voltage (mV), spikes and voltage (mV) of the targets: (n, duration_ms) each.

    most  only the first so many simulations; see `evaluate` for the rest
    """
    model.eval()
    some = range(len(simulations))[:most]
    predictions = zip(*(predict(model, simulations, n, None if batches is None else batches[n]) for n in some))
    return [*(np.stack(a) for a in predictions), *(targets(simulations, most) if expected is None else expected)]


def targets(simulations: SimulationSet, most: int | None = None) -> list[np.ndarray]:
    """Spikes and voltage (mV) of every simulation, or the first so many, (n, duration_ms) each."""
    some = range(len(simulations))[:most]
    spike, voltage = (np.stack(a) for a in zip(*(simulations.targets(n) for n in some)))
    return [spike, unscale_voltage(voltage.astype(np.float64))]
