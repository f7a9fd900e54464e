"""A fitted neuron: one .safetensors file that holds weights, settings, scores and learning curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from elm_lib.datasets.recorded.task import Task, predict
from elm_lib.datasets.recorded.trials import events_of, stepped
from elm_lib.kernels.spikes import Spikes
from elm_lib.models.registry import build
from elm_lib.support.errors import DataError
from elm_lib.support.files import read_npz, write_atomically

NAME, VERSION = "elm_lib.fit", 1  # of the settings in the file


@dataclass(frozen=True, eq=False)
class Fitted:
    """What `elm_lib.fit` returns and `elm_lib.load_fit` reads.

    neuron    an `elm_lib.ELM` or `elm_lib.BranchELM`, batch first: spikes times signs (B, T, C) -> spike logit and
              scaled voltage (B, T, 2)
    settings  all else that it needs and that is known of it: model, train, options, target, signs, scores, curve, ...
    path      its file
    """

    neuron: nn.Module
    settings: dict[str, Any] = field(repr=False)
    path: Path

    @property
    def scores(self) -> dict[str, float]:
        """On trials that it was not trained on: `test_auc`, `test_rmse` (mV), ..., and the same of validation."""
        return self.settings["scores"]

    @property
    def curve(self) -> list[dict[str, float]]:
        """Learning curve, a row an epoch: epoch, step, train_loss, validation scores."""
        return self.settings["curve"]

    @property
    def held_out(self) -> dict[str, np.ndarray]:
        """The test trials one after another: p and v (mV) of the neuron, spike and voltage (mV) of the recording; first
        says where each begins. Raises DataError where the folder beside the file is gone."""
        return read_npz(self._beside("statistics.npz"))

    def predict(self, inputs: Sequence[Any], duration_ms: float) -> tuple[np.ndarray, np.ndarray]:
        """Spike probability and voltage (mV, capped) in each step of one trial, (T,) each.

        inputs       C arrays: times (ms) of the spikes at each synapse
        duration_ms  of the trial; T steps of `settings["delta_t"]`
        Raises DataError for another number of synapses, or for times outside the trial.
        """
        found, options = self.settings, self.settings["options"]
        signs, delta_t = np.asarray(found["signs"], np.float32), found["delta_t"]
        steps = int(duration_ms / delta_t + 1e-6)
        if steps < 1:
            raise DataError(f"duration_ms = {duration_ms}: must be at least one step, {delta_t:g} ms")
        entries = stepped(events_of(inputs, len(signs), duration_ms), signs, steps, delta_t)
        row_ptr, channel, value = map(torch.from_numpy, entries)
        x = Spikes(row_ptr, channel, value, (1, steps, len(signs)))
        p, v = predict(self.neuron, x, options["window"], options["burn_in"])
        return p, v * found["target"]["scale_mv"] + found["target"]["bias_mv"]

    def _beside(self, name: str) -> Path:
        path = self.path.with_suffix("") / name
        if not path.is_file():
            raise DataError(f"{path} is missing: keep the folder {path.parent.name} beside {self.path.name}")
        return path


def write(path: Path, weights: dict[str, Tensor], settings: dict[str, Any]) -> None:
    """Write the file, whole or not at all."""
    write_atomically(path, save(weights, {NAME: json.dumps({"version": VERSION, **settings})}))


def load_fit(path: str | Path) -> Fitted:
    """The fitted neuron of a file that `elm_lib.fit` wrote. Raises DataError for another or a damaged file.

    >>> p, v = load_fit("my_cell/0123456789abcdef.safetensors").predict(inputs, duration_ms=1000)
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file: give the .safetensors that `elm_lib.fit` wrote")
    try:
        with safe_open(path, "pt") as file:
            settings = json.loads((file.metadata() or {})[NAME])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
        if settings["version"] != VERSION:
            raise DataError(f"{path}: has version {settings['version']}, but this code reads {VERSION}: fit again")
        with torch.random.fork_rng(devices=[]):  # to build a neuron draws weights
            neuron = build(settings["model"], **Task.sizes(**settings["options"]))
        neuron.load_state_dict(weights)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a file of `elm_lib.fit` ({reason}): give the .safetensors it wrote") from None
    return Fitted(neuron.eval(), settings, path)
