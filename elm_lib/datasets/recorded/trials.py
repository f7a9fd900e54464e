"""What a user recorded, checked and put into steps: spike times in ms, voltage in mV, at any sampling step.

Each mistake is one sentence: it names the trial, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet, channel_sign
from elm_lib.datasets.recorded.schema import Recording
from elm_lib.support.errors import DataError

STEP_MS = 1.0  # of the model, where the voltage is sampled as often; as in NeuronIO
FINEST_MS, COARSEST_MS = 0.001, 20.0  # a sampling step outside is in another unit
LEAST_MV, MOST_MV = 1.5, 1000.0  # a voltage that stays below is in V; one that goes beyond is in uV
EARLY = 0.01  # spike times within this share of the trials are in s
ENOUGH = 20  # spikes to tell a unit from silence
EDGE = 1e-9  # steps: 0.3 / 0.1 is a bit below 3
CROSSED_MV = -20.0  # upward crossings are output spikes where none are given


def read_trials(
    inputs: Sequence[Any],
    voltage: Sequence[Any],
    spikes: Sequence[Any] | None,
    *,
    dt_ms: float,
    signs: Sequence[float],
    delta_t: float | None = None,
) -> Recording:
    """N trials with C synapses -> a recording in steps of delta_t.

    inputs   N lists of C arrays: times (ms) of the spikes that arrive at each synapse
    voltage  N arrays (T,): soma voltage (mV), sampled every dt_ms from time 0 on; T may differ
    spikes   N arrays: times (ms) of the output spikes; None: upward crossings of -20 mV
    signs    (C,) +1 for an excitatory, -1 for an inhibitory synapse
    delta_t  ms of a step of the model; None: 1 ms, or dt_ms where that is coarser
    A single trial may be given without the outer list. Raises DataError for data that cannot be right.
    """
    if not FINEST_MS < dt_ms <= COARSEST_MS:
        raise DataError(f"dt_ms = {dt_ms:g}: a sampling step must be above 0.001 and at most 20 ms: give it in ms")
    delta_t = max(STEP_MS, float(dt_ms)) if delta_t is None else float(delta_t)
    if not dt_ms <= delta_t <= COARSEST_MS:
        raise DataError(f"delta_t = {delta_t:g} ms: give a step from dt_ms = {dt_ms:g} to {COARSEST_MS:g} ms")
    if len(voltage) and np.ndim(voltage[0]) == 0:
        inputs, voltage, spikes = [inputs], [voltage], None if spikes is None else [spikes]
    if not len(voltage) or len(inputs) != len(voltage) or (spikes is not None and len(spikes) != len(voltage)):
        n = "none" if spikes is None else len(spikes)
        raise DataError(
            f"trials: {len(inputs)} of inputs, {len(voltage)} of voltage, {n} of spikes: give the same number of each, "
            "at least one"
        )
    volts = [_numbers(v, f"voltage of trial {k}", dt_ms) for k, v in enumerate(voltage)]
    _check_voltage(volts)
    sign = np.asarray(signs, np.float32).ravel()
    if not sign.size or not np.isin(sign, (-1, 1)).all():
        raise DataError("signs: give +1 for each excitatory and -1 for each inhibitory synapse, no other value")
    durations = [len(v) * float(dt_ms) for v in volts]
    events = [events_of(trial, len(sign), durations[k], k) for k, trial in enumerate(inputs)]
    if spikes is None:
        out = [_crossings(v, dt_ms) for v in volts]
        remedy = f"the voltage never crosses {CROSSED_MV:g} mV upward: give the times of the output spikes"
    else:
        out = [_times(t, f"output spikes of trial {k}", durations[k]) for k, t in enumerate(spikes)]
        remedy = "spikes cannot be learned without examples, so drive the neuron harder"
    _check_unit("inputs", [times for _, times in events], durations)
    _check_unit("spikes", out, durations)
    if not any(map(len, out)):
        raise DataError(f"no output spike in any trial: {remedy}")
    return _in_steps(events, volts, out, sign, float(dt_ms), delta_t)


def read_simulations(path: str | Path | Sequence[str | Path]) -> Recording:
    """Files of the project's own schema (`elm_lib.datasets.neuronio.schema`): a folder, a file, or a list of files."""
    simulations = SimulationSet(path)
    events, volts, out = [], [], []
    for file, k in simulations:
        row_ptr, channel, voltage, bins = file.window(k, 0, file.duration_ms)
        events.append((channel.astype(np.int64), np.repeat(np.arange(file.duration_ms), np.diff(row_ptr))))
        volts.append(voltage)
        out.append(bins + 0.5)  # the time that the rule of output spikes puts into this bin
    if not any(map(len, out)):
        raise DataError(f"{simulations.files[0].path}: no output spike in any simulation: simulate more")
    return _in_steps(events, volts, out, channel_sign(np.arange(N_CHANNELS)), 1.0, 1.0)


