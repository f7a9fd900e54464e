"""Sizes and training that suit a recording, where a user gives none.

They follow the column "Recommendation" of Table S1, and the proportions of NeuronIO: timescales to 100 ms, windows of
five times as long, of which three tenths are burn-in; 45 branches of 100 synapses for 1,278 inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from elm_lib.datasets.recorded.schema import AWAY_MS, BELOW_CAP, FEW, LEAST, Recording, away
from elm_lib.experiments.check import check_types
from elm_lib.models.cost import parameters
from elm_lib.models.registry import build
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.training.optimisation import Train

SHORTEST_MS, LONGEST_MS = 100.0, 500.0  # of the longest memory timescale at the start; the shorter one is NeuronIO's
WINDOW, BURN_IN = 5, 0.3  # windows in timescales, burn-in in windows
MANY_SYNAPSES = 100  # from here on they are summed on branches
SAMPLED = 3.5  # synapses on branches for each input: 2 to 5 are recommended
PER_PARAMETER = 4  # training steps, at least
D_M = 20  # of NeuronIO
TRAIN = {
    "optimizer": "adam",
    "lr": 5e-3,
    "batch_size": 8,
    "epochs": 10,
    "batches_per_epoch": 300,
    "clip_grad_norm": None,
}


@dataclass(frozen=True)
class Choices:
    """Lengths in steps; the neuron as the `model` entry of an experiment."""

    window: int
    burn_in: int
    model: dict[str, Any]
    train: Train


def choose(
    recording: Recording,
    *,
    window_ms: float | None = None,
    burn_in_ms: float | None = None,
    model: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
) -> Choices:
    """What is given, and choices for the rest.

    model, train  some of their keys
    Raises DataError for lengths that do not fit the recording, ConfigError for keys or values of model and train.
    """
    for name, length in (("window_ms", window_ms), ("burn_in_ms", burn_in_ms)):
        if length is not None and not math.isfinite(length):
            raise DataError(f"{name} = {length}: give a number of ms, or leave it out")
    step, durations = recording.delta_t, recording.durations
    most = int(durations.min() if len(durations) >= FEW else min(durations.min(), durations.sum() // LEAST))
    window = min(round(WINDOW * memory_ms(recording) / step), most) if window_ms is None else round(window_ms / step)
    burn_in = round(BURN_IN * window) if burn_in_ms is None else round(burn_in_ms / step)
    if not 0 <= burn_in < window <= most:
        raise DataError(
            f"window_ms = {window * step:g}, burn_in_ms = {burn_in * step:g}: the burn-in must be shorter than the "
            f"window, and the window at most {most * step:g} ms with these trials"
        )
    entry = _neuron(recording, window, (model or {}).get("kind")) | (model or {})
    check_types(entry)
    if "d_m" not in entry:
        entry["d_m"] = _d_m(entry, recording)
    try:
        training = Train.model_validate(TRAIN | (train or {}))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"train: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if training.accumulate > 1:
        raise ConfigError(f"train: accumulate = {training.accumulate}: a fit does not split batches, so leave it out")
    return Choices(window, burn_in, entry, training)


def memory_ms(recording: Recording) -> float:
    """How long the voltage remembers (ms): until its autocorrelation between action potentials is below 1/e, in the
    range of SHORTEST_MS to LONGEST_MS."""
    between = away(recording)
    v = np.minimum(recording.voltage, np.quantile(recording.voltage[between], BELOW_CAP)).astype(np.float64)
    v -= v.mean()
    trials = [v[a:b] for a, b in zip(recording.first[:-1], recording.first[1:], strict=True)]
    variance = float(np.mean(v**2)) or 1.0
    stride = max(1, round(AWAY_MS / recording.delta_t))
    for lag in range(stride, round(LONGEST_MS / recording.delta_t), stride):
        products = [trial[lag:] * trial[:-lag] for trial in trials if len(trial) > lag]
        if not products or float(np.mean(np.concatenate(products))) / variance < math.exp(-1):
            return max(SHORTEST_MS, lag * recording.delta_t)
    return LONGEST_MS


def _neuron(recording: Recording, window: int, kind: str | None) -> dict[str, Any]:
    longest = window * recording.delta_t / WINDOW
    entry: dict[str, Any] = {
        "kind": "elm",
        "l_mlp": 1,
        "lambda_": 5.0,
        "tau_m_range": [min(recording.delta_t, longest), longest],
        "tau_m_bounds": [0.0, WINDOW * longest],
        "tau_m_init": "logspace",
        "tau_s": max(5.0, recording.delta_t),
        "w_s": 0.5,
        "delta_t": recording.delta_t,
    }
    n = recording.n_synapses
    if (kind or ("elm" if n < MANY_SYNAPSES else "branch_elm")) != "branch_elm":
        return entry
    d_tree = round(1.26 * math.sqrt(n))
    return entry | {"kind": "branch_elm", "d_tree": d_tree, "d_brch": math.ceil(SAMPLED * n / d_tree)}


def _d_m(entry: dict[str, Any], recording: Recording) -> int:
    """As many memory units as NeuronIO's neuron has; fewer where the recording is too short for its parameters."""
    d_m = D_M
    while d_m > D_M // 8:
        found = parameters(build(entry | {"d_m": d_m}, input_size=recording.n_synapses, d_o=2))
        if PER_PARAMETER * found <= len(recording.spike):
            break
        d_m //= 2
    return d_m
