"""Spiking Heidelberg Digits on disk: the published HDF5 layout, as it is.

    spikes/times   (N,) each float16 (n,)   s, ascending
    spikes/units   (N,) each uint16 (n,)    channel 0..699; channel 0 answers to the highest frequencies
    labels         (N,)                     0-9 English, 10-19 German
    extra/speaker  (N,)                     0..11; two of them are in the test file alone
    extra/keys     (20,)                    the words
    extra/meta_info/{gender,age,body_height} (12,)  of each speaker

Cramer et al. (2020), doi:10.1109/TNNLS.2020.3044364; https://zenkelab.org/datasets/, CC BY 4.0. Generated files add the
root attributes source="generated" and provenance (JSON); a published file has neither.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from elm_lib.support.errors import DataError
from elm_lib.support.files import write_atomically
from elm_lib.support.hdf5 import reading

N_CHANNELS = 700
N_LABELS = 20
VALID_FRACTION, SPLIT_SEED = 0.2, 0  # of the released code
LONGEST_S = 2.0  # s: a later spike means that the file is not in seconds; the longest real digit lasts 1.17 s
_REMAKE = "delete it and run the stage that makes it again"


@dataclass(frozen=True, eq=False)
class Recordings:
    """One file in memory. Spikes of recording i: time_s[row_ptr[i] : row_ptr[i + 1]], channel likewise."""

    path: Path
    source: str  # "generated" or "real"
    row_ptr: np.ndarray = field(repr=False)  # int64 (N + 1,)
    time_s: np.ndarray = field(repr=False)  # float16 (n_spikes,) s
    channel: np.ndarray = field(repr=False)  # uint16 (n_spikes,)
    label: np.ndarray = field(repr=False)  # int64 (N,)
    speaker: np.ndarray = field(repr=False)  # int64 (N,)

    def __len__(self) -> int:
        return len(self.label)

    def spikes(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Times in s, float64 (n,), and channels, uint16 (n,), of recording i. The file has float16, which a unit of
        microseconds would overflow."""
        if not 0 <= i < len(self):
            raise IndexError(f"{self.path}: no recording {i}: it has {len(self)}")
        part = slice(self.row_ptr[i], self.row_ptr[i + 1])
        return self.time_s[part].astype(np.float64), self.channel[part]

    def statistics(self) -> dict[str, np.ndarray]:
        """Of each recording, (N,): number of spikes, number of channels with a spike, time of the last spike in s."""
        row = np.repeat(np.arange(len(self)), np.diff(self.row_ptr))
        used = np.unique(row * N_CHANNELS + self.channel) // N_CHANNELS
        last = np.zeros(len(self))
        np.maximum.at(last, row, self.time_s.astype(np.float64))
        return {
            "spikes": np.diff(self.row_ptr),
            "channels": np.bincount(used, minlength=len(self)),
            "duration_s": last,
        }


def validation_mask(n: int) -> np.ndarray:
    """Which of the n recordings of the train file are kept for validation, bool (n,).

    The released split: each with probability 0.2. Of the published 8156 it leaves 6514 for training, the paper's 814
    batches of 8.
    """
    return np.random.default_rng(SPLIT_SEED).binomial(1, VALID_FRACTION, size=n).astype(bool)


