"""NeuronIO on disk: the input spikes of a layer-5 pyramidal cell and what its soma did with them.

Generated and real data share this schema (`neuronio`, version 1); readers see no difference. One HDF5 file is one
batch of simulations of equal length, at 1 ms resolution:

    attributes       schema="neuronio", version=1, source="generated"|"real", provenance (JSON, sorted keys),
                     n_simulations (N), duration_ms (D), dt_ms=1.0
    spikes/indptr    int64   (N, D + 1)  offsets into spikes/channel: the spikes of simulation n in ms t are
                                         channel[indptr[n, t] : indptr[n, t + 1]], ascending, each at most once
    spikes/channel   uint16  (n_spikes,) 2 * segment + (0 excitatory | 1 inhibitory), segment 0..638: 262 basal
                                         segments, then 377 apical ones
    soma_voltage     float32 (N, D)      mV, neither capped nor scaled, at whole ms 0..D-1
    output/indptr    int64   (N + 1,)    offsets into output/bin
    output/bin       int32   (n_out,)    ms bin of each output spike, int(time_ms - 0.5), ascending, each at most once

Every dataset is contiguous and uncompressed, so a window is a few plain reads at known offsets: HDF5 is opened once a
file, to check it, and never while training. The bytes of a file depend on its content alone.

The channel order and the binary input follow Beniaguev et al. (2021), doi:10.1016/j.neuron.2021.07.002.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from elm_lib.support.errors import DataError
from elm_lib.support.hdf5 import reading

SCHEMA = "neuronio"
VERSION = 1
N_CHANNELS = 1278  # 639 dendritic segments, each with an excitatory and an inhibitory synapse

SOMA_CAP_MV = -55.0  # mV: action potentials are cut off, the spike target carries them
SOMA_BIAS_MV = -67.7  # mV: about the mean of the capped voltage
SOMA_SCALE_MV = 10.0  # mV per unit of the target

# name -> (dtype, shape as a function of (n_simulations, duration_ms), None where the file decides)
DATASETS = {
    "spikes/indptr": ("<i8", lambda n, d: (n, d + 1)),
    "spikes/channel": ("<u2", None),
    "soma_voltage": ("<f4", lambda n, d: (n, d)),
    "output/indptr": ("<i8", lambda n, d: (n + 1,)),
    "output/bin": ("<i4", None),
}
_REMAKE = "delete it and run the stage that makes it again"


def scale_voltage(voltage_mv: np.ndarray) -> np.ndarray:
    """Soma voltage in mV -> the training target: capped at -55 mV, shifted and scaled (same shape, unitless)."""
    return (np.minimum(voltage_mv, SOMA_CAP_MV) - SOMA_BIAS_MV) / SOMA_SCALE_MV


def unscale_voltage(target: np.ndarray) -> np.ndarray:
    """The inverse of `scale_voltage` below the cap: a target or a model's output -> mV (same shape)."""
    return target * SOMA_SCALE_MV + SOMA_BIAS_MV


def check_finite(path: Path, voltage_mv: np.ndarray, first_simulation: int = 0, first_ms: int = 0) -> None:
    """DataError naming file, simulation and ms of the first value of voltage_mv (n, T) that is not finite."""
    finite = np.isfinite(voltage_mv)
    if not finite.all():
        n, t = np.argwhere(~finite)[0]
        raise DataError(
            f"{path}: soma_voltage of simulation {first_simulation + n} "
            f"at {first_ms + t} ms is {voltage_mv[n, t]}: {_REMAKE}"
        )


