"""Batches of SHD and SHD-Adding for torch: spikes counted in bins, sparse from file to model.

A recording is cut to exactly one second. Bin k of bin_ms holds the spikes with k bin_ms <= t < (k + 1) bin_ms; a spike
at 1 s or later is dropped. There are ceil(1000 / bin_ms) bins, so at 6 ms the last, the 167th, is short: 4 ms. The
value of an entry is the number of spikes, as in the released code. SHD-Adding puts two such seconds one after the
other.

Which recordings a batch holds is a pure function of (seed, epoch, step): it does not matter who draws it, nor what was
drawn before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from elm_lib.datasets.shd.schema import (
    N_CHANNELS,
    N_LABELS,
    Recordings,
    open_recordings,
    read_provenance,
    validation_mask,
)
from elm_lib.kernels.spikes import Spikes
from elm_lib.support.errors import DataError

LENGTH_MS = 1000
BINS_MS = (1, 2, 4, 6, 8, 10, 20, 50, 100)  # of the published tables; any whole number up to 1000 works
PAIRS = {"valid": 4000, "test": 16_000}  # of SHD-Adding: 500 and 2,000 batches of 8, as released
PAIR_SEED = 0
_ADDING, _DROPOUT, _VALID, _TEST = 1, 2, 3, 4  # keep the streams of random numbers apart

Split = Literal["train", "valid", "test"]


def n_outputs(adding: bool) -> int:
    """Classes: 20 words, or the sums 0..18."""
    return 19 if adding else N_LABELS


def n_bins(bin_ms: int) -> int:
    """Bins of one second; the last is shorter where bin_ms does not divide 1000. ValueError outside 1..1000."""
    if not isinstance(bin_ms, int | np.integer) or isinstance(bin_ms, bool) or not 1 <= bin_ms <= LENGTH_MS:
        raise ValueError(f"bin_ms = {bin_ms!r}: give a whole number of ms, 1 to {LENGTH_MS}, without a point")
    return -(-LENGTH_MS // int(bin_ms))


@dataclass(frozen=True, eq=False)
class Binned:
    """Recordings in bins: entries row_ptr[i] : row_ptr[i + 1] are those of recording i, ordered by bin, then channel,
    no pair twice."""

    bin_ms: int
    row_ptr: np.ndarray  # int64 (N + 1,)
    bin: np.ndarray  # int16 (n,)
    channel: np.ndarray  # int16 (n,)
    count: np.ndarray  # float32 (n,) spikes


def bin_spikes(recordings: Recordings, bin_ms: int) -> Binned:
    """Count the spikes of each recording in bins of bin_ms (see the module). A fraction of a second for a thousand
    recordings.

    Exact: a float16 time in ms has at most 21 significant bits, so neither its product by 1000 nor its floor is
    rounded.
    """
    bins = n_bins(bin_ms)
    keys, counts, n_entries = [], [], [0]
    for first in range(0, len(recordings), 256):  # keeps the sort in the cache and memory low
        rows = recordings.row_ptr[first : first + 257]
        part = slice(rows[0], rows[-1])
        ms = np.floor(recordings.time_s[part].astype(np.float64) * 1000).astype(np.int64)
        row = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
        key = (row * bins + ms // bin_ms) * N_CHANNELS + recordings.channel[part]
        key, count = np.unique(key[ms < LENGTH_MS], return_counts=True)
        n_entries += np.bincount(key // (bins * N_CHANNELS), minlength=len(rows) - 1).tolist()
        keys.append(key % (bins * N_CHANNELS))
        counts.append(count.astype(np.float32))
    key = np.concatenate(keys)
    return Binned(
        bin_ms,
        np.cumsum(n_entries),
        (key // N_CHANNELS).astype(np.int16),
        (key % N_CHANNELS).astype(np.int16),
        np.concatenate(counts),
    )


def draw(n: int, seed: int, epoch: int, step: int, batch_size: int) -> np.ndarray:
    """Training batch of SHD: which of n recordings, int64 (B, 1).

    A pass over the data is a permutation, an incomplete batch at its end is left out; an epoch of more steps than a
    pass has goes on with another. ValueError if n recordings do not fill one batch.
    """
    steps = n // batch_size
    if steps == 0:
        raise ValueError(f"{n} recordings do not fill a batch of {batch_size}")
    k = step % steps
    order = np.random.default_rng([seed, epoch, step // steps]).permutation(n)
    return order[k * batch_size : (k + 1) * batch_size, None]


def draw_pairs(n: int, seed: int, epoch: int, step: int, batch_size: int) -> np.ndarray:
    """Training batch of SHD-Adding: pairs of n recordings, drawn independently and uniformly, int64 (B, 2)."""
    return np.random.default_rng([seed, epoch, step, _ADDING]).integers(n, size=(batch_size, 2))


def fixed_pairs(n: int, split: Split, n_pairs: int) -> np.ndarray:
    """Validation or test set of SHD-Adding: the same pairs for every run, int64 (n_pairs, 2). Fewer pairs are the first
    of more."""
    return np.random.default_rng([PAIR_SEED, {"valid": _VALID, "test": _TEST}[split]]).integers(n, size=(n_pairs, 2))


@dataclass(frozen=True, eq=False)
class Batch:
    """B samples of D seconds (1, or 2 for SHD-Adding), T = D ceil(1000 / bin_ms) bins.

    Row b T + t of the sparse input is bin t of sample b: channel[row_ptr[row] : row_ptr[row + 1]], with the spikes
    counted.
    """

    row_ptr: torch.Tensor  # int64 (B T + 1,)
    channel: torch.Tensor  # int64 (n,) ascending within a row, each at most once
    value: torch.Tensor  # float32 (n,) spikes in the bin
    label: torch.Tensor  # int64 (B,) 0..19, or the sum 0..18
    speaker: torch.Tensor  # int64 (B, D)
    recording: torch.Tensor  # int64 (B, D) place in the file

    @property
    def x(self) -> Spikes:
        """The input for a model: (B, T, 700), sparse; `.x.dense()` makes it a float32 tensor."""
        n = len(self.label)
        return Spikes(self.row_ptr, self.channel, self.value, (n, (len(self.row_ptr) - 1) // n, N_CHANNELS))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return Batch(*(getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)))

    def pin_memory(self) -> Batch:
        return Batch(*(getattr(self, f.name).pin_memory() for f in fields(self)))


def gather(binned: Binned, recordings: Recordings, which: np.ndarray) -> Batch:
    """The batch of recordings which (B, D), the D of a sample one after the other. Two are added: digits regardless of
    language."""
    flat = which.reshape(-1)
    start, stop = binned.row_ptr[flat], binned.row_ptr[flat + 1]
    size = stop - start
    ends = np.cumsum(size)
    entry = np.arange(ends[-1]) + np.repeat(start - (ends - size), size)
    bins = n_bins(binned.bin_ms)
    row = np.repeat(np.arange(len(flat)) * bins, size) + binned.bin[entry]
    row_ptr = np.zeros(len(flat) * bins + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=len(flat) * bins), out=row_ptr[1:])
    label = recordings.label[which]
    return Batch(
        row_ptr=torch.from_numpy(row_ptr),
        channel=torch.from_numpy(binned.channel[entry].astype(np.int64)),
        value=torch.from_numpy(binned.count[entry]),
        label=torch.from_numpy(label[:, 0] if which.shape[1] == 1 else (label % 10).sum(1)),
        speaker=torch.from_numpy(recordings.speaker[which]),
        recording=torch.from_numpy(np.ascontiguousarray(which, np.int64)),
    )


def drop(batch: Batch, p: float, rng: np.random.Generator, rescale: bool = True) -> Batch:
    """Input dropout: each entry (a bin of a channel, all its spikes) is dropped with probability p in [0, 1).

    rescale: what is left is divided by 1 - p, so that a model sees the same mean with and without dropout. The released
    code does not rescale, and drops at test time as well.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout = {p}: from 0 to below 1")
    if p == 0:
        return batch
    kept = np.flatnonzero(rng.random(len(batch.channel), np.float32) >= p)
    value = batch.value.numpy()[kept]
    return Batch(
        row_ptr=torch.from_numpy(np.searchsorted(kept, batch.row_ptr.numpy())),
        channel=torch.from_numpy(batch.channel.numpy()[kept]),
        value=torch.from_numpy(value / np.float32(1 - p) if rescale else value),
        label=batch.label,
        speaker=batch.speaker,
        recording=batch.recording,
    )