def open_recordings(path: str | Path) -> Recordings:
    """Read a file of the published layout, whole, and check every value.

    Raises DataError (file, key and remedy) if it is missing, truncated, of another layout or holds impossible values.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file: run the stage that makes it (`dvc repro preprocess_shd`)")
    with reading(path, "the SHD layout", _REMAKE) as file:
        times, units = file["spikes/times"][()], file["spikes/units"][()]
        label, speaker = file["labels"][()], file["extra/speaker"][()]
        source = str(file.attrs.get("source", "real"))
    if not len(times) == len(units) == len(label) == len(speaker) or not len(times):
        sizes = {"times": len(times), "units": len(units), "labels": len(label), "speaker": len(speaker)}
        raise DataError(f"{path}: as many of each are needed, at least one, not {sizes}: {_REMAKE}")
    n_times, n_units = (np.array([len(x) for x in lists], np.int64) for lists in (times, units))
    if (n_times != n_units).any():
        i = int(np.argmax(n_times != n_units))
        raise DataError(f"{path}: recording {i} has {n_times[i]} spikes/times and {n_units[i]} spikes/units: {_REMAKE}")
    recordings = Recordings(
        path,
        source,
        np.concatenate([[0], np.cumsum(n_times)]),
        np.concatenate(times).astype(np.float16),
        np.concatenate(units).astype(np.int64),
        label.astype(np.int64),
        speaker.astype(np.int64),
    )
    return _checked(recordings)


def _checked(found: Recordings) -> Recordings:
    spike, recording = "spike", "recording"  # what a value belongs to
    for name, axis, values, wrong, right in (
        (
            "spikes/times",
            spike,
            found.time_s,
            ~((found.time_s >= 0) & (found.time_s <= LONGEST_S)),
            f"0..{LONGEST_S} s",
        ),
        (
            "spikes/units",
            spike,
            found.channel,
            (found.channel < 0) | (found.channel >= N_CHANNELS),
            f"0..{N_CHANNELS - 1}",
        ),
        ("labels", recording, found.label, (found.label < 0) | (found.label >= N_LABELS), f"0..{N_LABELS - 1}"),
        ("extra/speaker", recording, found.speaker, found.speaker < 0, "0 or more"),
    ):
        if wrong.any():
            k = int(np.argmax(wrong))
            i = k if axis == recording else int(np.searchsorted(found.row_ptr, k, "right")) - 1
            raise DataError(f"{found.path}: {name} of recording {i} holds {values[k]}, outside {right}: {_REMAKE}")
    return Recordings(**{**vars(found), "channel": found.channel.astype(np.uint16)})


def write_recordings(
    path: str | Path,
    spikes: Sequence[tuple[np.ndarray, np.ndarray]],
    label: np.ndarray,
    speaker: np.ndarray,
    *,
    words: Sequence[str],
    genders: Sequence[str],
    source: str | None,
    provenance: dict | None = None,
) -> None:
    """Write a file of the published layout, atomically; its bytes depend on the arguments alone.

    spikes: N pairs (times in s, channels), any order; label, speaker (N,); words: of the labels; genders: of the
    speakers. source, provenance: "generated" and what made it; None for a file that is to look like the published ones.
    """
    floats, whole = h5py.vlen_dtype(np.float16), h5py.vlen_dtype(np.uint16)
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        if source is not None:
            file.attrs["source"] = source
            file.attrs["provenance"] = json.dumps(provenance, sort_keys=True)
        times = file.create_dataset("spikes/times", (len(spikes),), floats, track_times=False)
        units = file.create_dataset("spikes/units", (len(spikes),), whole, track_times=False)
        for i, (time_s, channel) in enumerate(spikes):
            order = np.lexsort((channel, time_s))
            times[i] = np.asarray(time_s, np.float16)[order]
            units[i] = np.asarray(channel, np.uint16)[order]
        meta = {
            "gender": np.array(genders, "S"),
            "age": np.zeros(len(genders), np.uint16),
            "body_height": np.zeros(len(genders), np.uint16),
        }
        for name, values in {
            "labels": np.asarray(label, np.uint16),
            "extra/speaker": np.asarray(speaker, np.uint16),
            "extra/keys": np.array([word.encode() for word in words], "S"),
            **{f"extra/meta_info/{name}": values for name, values in meta.items()},
        }.items():
            file.create_dataset(name, data=values, track_times=False)
    write_atomically(path, image.getbuffer())


def read_provenance(path: str | Path) -> dict | None:
    """What made a generated file; None for a file that is missing, damaged or not generated."""
    try:
        with h5py.File(path, "r") as file:
            return json.loads(file.attrs["provenance"])
    except (OSError, KeyError, ValueError):
        return None
