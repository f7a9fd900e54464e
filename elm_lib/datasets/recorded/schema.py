"""A recorded neuron: input spikes with their signs, soma voltage and output spikes, in steps of equal length.

Trials lie one after another: row r is one step, and trial k has the rows first[k] up to first[k + 1]. The file is an
.npz of these arrays, and what it holds has one name, its `digest`.

A spike at time t falls into input step floor(t / delta_t). Voltage is that at whole multiples of delta_t. An output
spike falls into step int(t / delta_t - 0.5). At 1 ms these are the rules of NeuronIO
(`elm_lib.datasets.neuronio.schema`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from elm_lib.support.errors import DataError
from elm_lib.support.files import read_npz, write_npz

TRAIN, VALID, TEST = 0, 1, 2
PARTS = {"train": TRAIN, "valid": VALID, "test": TEST}
SHARE = 10  # one trial of so many is for validation, another one for the test
FEW, PIECES = 10, 20  # fewer trials than FEW are cut, into PIECES or so
LEAST = 5  # trials, or pieces of them, that make a training, a validation and a test set
AWAY_MS = 5.0  # from an output spike, the voltage is that between action potentials
BELOW_CAP = 0.999  # of that voltage; on NeuronIO this gives -55.2 mV, where the published cap is -55 mV
SPREADS = 3.1  # standard deviations of the voltage to a unit of the target; on NeuronIO 10 mV, as published


@dataclass(frozen=True, eq=False)
class Recording:
    """Trials in memory, R steps in all."""

    row_ptr: np.ndarray  # int64 (R + 1,) offsets into channel: the input of row r is row_ptr[r] up to row_ptr[r + 1]
    channel: np.ndarray  # int64 (n,) synapse of each entry
    value: np.ndarray  # float32 (n,) number of spikes times the sign of the synapse
    voltage: np.ndarray  # float32 (R,) mV
    spike: np.ndarray  # bool (R,) whether the neuron spikes
    first: np.ndarray  # int64 (N + 1,) row at which each trial begins; the end of the last
    signs: np.ndarray  # float32 (C,) +1 excitatory, -1 inhibitory
    delta_t: float  # ms of a step

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def n_synapses(self) -> int:
        return len(self.signs)

    @property
    def durations(self) -> np.ndarray:
        """Steps of each trial, int64 (N,)."""
        return np.diff(self.first)

    @property
    def digest(self) -> str:
        """sha256 of all that it holds."""
        found = hashlib.sha256()
        for entry in fields(self):
            array = np.asarray(getattr(self, entry.name))
            found.update(f"{entry.name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Prepared:
    """A recording made ready for training: which trials are for what, and how the voltage becomes a target."""

    recording: Recording
    part: np.ndarray  # int8 (N,) TRAIN, VALID or TEST of each trial
    cap_mv: float  # action potentials are cut off here, as the spike target carries them
    bias_mv: float
    scale_mv: float  # mV to a unit of the target

    def trials(self, part: str) -> np.ndarray:
        """The trials of "train", "valid" or "test"."""
        return np.flatnonzero(self.part == PARTS[part])

    def save(self, path: str | Path) -> None:
        names = [entry.name for entry in fields(Recording)]
        arrays = {name: np.asarray(getattr(self.recording, name)) for name in names}
        target = np.array([self.cap_mv, self.bias_mv, self.scale_mv])
        write_npz(path, arrays | {"part": self.part, "target": target})

    @classmethod
    def load(cls, path: str | Path) -> Prepared:
        """Raises DataError for a file that is missing or damaged."""
        path = Path(path)
        if not path.is_file():
            raise DataError(f"{path}: no such file: call `elm_lib.fit` again, which writes it")
        arrays: dict[str, Any] = dict(read_npz(path))
        try:
            target, part = arrays.pop("target"), arrays.pop("part")
            recording = Recording(**arrays | {"delta_t": float(arrays["delta_t"])})
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not a prepared recording ({error}): delete it and fit again") from None
        return cls(recording, part, *map(float, target))


def prepare(
    recording: Recording, window: int, *, held_out: list[int] | None = None, cap_mv: float | None = None, seed: int = 0
) -> Prepared:
    """Divide the trials into parts, and find the scale of the voltage in the training part.

    window    steps of a training sample: no trial may be shorter
    held_out  trials of the test set; None: one in ten, spread over the trials in order of their output spikes
    cap_mv    None: the voltage that is exceeded in a thousandth of the time away from output spikes
    Fewer than ten trials are cut into pieces first. Raises DataError where too little is there.
    """
    if held_out is not None and not set(held_out) < set(range(len(recording))):
        raise DataError(f"held_out = {held_out}: choose some of the trials 0 to {len(recording) - 1}, not all")
    pieces, trial = _cut(recording, window)
    spikes = np.add.reduceat(pieces.spike, pieces.first[:-1], dtype=np.int64)
    shuffled = np.random.default_rng(seed).permutation(len(pieces))
    order = shuffled[np.argsort(-spikes[shuffled], kind="stable")]
    part = np.full(len(pieces), TRAIN, np.int8)
    if held_out is None:
        part[_spread(order, 0.35)] = TEST
    else:
        part[np.isin(trial, held_out)] = TEST
    rest = order[part[order] == TRAIN]
    part[_spread(rest, 0.65)] = VALID
    if len(rest) < LEAST - 1:
        raise DataError(
            f"{len(pieces)} trials of at least {window * recording.delta_t:g} ms are too few for training, validation "
            f"and test: give at least {LEAST}"
        )
    rows = np.repeat(part == TRAIN, pieces.durations)
    if not pieces.spike[rows].any():
        raise DataError("no output spike in the training trials: record more, or hold out others (held_out)")
    cap = float(np.quantile(pieces.voltage[rows & away(pieces)], BELOW_CAP)) if cap_mv is None else float(cap_mv)
    capped = np.minimum(pieces.voltage[rows], cap).astype(np.float64)
    if not capped.std() > 0:
        raise DataError(f"the voltage below cap_mv = {cap:g} mV does not vary: give a higher cap_mv")
    return Prepared(pieces, part, cap, float(capped.mean()), SPREADS * float(capped.std()))


def away(recording: Recording) -> np.ndarray:
    """Which steps are away from every output spike, bool (R,); all where none is."""
    steps = int(np.ceil(AWAY_MS / recording.delta_t))
    near = np.convolve(recording.spike, np.ones(2 * steps + 1), "same") > 0.5
    return ~near if not near.all() else np.ones_like(near)


def _spread(order: np.ndarray, offset: float) -> np.ndarray:
    """One in ten of the trials, at equal distances in that order."""
    few = max(1, round(len(order) / SHARE))
    return order[((np.arange(few) + offset) * len(order) / few).astype(int)]


def _cut(recording: Recording, window: int) -> tuple[Recording, np.ndarray]:
    """Few trials cut into pieces of at least a window; the trial that each piece comes from."""
    durations = recording.durations
    if durations.min() < window:
        k = int(durations.argmin())
        raise DataError(
            f"trial {k} lasts {durations[k] * recording.delta_t:g} ms, less than a window of "
            f"{window * recording.delta_t:g} ms: leave it out, or give a shorter window_ms"
        )
    if len(recording) >= FEW:
        return recording, np.arange(len(recording))
    length = max(window, int(durations.sum()) // PIECES)
    counts = np.maximum(1, durations // length)
    first = [np.linspace(a, b, n, endpoint=False).astype(np.int64) for a, b, n in _ends(recording, counts)]
    return replace(recording, first=np.append(np.concatenate(first), recording.first[-1])), np.repeat(
        np.arange(len(recording)), counts
    )


def _ends(recording: Recording, counts: np.ndarray):
    return zip(recording.first[:-1], recording.first[1:], counts, strict=True)
