"""A recording in an NWB file (Neurodata Without Borders, doi:10.7554/eLife.78362), read by pynwb.

    acquisition   soma voltage as CurrentClampSeries (or any TimeSeries in volts, named by `series`): each is a trial,
                  or where the file has a table of trials, each of those is one
    units         a row each synapse: its spike_times, and in the column `sign` +1 excitatory or -1 inhibitory. A row of
                  sign 0 has the output spikes of the recorded neuron; without it they are upward crossings of -20 mV

NWB has times in s and voltages in V. Needs `pip install '.[fit,nwb]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elm_lib.support.errors import DataError

SIGN = "sign"  # column of the units
REGULAR = 1e-3  # relative difference of sampling steps that count as one
VOLTS = ("volts", "volt", "V")


def read_nwb(path: str | Path, *, series: str | Sequence[str] | None = None) -> dict[str, Any]:
    """The arguments of `elm_lib.fit` that hold data: inputs, voltage, spikes, dt_ms, signs.

    series  name of the voltage in `acquisition`, or several names; None: every CurrentClampSeries, by time
    Raises DataError where the file lacks a part, or its voltage is not sampled at one step.
    """
    try:
        from pynwb import NWBHDF5IO
    except ImportError:
        remedy = "call pip install '.[fit,nwb]' in the folder of the project"
        raise DataError(f"{path}: to read NWB files, {remedy}") from None
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with NWBHDF5IO(str(path), "r") as io:
            file = io.read()
            signs, trains, output = _units(path, file.units)
            sweeps = _sweeps(path, file, [series] if isinstance(series, str) else series)
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: pynwb cannot read it ({reason}): check it with `pynwb-validate`") from None
    steps = np.array([step for _, step, _ in sweeps])
    if np.ptp(steps) > REGULAR * steps.min():
        raise DataError(
            f"{path}: sampling steps differ, from {steps.min():g} to {steps.max():g} s: resample all at one"
        )
    ends = [start + len(volts) * step for start, step, volts in sweeps]
    starts = [start for start, _, _ in sweeps]
    return {
        "inputs": [[_within(t, a, b) for t in trains] for a, b in zip(starts, ends, strict=True)],
        "voltage": [1000 * volts for _, _, volts in sweeps],
        "spikes": None if output is None else [_within(output, a, b) for a, b in zip(starts, ends, strict=True)],
        "dt_ms": 1000 * float(steps.mean()),
        "signs": signs,
    }


def _units(path: Path, units: Any) -> tuple[np.ndarray, list[np.ndarray], np.ndarray | None]:
    """Signs and spike times (s) of the synapses, and output spikes (s)."""
    if units is None or SIGN not in units.colnames or "spike_times" not in units.colnames:
        raise DataError(
            f"{path}: needs a table `units` with spike_times and a column `{SIGN}`: give one row for each synapse, "
            "with +1 if it is excitatory and -1 if it is inhibitory, and 0 for the recorded neuron"
        )
    signs = np.asarray(units[SIGN][:], np.float64)
    trains = [np.asarray(units["spike_times"][k], np.float64) for k in range(len(units))]
    own = np.flatnonzero(signs == 0)
    if len(own) > 1:
        raise DataError(
            f"{path}: units {own.tolist()} have {SIGN} 0, which marks the recorded neuron: only one unit can have it"
        )
    kept = np.flatnonzero(signs != 0)
    return signs[kept], [trains[k] for k in kept], trains[own[0]] if len(own) else None


def _sweeps(path: Path, file: Any, names: Sequence[str] | None) -> list[tuple[float, float, np.ndarray]]:
    """Start (s), sampling step (s) and voltage (V) of each trial, by time."""
    from pynwb.icephys import CurrentClampSeries

    there = dict(file.acquisition.items())
    if names is None:
        names = [name for name, one in there.items() if isinstance(one, CurrentClampSeries)]
    if not names or set(names) - set(there):
        raise DataError(
            f"{path}: no soma voltage {list(names) or 'as CurrentClampSeries'} in acquisition, which has "
            f"{sorted(there)}: name it in data = read_nwb(path, series=NAME), then call elm_lib.fit(**data)"
        )
    found = sorted((_series(path, name, there[name]) for name in names), key=lambda sweep: sweep[0])
    if file.trials is None:
        return found
    cut = []
    for start, stop in zip(file.trials["start_time"][:], file.trials["stop_time"][:], strict=True):
        for first, step, volts in found:
            a, b = (round((time - first) / step) for time in (start, stop))
            if 0 <= a < b <= len(volts):
                cut.append((first + a * step, step, volts[a:b]))
    if not cut:
        raise DataError(
            f"{path}: none of its {len(file.trials)} trials lies within the voltage {list(names)}: check start_time "
            "and stop_time"
        )
    return cut


def _series(path: Path, name: str, series: Any) -> tuple[float, float, np.ndarray]:
    if series.unit not in VOLTS:
        raise DataError(f"{path}: acquisition/{name} is in {series.unit!r}: a soma voltage is in volts")
    volts = np.asarray(series.data[:], np.float64) * series.conversion + series.offset
    if series.rate:
        return float(series.starting_time or 0.0), 1 / float(series.rate), volts
    times = np.asarray(series.timestamps[:], np.float64)
    steps = np.diff(times)
    if len(steps) < 1 or np.ptp(steps) > REGULAR * steps.mean():
        raise DataError(f"{path}: acquisition/{name} has irregular timestamps: resample it at equal steps")
    return float(times[0]), float(steps.mean()), volts


def _within(times: np.ndarray, start: float, stop: float) -> np.ndarray:
    """Those from start on and before stop (s), as ms from start."""
    return 1000 * (times[(times >= start) & (times < stop)] - start)