@dataclass(frozen=True, eq=False)
class Simulations:
    """One checked file. Holds offsets, not open files: cheap to keep by the thousand, to pickle and to fork.

    indptr, channel and soma_voltage are mapped from disk at each access; output_indptr and output_bins are small and
    in memory.
    """

    path: Path
    source: str  # "generated" or "real"
    provenance: dict
    n_simulations: int
    duration_ms: int
    n_spikes: int
    offsets: dict[str, int]  # bytes from the start of the file
    output_indptr: np.ndarray  # int64 (N + 1,)
    output_bins: np.ndarray  # int32 (n_out,) ms

    @property
    def indptr(self) -> np.ndarray:
        """int64 (N, D + 1): offsets into channel, see the module's docstring."""
        return self._map("spikes/indptr", (self.n_simulations, self.duration_ms + 1))

    @property
    def channel(self) -> np.ndarray:
        """uint16 (n_spikes,)"""
        return self._map("spikes/channel", (self.n_spikes,))

    @property
    def soma_voltage(self) -> np.ndarray:
        """float32 (N, D) mV, neither capped nor scaled."""
        return self._map("soma_voltage", (self.n_simulations, self.duration_ms))

    def window(self, n: int, t0: int, t1: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Simulation n from ms t0 up to t1 (T = t1 - t0), checked as it is read.

        Returns row_ptr int64 (T + 1,) starting at 0, channel uint16 (row_ptr[-1],), voltage float32 (T,) mV, and the
        output spikes' bins int32, counted from t0. Raises DataError for damaged or non-finite content.
        """
        if not (0 <= n < self.n_simulations and 0 <= t0 < t1 <= self.duration_ms):
            raise IndexError(
                f"{self.path}: no simulation {n}, {t0}..{t1} ms: it has {self.n_simulations} of {self.duration_ms} ms"
            )
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be opened any more ({error.strerror}): restore it") from None
        try:
            row_ptr = self._read(descriptor, "spikes/indptr", n * (self.duration_ms + 1) + t0, t1 - t0 + 1)
            start, stop = int(row_ptr[0]), int(row_ptr[-1])
            row_ptr = row_ptr - start
            if not 0 <= start <= stop <= self.n_spikes or (np.diff(row_ptr) < 0).any():
                raise DataError(f"{self.path}: spikes/indptr of simulation {n} is damaged: {_REMAKE}")
            channel = self._read(descriptor, "spikes/channel", start, stop - start)
            voltage = self._read(descriptor, "soma_voltage", n * self.duration_ms + t0, t1 - t0)
        finally:
            os.close(descriptor)
        if channel.size and channel.max() >= N_CHANNELS:
            raise DataError(f"{self.path}: spikes/channel holds {channel.max()}, above {N_CHANNELS - 1}: {_REMAKE}")
        if not np.isfinite(voltage).all():
            check_finite(self.path, voltage[None], n, t0)
        bins = self.output_bins[self.output_indptr[n] : self.output_indptr[n + 1]]
        return row_ptr, channel, voltage, bins[(bins >= t0) & (bins < t1)] - t0

    def verify(self) -> Simulations:
        """Read everything once and check every value; returns self. DataError as in `window`."""
        for n in range(self.n_simulations):
            self.window(n, 0, self.duration_ms)
        return self

    def _map(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        dtype = np.dtype(DATASETS[name][0])
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(self.path, dtype, "r", self.offsets[name], shape)

    def _read(self, descriptor: int, name: str, start: int, count: int) -> np.ndarray:
        dtype = np.dtype(DATASETS[name][0])
        size = count * dtype.itemsize
        data = os.pread(descriptor, size, self.offsets[name] + start * dtype.itemsize)
        if len(data) != size:
            raise DataError(f"{self.path}: ends inside {name}, truncated since it was opened: {_REMAKE}")
        return np.frombuffer(data, dtype)


def open_simulations(path: str | Path) -> Simulations:
    """Open one file and check its structure; values are checked as they are read (all of them by `verify`).

    Raises DataError (file and remedy) if it is missing, truncated, or not of this schema and version.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file: run the stage that makes it (`dvc repro`)")
    with reading(path, f"schema {SCHEMA}", _REMAKE) as file:
        return _open(path, file)


def _open(path: Path, file: h5py.File) -> Simulations:
    schema, version = file.attrs.get("schema"), file.attrs.get("version")
    if (schema, version) != (SCHEMA, VERSION):
        raise DataError(f"{path}: schema {schema} version {version}, not {SCHEMA} version {VERSION}: {_REMAKE}")
    n, d = int(file.attrs["n_simulations"]), int(file.attrs["duration_ms"])
    offsets = {}
    for name, (dtype, shape) in DATASETS.items():
        dataset = file[name]
        expected = shape(n, d) if shape else (dataset.size,)
        if dataset.dtype != np.dtype(dtype) or dataset.shape != expected:
            raise DataError(f"{path}: {name} is {dataset.dtype} {dataset.shape}, not {dtype} {expected}: {_REMAKE}")
        offset = dataset.id.get_offset()
        if dataset.size and offset is None:
            raise DataError(f"{path}: {name} is chunked, not contiguous: {_REMAKE}")
        offsets[name] = offset or 0
    output_indptr, output_bins = file["output/indptr"][()], file["output/bin"][()]
    if output_indptr[0] != 0 or (np.diff(output_indptr) < 0).any() or output_indptr[-1] != output_bins.size:
        raise DataError(f"{path}: output/indptr is damaged: {_REMAKE}")
    if output_bins.size and not (output_bins.min() >= 0 and output_bins.max() < d):
        raise DataError(f"{path}: output/bin is outside 0..{d - 1} ms: {_REMAKE}")
    return Simulations(
        path,
        str(file.attrs["source"]),
        json.loads(file.attrs["provenance"]),
        n,
        d,
        file["spikes/channel"].size,
        offsets,
        output_indptr,
        output_bins,
    )


class SimulationSet:
    """Several files seen as one list of simulations, in the order of their names (or of the list given).

    paths: a folder (its *.h5), one file, or a list of files. `len()` counts simulations; item n is (file, index in it).
    """

    def __init__(self, paths: str | Path | Iterable[str | Path]):
        if isinstance(paths, (str, Path)):
            folder = Path(paths)
            if not folder.exists():
                raise DataError(f"{folder}: no such folder: run the stage that makes it (`dvc repro`)")
            paths = sorted(folder.glob("*.h5")) if folder.is_dir() else [folder]
            if not paths:
                raise DataError(f"{folder}: no *.h5 file in it: run the stage that fills it (`dvc repro`)")
        self.files = tuple(open_simulations(path) for path in paths)
        if not self.files:
            raise DataError("no NeuronIO file was given: name a folder or at least one file")
        self._where = [(file, n) for file in self.files for n in range(file.n_simulations)]

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, n: int) -> tuple[Simulations, int]:
        return self._where[n]

    def __iter__(self) -> Iterator[tuple[Simulations, int]]:
        return iter(self._where)

    @property
    def source(self) -> str:
        """ "generated" or "real"; DataError if the files disagree, since results must say which."""
        sources = sorted({file.source for file in self.files})
        if len(sources) != 1:
            raise DataError(
                f"{self.files[0].path.parent}: files of sources {sources} mixed: keep each in its own folder"
            )
        return sources[0]

    def duration_ms(self, n: int) -> int:
        return self._where[n][0].duration_ms

    def dense(self, n: int, t0: int = 0, t1: int | None = None) -> np.ndarray:
        """Input of simulation n, ms t0 up to t1 (default: its end): float32 (T, 1278), +1 excitatory, -1 inhibitory."""
        file, k = self._where[n]
        row_ptr, channel, _, _ = file.window(k, t0, file.duration_ms if t1 is None else t1)
        x = np.zeros((len(row_ptr) - 1, N_CHANNELS), np.float32)
        x[np.repeat(np.arange(len(x)), np.diff(row_ptr)), channel] = channel_sign(channel)
        return x

    def targets(self, n: int, t0: int = 0, t1: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Targets of simulation n: spike 0/1 float32 (T,) and scaled voltage float32 (T,), see `scale_voltage`."""
        file, k = self._where[n]
        _, _, voltage, bins = file.window(k, t0, file.duration_ms if t1 is None else t1)
        spike = np.zeros(len(voltage), np.float32)
        spike[bins] = 1.0
        return spike, scale_voltage(voltage)


def channel_sign(channel: np.ndarray) -> np.ndarray:
    """float32, same shape: +1 for an excitatory (even) channel, -1 for an inhibitory (odd) one."""
    return np.float32(1) - np.float32(2) * (channel & 1).astype(np.float32)
