"""`batches.read_batch` compiled by numba: a thread that reads ahead with it leaves the interpreter to the one that
trains.

What other files define comes in by the table: numba's cache watches this file alone.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numba import types

from elm_lib.datasets.neuronio.schema import N_CHANNELS, SOMA_BIAS_MV, SOMA_CAP_MV, SOMA_SCALE_MV, SimulationSet
from elm_lib.support.compiled import njit_cached

READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
compiled = njit_cached(nogil=True, error_model="numpy")

_open = types.ExternalFunction("open", types.int32(types.uintp, types.int32))
_close = types.ExternalFunction("close", types.int32(types.int32))
_pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


class Table(NamedTuple):
    """What `read` needs to know of F files with N simulations."""

    paths: np.ndarray  # uint8, each ended by a 0
    path_at: np.ndarray  # int64 (F,) where each starts
    offsets: np.ndarray  # int64 (F, 3) bytes from the start of the file: indptr, channel, voltage
    duration_ms: np.ndarray  # int64 (F,)
    n_spikes: np.ndarray  # int64 (F,)
    where: np.ndarray  # int64 (N, 2) file, number in it
    bin_ptr: np.ndarray  # int64 (N + 1,)
    bins: np.ndarray  # int32, ms of the output spikes
    scale: np.ndarray  # float32 (3,) mV: cap, bias and scale of `schema.scale_voltage`
    n_channels: int


def table(simulations: SimulationSet) -> Table:
    files = simulations.files
    names = [os.fsencode(file.path.absolute()) + b"\0" for file in files]
    number = {id(file): k for k, file in enumerate(files)}
    where = [(number[id(file)], k) for file, k in simulations]
    bins = [file.output_bins[file.output_indptr[k] : file.output_indptr[k + 1]] for file, k in simulations]
    return Table(
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([0, *map(len, names[:-1])]),
        np.array(
            [[file.offsets[name] for name in ("spikes/indptr", "spikes/channel", "soma_voltage")] for file in files]
        ),
        np.array([file.duration_ms for file in files]),
        np.array([file.n_spikes for file in files]),
        np.array(where, np.int64).reshape(-1, 2),
        np.cumsum([0, *map(len, bins)]),
        np.concatenate([*bins, np.zeros(0, np.int32)]).astype(np.int32),
        np.array([SOMA_CAP_MV, SOMA_BIAS_MV, SOMA_SCALE_MV], np.float32),
        N_CHANNELS,
    )


@compiled
def _fill(descriptor, into, offset):
    size = into.size * into.itemsize
    return _pread(descriptor, into.ctypes.data, size, offset) == size


@compiled
def _read_window(descriptor, table, n, start, stop, row_ptr, channel, sign, spike, voltage):
    """One window; row_ptr starts with the number of spikes so far. False where `Simulations.window` has to say what is
    wrong."""
    file, k = table.where[n]
    duration = table.duration_ms[file]
    steps, before = stop - start, row_ptr[0]
    if not _fill(descriptor, row_ptr[: steps + 1], table.offsets[file, 0] + 8 * (k * (duration + 1) + start)):
        return channel, sign, False
    first, last = row_ptr[0], row_ptr[steps]
    if not 0 <= first <= last <= table.n_spikes[file] or last - first > steps * table.n_channels:
        return channel, sign, False
    for t in range(steps):
        if row_ptr[t + 1] < row_ptr[t]:
            return channel, sign, False
    for t in range(steps + 1):
        row_ptr[t] += before - first
    for t in range(steps, len(spike)):
        row_ptr[t + 1] = row_ptr[steps]

    found = np.empty(last - first, np.uint16)
    if not _fill(descriptor, found, table.offsets[file, 1] + 2 * first):
        return channel, sign, False
    if before + len(found) > len(channel):  # room for twice as many
        more, more_signs = (
            np.empty(2 * (before + len(found)), np.int64),
            np.empty(2 * (before + len(found)), np.float32),
        )
        more[:before] = channel[:before]
        more_signs[:before] = sign[:before]
        channel, sign = more, more_signs
    for i in range(len(found)):
        if found[i] >= table.n_channels:
            return channel, sign, False
        channel[before + i] = found[i]
        sign[before + i] = np.float32(1) - np.float32(2) * np.float32(found[i] & 1)

    if not _fill(descriptor, voltage[:steps], table.offsets[file, 2] + 4 * (k * duration + start)):
        return channel, sign, False
    cap, bias, scale = table.scale[0], table.scale[1], table.scale[2]
    for t in range(steps):
        if not np.isfinite(voltage[t]):
            return channel, sign, False
        voltage[t] = (min(voltage[t], cap) - bias) / scale
    for i in range(table.bin_ptr[n], table.bin_ptr[n + 1]):
        if start <= table.bins[i] < stop:
            spike[table.bins[i] - start] = 1
    return channel, sign, True


@compiled
def read(table, indices, starts_ms, window_ms):
    """The windows as (whether all is well, row_ptr, channel, sign, spike, voltage), see `batches.Batch`."""
    n, ok = len(indices), True
    row_ptr = np.zeros(n * window_ms + 1, np.int64)
    channel, sign = np.empty(32 * n * window_ms, np.int64), np.empty(32 * n * window_ms, np.float32)
    spike, voltage = np.zeros((n, window_ms), np.float32), np.zeros((n, window_ms), np.float32)
    for b in range(n):
        file = table.where[indices[b], 0]
        path = table.paths[table.path_at[file] :].ctypes.data
        descriptor = _open(path, READ_ONLY)  # type: ignore[call-overload]  # compiled, it is the function of libc
        ok = descriptor >= 0
        if ok:
            stop = min(starts_ms[b] + window_ms, table.duration_ms[file])
            rows = row_ptr[b * window_ms : (b + 1) * window_ms + 1]
            channel, sign, ok = _read_window(
                descriptor, table, indices[b], starts_ms[b], stop, rows, channel, sign, spike[b], voltage[b]
            )
            _close(descriptor)
        if not ok:
            break
    return ok, row_ptr, channel[: row_ptr[-1]].copy(), sign[: row_ptr[-1]].copy(), spike, voltage
