"""NeuronIO: predict the output spikes and the soma voltage of a layer-5 pyramidal cell from its synaptic input."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.datasets.neuronio.batches import Batch, Windows, read_batch
from elm_lib.datasets.neuronio.metrics import spike_scores, voltage_scores
from elm_lib.datasets.neuronio.resident import DenseBatch, Resident
from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet, unscale_voltage
from elm_lib.support.errors import ConfigError

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

WINDOW_MS, STRIDE_MS = (
    500,
    350,
)  # released evaluation: windows of 500 ms every 350; all but the first lose their first 150
START_MS = 500  # the first 500 ms of a simulation are not scored
CACHED = 256  # simulations of the validation set kept in memory, 2 MB each
MOST_SPIKES = 24  # the released evaluation leaves out simulations with more output spikes


_resident: dict[tuple[str, str], Resident] = {}  # training sets on a GPU, shared by the runs of a process
_loading = threading.Lock()


class Task:
    """Batches, loss and scores of NeuronIO, for `elm_lib.training.run`.

    folder  holds train/, valid/, test/; see `elm_lib.datasets.neuronio.schema`
    window_ms   of a training sample; burn_in_ms: its first ms, which the loss leaves out
    A model's output (B, T, 2) is a spike logit and the scaled voltage. A run keeps the weights of lowest `select`.
    Raises ConfigError when the burn-in leaves nothing of a window.
    """

    select = "rmse"  # validation, mV
    shown = ("valid_rmse", "test_auc", "test_rmse", "test_released_auc", "test_released_rmse")

    def __init__(self, folder: str | Path, batch_size: int, seed: int, *, window_ms: int, burn_in_ms: int) -> None:
        self.sizes(window_ms, burn_in_ms)
        self.folder, self.window_ms, self.burn_in_ms = Path(folder), window_ms, burn_in_ms
        self._windows = Windows(self.split("train"), window_ms=window_ms, batch_size=batch_size, seed=seed)
        self._valid: tuple[SimulationSet, list[Batch] | None, list[np.ndarray]] | None = None

    @staticmethod
    def sizes(window_ms: int, burn_in_ms: int) -> dict[str, int]:
        """What a model of this task needs."""
        if not 0 <= burn_in_ms < window_ms:
            raise ConfigError(
                f"params.yaml: task.burn_in_ms = {burn_in_ms}: must be below task.window_ms = {window_ms}"
            )
        return {"input_size": N_CHANNELS, "d_o": 2}

    @staticmethod
    def steps(window_ms: int, burn_in_ms: int) -> int:
        """Time steps of a sample, for FLOPs."""
        return window_ms

    def split(self, name: str) -> SimulationSet:
        return SimulationSet(self.folder / name)

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of that name, whoever asks and in whatever order."""
        return self._windows.batch(epoch, step)

    def resident(self, device: str) -> Resident | None:
        """The training set on that device, if it takes less than half of its free memory and has one length."""
        simulations = self._windows.simulations
        with _loading:
            if (str(self.folder), device) not in _resident:
                lengths = {simulations.duration_ms(n) for n in range(len(simulations))}
                free, _ = torch.cuda.mem_get_info(device)
                if len(lengths) > 1 or Resident.size(simulations) > free / 2:
                    return None
                _resident[str(self.folder), device] = Resident(simulations, device)
                torch.cuda.synchronize(device)  # whole before runs on other streams read it
            return _resident[str(self.folder), device]

    def first_rows(self, epoch: int, steps: int) -> Tensor:
        """Where the windows of an epoch's batches start in the resident set, int64 (steps, B)."""
        draws = [self._windows.draw(epoch, step) for step in range(steps)]
        indices, starts = (torch.from_numpy(np.stack(a)) for a in zip(*draws))
        return indices * self._windows.simulations.duration_ms(0) + starts

    def loss(self, model: nn.Module, batch: Batch | DenseBatch) -> Tensor:
        """0.5 BCE(spike) + 0.5 MSE(scaled voltage), after the burn-in of each window."""
        y, _ = model(batch.x)
        logit, soma = y[:, self.burn_in_ms :].unbind(-1)
        spike, voltage = batch.spike[:, self.burn_in_ms :], batch.voltage[:, self.burn_in_ms :]
        return 0.5 * F.binary_cross_entropy_with_logits(logit, spike) + 0.5 * F.mse_loss(soma, voltage)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores for model selection."""
        if self._valid is None:
            simulations, device = self.split("valid"), next(model.parameters()).device
            few = range(len(simulations)) if len(simulations) <= CACHED else ()
            kept = [whole(simulations, n).to(device) for n in few] or None
            self._valid = simulations, kept, targets(simulations)
        return evaluate(model, *self._valid)["clean"]

    def test(self, model: nn.Module) -> dict[str, float]:
        """Every score on the validation and the test set, by both protocols: `test_auc`, `test_released_auc`, ..."""
        scores = {}
        for split in ("valid", "test"):
            for protocol, values in evaluate(model, self.split(split)).items():
                prefix = split if protocol == "clean" else f"{split}_{protocol}"
                scores |= {f"{prefix}_{name}": value for name, value in values.items()}
        return scores


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
    y = torch.cat([y[0], y[1:, WINDOW_MS - STRIDE_MS :].flatten(0, 1)])[: simulations.duration_ms(n)].double().cpu()
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
) -> list[np.ndarray]:
    """Predicted spike probability and voltage (mV), spikes and voltage (mV) of the targets: (n, duration_ms) each."""
    model.eval()
    predictions = zip(*(predict(model, simulations, n, batches and batches[n]) for n in range(len(simulations))))
    return [*(np.stack(a) for a in predictions), *(targets(simulations) if expected is None else expected)]


def targets(simulations: SimulationSet) -> list[np.ndarray]:
    """Spikes and voltage (mV) of every simulation, (n, duration_ms) each."""
    spike, voltage = (np.stack(a) for a in zip(*(simulations.targets(n) for n in range(len(simulations)))))
    return [spike, unscale_voltage(voltage.astype(np.float64))]


def score(p: np.ndarray, v: np.ndarray, spike: np.ndarray, voltage: np.ndarray) -> dict[str, dict[str, float]]:
    """What `predict_all` returns -> scores.

    clean     predictions as they are, every simulation
    released  the released evaluation, for numbers comparable with the published ones: the predicted voltage is shifted
              and scaled to the targets' overall mean and standard deviation, simulations with more than 24 output
              spikes are left out
    """
    clean = _scores(spike, p, voltage, v)
    spread = v.std()
    v = (v - v.mean()) / (spread if spread > 0 else 1.0) * voltage.std() + voltage.mean()
    kept = spike.sum(1) <= MOST_SPIKES
    return {"clean": clean, "released": _scores(spike[kept], p[kept], voltage[kept], v[kept])}


def _scores(spike: np.ndarray, p: np.ndarray, voltage: np.ndarray, v: np.ndarray) -> dict[str, float]:
    return spike_scores(spike[:, START_MS:], p[:, START_MS:]) | voltage_scores(voltage[:, START_MS:], v[:, START_MS:])