def stepped(events: tuple[np.ndarray, np.ndarray], signs: np.ndarray, steps: int, delta_t: float):
    """Input spikes (synapse, time in ms) of one trial -> row_ptr (steps + 1,), channel, value: see `Recording`."""
    synapse, times = events
    step = np.minimum((times / delta_t + EDGE).astype(np.int64), steps - 1)
    key, count = np.unique(step * len(signs) + synapse, return_counts=True)
    channel = key % len(signs)
    row_ptr = np.searchsorted(key, np.arange(steps + 1) * len(signs))
    return row_ptr, channel, (count * signs[channel]).astype(np.float32)


def _in_steps(events, volts, out, signs: np.ndarray, dt_ms: float, delta_t: float) -> Recording:
    row_ptr, channel, value, voltage, spike, n = [np.zeros(1, np.int64)], [], [], [], [], 0
    for trial, v, times in zip(events, volts, out, strict=True):
        steps = int(len(v) * dt_ms / delta_t + 1e-6)
        ptr, *entries = stepped(trial, signs, steps, delta_t)
        row_ptr.append(ptr[1:] + n)
        n += len(entries[0])
        channel.append(entries[0])
        value.append(entries[1])
        voltage.append(np.interp(np.arange(steps) * delta_t, np.arange(len(v)) * dt_ms, v).astype(np.float32))
        spike.append(np.zeros(steps, bool))
        spike[-1][np.clip(np.trunc(times / delta_t - 0.5 + EDGE).astype(np.int64), 0, steps - 1)] = True
    first = np.cumsum([0, *map(len, voltage)])
    row_ptrs, channels, values, voltages, spiked = map(np.concatenate, (row_ptr, channel, value, voltage, spike))
    sign = np.asarray(signs, np.float32)
    return Recording(row_ptrs, channels, values, voltages, spiked, first.astype(np.int64), sign, delta_t)


def events_of(trial: Sequence[Any], n_synapses: int, duration_ms: float, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Spike times (ms) of each synapse in trial k -> (synapse, time). Raises DataError as `read_trials` does."""
    if len(trial) != n_synapses:
        raise DataError(
            f"inputs of trial {k} have {len(trial)} synapses, signs has {n_synapses}: give a list of spike times for "
            "each synapse, empty for a silent one"
        )
    times = [np.asarray(spikes, np.float64).ravel() for spikes in trial]
    synapse = np.repeat(np.arange(n_synapses), [len(t) for t in times])
    return synapse, _times(np.concatenate(times), f"inputs of trial {k}", duration_ms)


def _times(times: Any, what: str, duration_ms: float) -> np.ndarray:
    times = np.asarray(times, np.float64).ravel()
    wrong = ~((times >= 0) & (times <= duration_ms))
    if wrong.any():
        raise DataError(
            f"{what}: a spike at {times[wrong][0]:g} ms, outside the {duration_ms:g} ms of its voltage: give times "
            "from the start of the trial in ms, and dt_ms in ms"
        )
    return times


def _numbers(values: Any, what: str, dt_ms: float) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not values.size:
        raise DataError(f"{what} has shape {values.shape}: give one value (mV) for each sampling step")
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise DataError(
            f"{what} is {values[wrong][0]} at {dt_ms * int(np.argmax(wrong)):g} ms: leave the trial out, or correct it"
        )
    return values


def _check_voltage(volts: list[np.ndarray]) -> None:
    low, high = min(v.min() for v in volts), max(v.max() for v in volts)
    if low == high:
        raise DataError(f"the voltage is {low:g} mV throughout: nothing can be learned from it")
    if max(-low, high) < LEAST_MV:
        raise DataError(f"the voltage lies between {low:g} and {high:g}, so it cannot be in mV: multiply V by 1000")
    if max(-low, high) > MOST_MV:
        raise DataError(f"the voltage lies between {low:g} and {high:g}, so it cannot be in mV: divide uV by 1000")


def _check_unit(what: str, times: list[np.ndarray], durations: list[float]) -> None:
    number = sum(map(len, times))
    if not number and what == "inputs":
        raise DataError("inputs: no spike at any synapse in any trial: give the spikes that the neuron received")
    latest = max((t.max() / duration for t, duration in zip(times, durations, strict=True) if len(t)), default=1.0)
    if number >= ENOUGH and latest < EARLY:
        raise DataError(
            f"{what}: all {number} spikes lie in the first {100 * latest:.2g} % of the trials, so their times cannot "
            "be in ms: multiply s by 1000"
        )


def _crossings(voltage: np.ndarray, dt_ms: float) -> np.ndarray:
    above = voltage > CROSSED_MV
    return (np.flatnonzero(~above[:-1] & above[1:]) + 1) * float(dt_ms)
