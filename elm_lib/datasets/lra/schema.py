"""The Long Range Arena on disk: six classification tasks on sequences of symbols, one schema (`lra`, version 1).

A seventh, `digits`, is not of the arena: small pictures on which a model trains to the end in minutes.

Real and generated data share it; readers see no difference. One HDF5 file is one split of one task:

    attributes   schema="lra", version=1, task, source (see SOURCES), provenance (JSON, sorted keys), n_samples (N),
                 n_sequences (S: 2 for retrieval, else 1), n_tokens (input dimension), n_classes,
                 class_token (n_tokens - 1, or -1 for images, which have none)
    tokens       uint8  (n,)         symbols below n_tokens, one sequence after another, without class token or padding
    row_ptr      int64  (N S + 1,)   sequence s of sample i is tokens[row_ptr[i S + s] : row_ptr[i S + s + 1]]
    label        uint8  (N,)         class

Every dataset is contiguous and uncompressed: HDF5 is opened once, to check it, and the tokens are mapped from then on.
The bytes of a file depend on its content alone.

Symbols of text: 0 padding, 1 begin, 2 end, 3 unknown, then the task's own from 4 on; their number is padded to a
multiple of 8, and the class token comes last, which makes the published input dimensions (25, 169, 105; Table S2).
Where in a sequence the class token stands the paper does not say; a reader adds it, by default as the last step.
Images: the pixels' grey values in 16 or 8 levels, row by row.

Tay et al. 2021, arXiv:2011.04006; input dimensions and levels: Appendix of the paper.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from elm_lib.support.errors import DataError
from elm_lib.support.files import need_space, part_of, put_in_place, room_for
from elm_lib.support.hdf5 import reading

SCHEMA = "lra"
VERSION = 1
PAD, UNKNOWN, FIRST_SYMBOL = 0, 3, 4
SPLITS = ("train", "valid", "test")
SOURCES = {
    "real": "the published data set",
    "generated": "generated to the published recipe",
    "generated, shortened": "generated to the published recipe, with other lengths",
    "stand-in": "another data set of the same form, not the published one",
    "scikit-learn": "handwritten digits of scikit-learn: real, and no data set of the paper",
}
_REMAKE = "delete it and run `dvc repro preprocess_lra`"
_BLOCK = 1 << 24  # bytes copied at a time


class Form(NamedTuple):
    """What every split of a task has in common."""

    n_tokens: int
    n_classes: int
    n_sequences: int = 1
    has_class_token: bool = False


FORMS = {
    "listops": Form(25, 10, 1, True),  # 15 symbols + 4 specials -> 24, and the class token
    "text": Form(169, 2, 1, True),  # 157 byte values + 4 -> 168, + 1
    "retrieval": Form(105, 2, 2, True),  # 95 characters + 4 -> 104, + 1
    "image": Form(16, 10),
    "pathfinder": Form(16, 2),
    "pathfinder_x": Form(8, 2),
    "digits": Form(17, 10),  # 8 x 8 pixels, row by row
}


def form(task: str) -> Form:
    """The form of a task. Raises DataError for a name that is none of these."""
    if task not in FORMS:
        raise DataError(f"task {task!r}: must be one of {sorted(FORMS)}")
    return FORMS[task]


class SplitWriter:
    """Write one split piece by piece, in bounded memory; the file is whole or absent.

        with SplitWriter(path, "text", source="real", provenance={...}) as writer:
            writer.add(tokens, lengths, labels)

    Raises DataError (file and value) for a symbol or label out of range, an empty sequence, or a full disk.
    """

    def __init__(self, path: str | Path, task: str, *, source: str, provenance: dict) -> None:
        if source not in SOURCES:
            raise ValueError(f"source = {source!r}: must be one of {sorted(SOURCES)}")
        self.path, self.task, self.form = Path(path), task, form(task)
        self.source, self.provenance = source, provenance
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._spool = self.path.with_name(self.path.name + ".tokens")
        self._part = part_of(self.path)
        self._lengths: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []

    def add(self, tokens: np.ndarray, lengths: np.ndarray | list[int], labels: np.ndarray | list[int]) -> None:
        """Some samples: tokens (sum of lengths,) or (n, T), lengths (n S,), labels (n,)."""
        tokens, lengths, labels = np.asarray(tokens).ravel(), np.asarray(lengths), np.asarray(labels)
        if len(lengths) != len(labels) * self.form.n_sequences or lengths.sum() != len(tokens):
            raise ValueError(
                f"{len(tokens)} tokens, {len(lengths)} lengths and {len(labels)} labels do not fit together"
            )
        limit = self.form.n_tokens - self.form.has_class_token
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < limit:
            raise DataError(f"{self.path}: symbols {tokens.min()}..{tokens.max()}, outside 0..{limit - 1}")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.form.n_classes:
            raise DataError(f"{self.path}: labels {labels.min()}..{labels.max()}, outside 0..{self.form.n_classes - 1}")
        if len(lengths) and lengths.min() < 1:
            raise DataError(f"{self.path}: a sequence without a symbol")
        with room_for(self.path):
            self._file.write(np.ascontiguousarray(tokens, np.uint8).data)
        self._lengths.append(lengths.astype(np.int64))
        self._labels.append(labels.astype(np.uint8))

    def __enter__(self) -> SplitWriter:
        self._file = open(self._spool, "wb")
        return self

    def __exit__(self, kind, value, trace) -> None:
        try:
            with room_for(self.path):
                self._file.close()
                if kind is None:
                    self._finish()
        finally:
            self._spool.unlink(missing_ok=True)
            self._part.unlink(missing_ok=True)

    def _finish(self) -> None:
        n_tokens = self._spool.stat().st_size
        if not sum(map(len, self._labels)):
            raise DataError(f"{self.path}: no sample to write")
        need_space(self.path.parent, n_tokens, f"{self.path.name} of {self.task}")
        lengths = np.concatenate(self._lengths)
        with h5py.File(self._part, "w", alignment_threshold=1, alignment_interval=64) as file:
            file.attrs["schema"], file.attrs["version"] = SCHEMA, VERSION
            file.attrs["task"], file.attrs["source"] = self.task, self.source
            file.attrs["provenance"] = json.dumps(self.provenance, sort_keys=True, allow_nan=False)
            file.attrs["n_samples"] = len(lengths) // self.form.n_sequences
            file.attrs["n_sequences"] = self.form.n_sequences
            file.attrs["n_tokens"], file.attrs["n_classes"] = self.form.n_tokens, self.form.n_classes
            file.attrs["class_token"] = self.form.n_tokens - 1 if self.form.has_class_token else -1
            row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
            file.create_dataset("row_ptr", data=row_ptr, track_times=False)
            file.create_dataset("label", data=np.concatenate(self._labels), track_times=False)
            tokens = file.create_dataset("tokens", (n_tokens,), "u1", track_times=False)
            with open(self._spool, "rb") as spool:
                for start in range(0, n_tokens, _BLOCK):
                    block = np.frombuffer(spool.read(_BLOCK), np.uint8)
                    tokens[start : start + len(block)] = block
        put_in_place(self._part, self.path)


@dataclass(frozen=True, eq=False)
class Split:
    """One checked file; holds no open file, so it is cheap to pickle. Tokens are mapped from disk."""

    path: Path
    task: str
    source: str
    provenance: dict
    n_tokens: int
    n_classes: int
    n_sequences: int
    class_token: int  # -1: none
    row_ptr: np.ndarray  # int64 (N S + 1,)
    label: np.ndarray  # uint8 (N,)
    offset: int  # bytes to the tokens

    def __len__(self) -> int:
        return len(self.label)

    @property
    def tokens(self) -> np.ndarray:
        """uint8 (row_ptr[-1],), mapped."""
        return np.memmap(self.path, np.uint8, "r", self.offset, (int(self.row_ptr[-1]),))

    @property
    def lengths(self) -> np.ndarray:
        """Symbols of each sequence, int64 (N, S)."""
        return np.diff(self.row_ptr).reshape(len(self), self.n_sequences)

    def sequences(self, i: int) -> list[np.ndarray]:
        """The sequences of sample i, uint8 each."""
        first, tokens = i * self.n_sequences, self.tokens
        return [tokens[self.row_ptr[k] : self.row_ptr[k + 1]] for k in range(first, first + self.n_sequences)]

    def verify(self) -> Split:
        """Read all tokens once and check their range; returns self. Raises DataError."""
        limit = self.n_tokens - (self.class_token >= 0)
        tokens = self.tokens
        for start in range(0, len(tokens), _BLOCK):
            largest = tokens[start : start + _BLOCK].max()
            if largest >= limit:
                raise DataError(f"{self.path}: tokens holds {largest}, above {limit - 1}: {_REMAKE}")
        return self


def open_split(path: str | Path) -> Split:
    """Open one split and check its structure. Raises DataError (file and remedy) if it is missing, damaged or another
    schema."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file: run `dvc repro preprocess_lra`")
    with reading(path, f"schema {SCHEMA}", _REMAKE) as file:
        return _open(path, file)