class ShdData:
    """A prepared folder: train.h5, of which a fifth is for validation, and test.h5.

    Where valid.h5 is there, it has that fifth alone, and the train file is opened for training only. Files are read
    once, at their first use. Raises DataError for missing or damaged files, or files of different sources.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._files: dict[str, Recordings] = {}
        self._binned: dict[tuple[str, int], Binned] = {}

    def file(self, name: str) -> Recordings:
        """The file "train", "valid" or "test"."""
        if name not in self._files:
            found = open_recordings(self.folder / f"{name}.h5")
            for other in self._files.values():
                if other.source != found.source:
                    sources = sorted({other.source, found.source})
                    raise DataError(
                        f"{self.folder}: {other.path.name} and {name}.h5 are of sources {sources}: make both again"
                    )
            self._files[name] = found
        return self._files[name]

    @property
    def source(self) -> str:
        """ "generated" or "real"."""
        return self.file("test").source

    @cached_property
    def _valid_file(self) -> str:
        return "valid" if (self.folder / "valid.h5").exists() else "train"

    @cached_property
    def held_out_speakers(self) -> tuple[int, ...]:
        """Speakers of the test file that the train file has not."""
        if self._valid_file == "valid":  # which names the speakers of the whole train file
            made = read_provenance(self.folder / "valid.h5")
            if made is None:
                raise DataError(f"{self.folder / 'valid.h5'}: does not say how it was made: make it again")
            trained = set(made["speakers"])
        else:
            trained = set(self.file("train").speaker.tolist())
        return tuple(sorted(set(self.file("test").speaker.tolist()) - trained))

    @cached_property
    def pairs(self) -> dict[str, int]:
        """Sizes of SHD-Adding's validation and test set: what the manifest says, else as published."""
        manifest = self.folder / "manifest.json"
        return (json.loads(manifest.read_text()) if manifest.is_file() else {}).get("pairs", PAIRS)

    def file_of(self, split: Split) -> str:
        """The file that a split is read from, "train", "valid" or "test"."""
        return self._valid_file if split == "valid" else split

    def members(self, split: Split) -> np.ndarray:
        """Recordings of a split, int64 (n,): places in its file, `file_of`."""
        n = len(self.file(self.file_of(split)))
        if split == "test" or self.file_of(split) == "valid":
            return np.arange(n)
        members = np.flatnonzero(validation_mask(n) == (split == "valid"))
        if not len(members):
            raise DataError(f"{self.folder}: {n} recordings do not make a train and a validation set: more are needed")
        return members

    def batches_per_epoch(self, batch_size: int) -> int:
        """Whole training batches of one pass: 814 of 8 with the published files."""
        return len(self.members("train")) // batch_size

    def batch(
        self,
        *,
        seed: int,
        epoch: int,
        step: int,
        batch_size: int,
        bin_ms: int,
        adding: bool = False,
        dropout: float = 0.0,
        rescale: bool = True,
    ) -> Batch:
        """Training batch (epoch, step), a pure function of the arguments. See `draw`, `draw_pairs`, `drop`."""
        members = self._train
        which = members[(draw_pairs if adding else draw)(len(members), seed, epoch, step, batch_size)]
        batch = gather(self.binned("train", bin_ms), self.file("train"), which)
        return drop(batch, dropout, np.random.default_rng([seed, epoch, step, _DROPOUT]), rescale)

    def split_batches(
        self,
        split: Split,
        *,
        batch_size: int,
        bin_ms: int,
        adding: bool = False,
        n_pairs: int | None = None,
        dropout: float = 0.0,
        rescale: bool = True,
        seed: int = 0,
        most: int | None = None,
    ) -> Iterator[Batch]:
        """A whole split in fixed order, the last batch perhaps smaller. Any split may be asked for, but pairs only of
        "valid" and "test".

        n_pairs: of SHD-Adding, `pairs` by default. most: only the first so many samples. dropout, rescale, seed: only
        to do as the released code does at test time.
        """
        members, name = self.members(split), self.file_of(split)
        which = members[fixed_pairs(len(members), split, n_pairs or self.pairs[split])] if adding else members[:, None]
        which = which[:most]
        for step, first in enumerate(range(0, len(which), batch_size)):
            batch = gather(self.binned(name, bin_ms), self.file(name), which[first : first + batch_size])
            yield drop(batch, dropout, np.random.default_rng([seed, step, _DROPOUT]), rescale)

    def binned(self, file: str, bin_ms: int) -> Binned:
        """A file in bins, kept for the next call."""
        if (file, bin_ms) not in self._binned:
            self._binned[file, bin_ms] = bin_spikes(self.file(file), bin_ms)
        return self._binned[file, bin_ms]

    @cached_property
    def _train(self) -> np.ndarray:
        return self.members("train")
