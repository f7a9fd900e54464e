"""Write NeuronIO files: see `elm_lib.datasets.neuronio.schema` for what is in them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from elm_lib.datasets.neuronio.schema import DATASETS, N_CHANNELS, SCHEMA, VERSION, check_finite
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_atomically

_UNITS = {"spikes/channel": "channel", "soma_voltage": "mV", "output/bin": "ms"}


def write_simulations(
    path: str | Path,
    *,
    spikes: Sequence[tuple[np.ndarray, np.ndarray]],
    soma_voltage: np.ndarray,
    output_spikes_ms: Sequence[np.ndarray],
    source: str,
    provenance: dict,
) -> None:
    """Write one batch of simulations, atomically: a killed writer leaves no file of this name.

    path:              the file to make; its folder is made if missing.
    spikes:            N pairs (channel, time_ms), any order; times are whole ms in 0..D-1. The input is binary: a spike
                       that occurs twice in one channel and ms is kept once.
    soma_voltage:      (N, D) mV
    output_spikes_ms:  N arrays of times in ms
    source:            "generated" or "real"
    provenance:        what made the data; anything JSON can hold

    Raises DataError (naming file, simulation and value) for values outside their range, NaN, or a full disk.
    """
    path = Path(path)
    soma_voltage = np.ascontiguousarray(soma_voltage, dtype=np.float32)
    n_simulations, duration_ms = soma_voltage.shape
    if source not in ("generated", "real"):
        raise ValueError(f"source={source!r}: must be 'generated' or 'real'")
    if not len(spikes) == len(output_spikes_ms) == n_simulations:
        raise ValueError(f"{len(spikes)} spike lists, {len(output_spikes_ms)} output lists, {n_simulations} voltages")
    check_finite(path, soma_voltage)

    outputs = [_output_bins(path, n, times, duration_ms) for n, times in enumerate(output_spikes_ms)]
    boundaries = np.arange(duration_ms + 1, dtype=np.int64) * N_CHANNELS  # first key of each ms
    indptr = np.zeros((n_simulations, duration_ms + 1), np.int64)
    channels, n_spikes = [np.zeros(0, np.uint16)], 0
    for n, (channel, time_ms) in enumerate(spikes):
        keys = _spike_keys(path, n, channel, time_ms, duration_ms)
        indptr[n] = n_spikes + np.searchsorted(keys, boundaries)
        channels.append((keys % N_CHANNELS).astype(np.uint16))
        n_spikes += len(keys)

    arrays = {
        "spikes/indptr": indptr,
        "spikes/channel": np.concatenate(channels),
        "soma_voltage": soma_voltage,
        "output/indptr": np.cumsum([0] + [len(bins) for bins in outputs]),
        "output/bin": np.concatenate(outputs),
    }
    image = io.BytesIO()
    # aligned datasets can be memory-mapped as typed arrays
    with h5py.File(image, "w", alignment_threshold=1, alignment_interval=64) as file:
        file.attrs["schema"] = SCHEMA
        file.attrs["version"] = VERSION
        file.attrs["source"] = source
        file.attrs["provenance"] = json.dumps(provenance, sort_keys=True, allow_nan=False)
        file.attrs["n_simulations"] = n_simulations
        file.attrs["duration_ms"] = duration_ms
        file.attrs["dt_ms"] = 1.0
        for name, (dtype, _) in DATASETS.items():
            dataset = file.create_dataset(name, data=arrays[name].astype(dtype, copy=False), track_times=False)
            if name in _UNITS:
                dataset.attrs["units"] = _UNITS[name]
    write_atomically(path, image.getbuffer())


def _spike_keys(path: Path, n: int, channel: np.ndarray, time_ms: np.ndarray, duration_ms: int) -> np.ndarray:
    """Input spikes -> sorted, unique keys time_ms * 1278 + channel (int64), after checking both."""
    channel, time_ms = np.asarray(channel), np.asarray(time_ms)
    if channel.shape != time_ms.shape or channel.ndim != 1:
        raise ValueError(
            f"{path}: simulation {n}: channel {channel.shape} and time_ms {time_ms.shape} must be 1-D alike"
        )
    for name, values, end in (("channel", channel, N_CHANNELS), ("spike time in ms", time_ms, duration_ms)):
        wrong = ~((values >= 0) & (values < end) & (values == np.floor(values)))
        if wrong.any():
            raise DataError(f"{path}: simulation {n}: {name} {values[wrong][0]} is not a whole number in 0..{end - 1}")
    return np.unique(time_ms.astype(np.int64) * N_CHANNELS + channel.astype(np.int64))


def _output_bins(path: Path, n: int, times_ms: np.ndarray, duration_ms: int) -> np.ndarray:
    """Output spike times in ms -> sorted, unique bins (int32), after checking them."""
    times_ms = np.asarray(times_ms, dtype=np.float64).reshape(-1)
    wrong = ~((times_ms >= 0) & (times_ms < duration_ms + 0.5))
    if wrong.any():
        raise DataError(f"{path}: simulation {n}: output spike at {times_ms[wrong][0]} ms, outside 0..{duration_ms} ms")
    return np.unique(output_bin(times_ms))


def output_bin(time_ms: np.ndarray) -> np.ndarray:
    """Time of an output spike in ms -> its 1 ms bin, as in the released evaluation: int(time - 0.5)."""
    return np.trunc(np.asarray(time_ms, dtype=np.float64) - 0.5).astype(np.int32)