def _open(path: Path, file: h5py.File) -> Split:
    schema, version = file.attrs.get("schema"), file.attrs.get("version")
    if (schema, version) != (SCHEMA, VERSION):
        raise DataError(f"{path}: schema {schema} version {version}, not {SCHEMA} version {VERSION}: {_REMAKE}")
    task, n, s = str(file.attrs["task"]), int(file.attrs["n_samples"]), int(file.attrs["n_sequences"])
    expected = form(task)
    if (int(file.attrs["n_tokens"]), int(file.attrs["n_classes"]), s) != expected[:3]:
        raise DataError(f"{path}: is not of the form of {task}, {expected}: {_REMAKE}")
    class_token = int(file.attrs["class_token"])
    if class_token != (expected.n_tokens - 1 if expected.has_class_token else -1):
        raise DataError(f"{path}: class_token {class_token} is not that of {task}, {expected}: {_REMAKE}")
    for name, dtype in (("tokens", "u1"), ("row_ptr", "<i8"), ("label", "u1")):
        if file[name].dtype != np.dtype(dtype) or file[name].ndim != 1:
            raise DataError(
                f"{path}: {name} is {file[name].dtype} {file[name].shape}, not {dtype} of one axis: {_REMAKE}"
            )
    row_ptr, label, tokens = file["row_ptr"][()], file["label"][()], file["tokens"]
    offset = tokens.id.get_offset()
    whole = (
        len(row_ptr) == n * s + 1 and row_ptr[0] == 0 and row_ptr[-1] == tokens.size and (np.diff(row_ptr) > 0).all()
    )
    if not whole or len(label) != n or n < 1 or offset is None:
        raise DataError(f"{path}: row_ptr, label and tokens do not fit together: {_REMAKE}")
    if label.max() >= expected.n_classes:
        raise DataError(f"{path}: label {label.max()}, above {expected.n_classes - 1}: {_REMAKE}")
    if path.stat().st_size < offset + tokens.size:
        raise DataError(f"{path}: ends inside tokens: {_REMAKE}")
    return Split(
        path,
        task,
        str(file.attrs["source"]),
        json.loads(file.attrs["provenance"]),
        expected.n_tokens,
        expected.n_classes,
        s,
        class_token,
        row_ptr,
        label,
        offset,
    )
