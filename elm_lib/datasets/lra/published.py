"""The published Long Range Arena data, as their archives hold them, into our schema.

lra_release.gz is read once, front to back, for all tasks that want it; nothing is unpacked but the few pixels kept.

    listops-1000/basic_{train,val,test}.tsv               header, then Source \\t Target: `( ( [MAX 4 ) 3 ) ]`, value
    tsv_data/new_aan_pairs.{train,eval,test}.tsv          label, id1, id2, text1, text2, no header, no quoting
    pathfinder{32,128}/curv_contour_length_14/metadata/*.npy   text: folder, file, number, label, ...
                                              imgs/*/*.png     grey; 80 % train, 10 % valid, 10 % test, drawn once

The splits of Text and Image that the archives have are train and test: a tenth of train, drawn once, is valid.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from elm_lib.datasets.lra.schema import FIRST_SYMBOL, FORMS, SPLITS, SplitWriter
from elm_lib.datasets.lra.text import PRINTABLE, encode, vocabulary, write_texts
from elm_lib.support import python2_pickle, tar
from elm_lib.support.errors import DataError
from elm_lib.support.files import room_for

READER_VERSION = 2  # raise it when the same archive gives other files
_VALID_PART = 10  # one in so many training samples, where the archive has no validation split
_LISTOPS = re.compile(r"(?:^|/)listops-1000/basic_(train|val|test)\.tsv$")
_RETRIEVAL = re.compile(r"(?:^|/)tsv_data/new_aan_pairs\.(train|eval|test)\.tsv$")
_PATHFINDER = re.compile(r"(?:^|/)pathfinder(32|128)/curv_contour_length_14/(imgs/.+\.png|metadata/.+\.npy)$")
_IMDB = re.compile(r"(?:^|/)aclImdb/(train|test)/(pos|neg)/[^/]+\.txt$")
_CIFAR = re.compile(r"(?:^|/)cifar-10-batches-py/(data_batch_[1-5]|test_batch)$")
_SPLIT = {"val": "valid", "eval": "valid"}

Limits = dict[str, int | None]  # {split: samples kept at most}
Row = tuple[np.ndarray, np.ndarray | list[int], list[int]]  # symbols, lengths, labels


def members(place: Path, *patterns: re.Pattern) -> Iterator[tuple[re.Match, IO[bytes], str]]:
    """(match, content, name) of the members that a pattern finds, of an archive or an unpacked folder, in its order.

    The published archive holds some folders twice: what is there again is left out, if it is the same. Raises DataError
    where it is not, and for an archive that is cut off or damaged.
    """
    seen: dict[str, bytes] = {}
    for name, content in tar.members(place, "delete it and run `dvc repro download_lra`"):
        if match := next(filter(None, (pattern.search(name) for pattern in patterns)), None):
            found = match[0].lstrip("/")
            if found not in seen:
                yield match, content, name
                seen[found] = content.digest()
            elif seen[found] != content.digest():
                raise DataError(f"{place}: {found} is in it twice, the second time, as {name}, another: get it again")


def convert_release(place: Path, out: Path, wanted: dict[str, tuple[Limits, int | None, dict]]) -> None:
    """Convert what `wanted` names of listops, retrieval, pathfinder, pathfinder_x to out/<task>/<split>.h5.

    wanted: task -> (limits, max_length in bytes, provenance). Raises DataError naming the member that is not as
    published.
    """
    patterns = [p for task, p in (("listops", _LISTOPS), ("retrieval", _RETRIEVAL)) if task in wanted]
    spools = {
        size: _Pictures(out / task, task, int(size), *wanted[task])
        for size, task in (("32", "pathfinder"), ("128", "pathfinder_x"))
        if task in wanted
    }
    done = set()
    try:
        for match, file, name in members(place, *patterns, *([_PATHFINDER] if spools else [])):
            if match.re is _PATHFINDER:
                if match[1] in spools:
                    spools[match[1]].add(match[2], file.read(), name)
                continue
            task = "listops" if match.re is _LISTOPS else "retrieval"
            split = _SPLIT.get(match[1], match[1])
            limits, max_length, provenance = wanted[task]
            rows = listops_rows(file, name) if task == "listops" else retrieval_rows(file, name, max_length)
            path = out / task / f"{split}.h5"
            with SplitWriter(path, task, source="real", provenance={**provenance, "member": name}) as writer:
                for n, row in enumerate(rows):
                    if n == limits[split]:
                        break
                    writer.add(*row)
            done.add((task, split))
        for size, spool in spools.items():
            spool.write()
            done |= {("pathfinder" if size == "32" else "pathfinder_x", split) for split in SPLITS}
    finally:
        for spool in spools.values():
            spool.close()
    missing = sorted({(task, split) for task in wanted for split in SPLITS} - done)
    if missing:
        raise DataError(f"{place}: holds no {missing[0][1]} split of {missing[0][0]}: get lra_release.gz again")


def listops_symbols(source: bytes, name: str) -> np.ndarray:
    """`( ( [MAX 4 ) 3 ) ]` -> symbols from 4 on (digits, MIN, MAX, MED, SM, end), parentheses dropped."""
    text = np.frombuffer(source + b"  ", np.uint8)
    table = np.full(256, 255, np.uint8)
    table[np.arange(48, 58)] = np.arange(10)
    table[ord("]")], table[ord("[")] = 14, 100
    third = np.full(256, 255, np.uint8)
    third[[ord(c) for c in "IAEM"]] = (10, 11, 12, 13)
    symbols = table[text]
    opens = np.flatnonzero(symbols == 100)
    symbols[opens] = third[text[opens + 2]]
    if set(source) - set(b"0123456789[]() MINAXEDS") or (symbols[opens] == 255).any():
        raise DataError(f"{name}: holds {source[:60]!r}, which is no list operation: get lra_release.gz again")
    return symbols[symbols != 255] + np.uint8(FIRST_SYMBOL)


def listops_rows(file: IO[bytes], name: str) -> Iterator[Row]:
    """(symbols, [length], [value]) of each line."""
    lines = iter(file)
    if next(lines, b"").split() != [b"Source", b"Target"]:
        raise DataError(f"{name}: its first line is not Source, Target: get lra_release.gz again")
    for number, line in enumerate(lines, start=2):
        source, _, target = line.rstrip(b"\r\n").partition(b"\t")
        if not target.isdigit():
            raise DataError(f"{name}, line {number}: target {target[:20]!r} is no digit: get lra_release.gz again")
        symbols = listops_symbols(source, f"{name}, line {number}")
        yield symbols, [len(symbols)], [int(target)]


def retrieval_rows(file: IO[bytes], name: str, max_length: int | None) -> Iterator[Row]:
    """(symbols of both texts, their two lengths, [label]) of each line."""
    for number, line in enumerate(file, start=1):
        parts = line.rstrip(b"\r\n").split(b"\t")
        if len(parts) != 5 or parts[0] not in (b"0", b"1", b"0.0", b"1.0"):
            raise DataError(
                f"{name}, line {number}: {len(parts)} columns, label {parts[0][:20]!r}; expected 5, label 0 or 1"
            )
        yield *encode(parts[3:], PRINTABLE, max_length), [int(float(parts[0]))]


class _Pictures:
    """Pictures in the archive's order, spooled to disk; written in the metadata's order, shuffled once."""

    def __init__(self, folder: Path, task: str, size: int, limits: Limits, _: int | None, provenance: dict) -> None:
        self.folder, self.task, self.size, self.limits, self.provenance = folder, task, size, limits, provenance
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "pictures.part"
        self.file = self.path.open("wb")
        self.place: dict[str, int] = {}
        self.empty: set[str] = set()
        self.labels: dict[str, int] = {}

    def add(self, member: str, content: bytes, name: str) -> None:
        if member.endswith(".npy"):
            for line in content.decode("ascii", errors="replace").splitlines():
                words = line.split()
                if len(words) < 4 or words[3] not in ("0", "1"):
                    raise DataError(f"{name}: line {line[:60]!r} is not folder, file, number, label")
                if self.labels.setdefault(f"{words[0]}/{words[1]}", int(words[3])) != int(words[3]):
                    raise DataError(f"{name}: gives {words[0]}/{words[1]} two labels: get lra_release.gz again")
            return
        if not content:  # the published sets have empty files among them
            self.empty.add(member)
            return
        try:
            picture = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise DataError(f"{name}: not a whole picture ({error}): get lra_release.gz again") from None
        if picture.shape != (self.size, self.size):
            raise DataError(f"{name}: {picture.shape} pixels, expected {self.size} x {self.size}")
        self.place[member] = len(self.place)
        with room_for(self.path):
            self.file.write(grey_levels(picture, FORMS[self.task].n_tokens).data)

    def write(self) -> None:
        with room_for(self.path):
            self.file.close()
        names = [name for name in sorted(self.labels, key=_natural) if name not in self.empty]
        if not names or (missing := [name for name in names if name not in self.place]):
            lost = missing[0] if names else "metadata"
            raise DataError(f"{self.task}: {lost} of curv_contour_length_14 is not in the archive: get it again")
        written = self.path.stat().st_size // self.size**2
        if written != len(self.place):
            raise DataError(f"{self.task}: {written} pictures were written of {len(self.place)}: run again")
        pixels = np.memmap(self.path, np.uint8, "r").reshape(-1, self.size**2)
        order = np.random.default_rng(0).permutation(len(names))
        tenth = max(1, len(names) // 10)
        dealt = {"test": order[:tenth], "valid": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
        provenance = {**self.provenance, "left_out_empty": sorted(self.empty)}
        for split, chosen in dealt.items():
            chosen = chosen[: self.limits[split]]
            with SplitWriter(self.folder / f"{split}.h5", self.task, source="real", provenance=provenance) as writer:
                for first in range(0, len(chosen), 1000):
                    some = [names[i] for i in chosen[first : first + 1000]]
                    labels = np.array([self.labels[name] for name in some])
                    rows = pixels[[self.place[name] for name in some]]
                    writer.add(rows, np.full(len(rows), self.size**2), labels)

    def close(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


def _natural(name: str) -> list:
    """imgs/2/sample_10.png after imgs/2/sample_9.png"""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def convert_imdb(place: Path, out: Path, limits: Limits, max_length: int | None, provenance: dict) -> None:
    """aclImdb -> out/text/<split>.h5: 22,500 / 2,500 / 25,000 reviews. The byte values are those of the training
    set."""
    found: dict[str, dict[str, tuple[bytes, int]]] = {"train": {}, "test": {}}
    for match, file, name in members(place, _IMDB):
        found[match[1]][name] = (file.read(), int(match[2] == "pos"))
    for split, reviews in found.items():
        if not reviews:
            raise DataError(f"{place}: holds no aclImdb/{split}/pos/*.txt: get aclImdb_v1.tar.gz again")
    test, train, valid = _with_valid(found["test"], found["train"])
    values = vocabulary(text for text, _ in train)
    for split, content in (("train", train), ("valid", valid), ("test", test)):
        content = content[: limits[split]]
        write_texts(
            out / "text" / f"{split}.h5",
            "text",
            [[text] for text, _ in content],
            np.array([y for _, y in content]),
            values=values,
            max_length=max_length,
            source="real",
            provenance=provenance,
        )


def convert_cifar(place: Path, out: Path, limits: Limits, provenance: dict) -> None:
    """CIFAR-10 -> out/image/<split>.h5: 45,000 / 5,000 / 10,000 grey pictures of 32 x 32 in 16 levels."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for match, file, _ in members(place, _CIFAR):
            path = Path(scratch) / match[1]
            path.write_bytes(file.read())
            content = python2_pickle.load(path)
            try:
                pixels = python2_pickle.numbers(python2_pickle.field(content, "data")).reshape(-1, 3, 32, 32)
                labels = python2_pickle.numbers(python2_pickle.field(content, "labels"))
                if len(labels) != len(pixels):
                    raise ValueError(f"{len(pixels)} pictures and {len(labels)} labels")
                found[match[1]] = _whole(pixels, "pixels", 255), _whole(labels, "labels", FORMS["image"].n_classes - 1)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{place}: {match[1]} does not hold data and labels ({error!r}): get it again"
                ) from None
    if missing := {*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"} - set(found):
        raise DataError(f"{place}: holds no cifar-10-batches-py/{min(missing)}: get {place.name} again")
    rows = {name: list(zip(luma(pixels), labels)) for name, (pixels, labels) in sorted(found.items())}
    learned = dict(enumerate(row for name, batch in rows.items() if name != "test_batch" for row in batch))
    test, train, valid = _with_valid(dict(enumerate(rows["test_batch"])), learned)
    for split, content in (("train", train), ("valid", valid), ("test", test)):
        content = content[: limits[split]]
        pictures, labels = np.stack([p for p, _ in content]), np.array([y for _, y in content])
        with SplitWriter(out / "image" / f"{split}.h5", "image", source="real", provenance=provenance) as writer:
            writer.add(grey_levels(pictures, FORMS["image"].n_tokens), np.full(len(labels), 1024), labels)


def _whole(values: np.ndarray, what: str, most: int) -> np.ndarray:
    """uint8, the same values. ValueError for one that is no whole number from 0 to `most`."""
    wrong = ~((values >= 0) & (values <= most) & (values == np.floor(values)))
    if wrong.any():
        raise ValueError(f"{what}: {values[wrong][0]} is not a whole number from 0 to {most}")
    return values.astype(np.uint8)


def luma(rgb: np.ndarray) -> np.ndarray:
    """Colour -> grey by ITU-R BT.601, as Pillow rounds it: uint8 (..., 3, H, W) -> uint8 (..., H, W)."""
    weights = np.array([19595, 38470, 7471], np.uint32)[:, None, None]
    return ((rgb.astype(np.uint32) * weights).sum(-3) + 0x8000 >> 16).astype(np.uint8)


def grey_levels(grey: np.ndarray, n_levels: int) -> np.ndarray:
    """Grey values 0..255 in n_levels bins of equal width, uint8, same shape."""
    return (grey.astype(np.uint16) * n_levels >> 8).astype(np.uint8)


def _with_valid(test: dict, train: dict) -> tuple[list, list, list]:
    """test, train without a tenth, that tenth: samples by name, train in an order drawn once."""
    rows = [train[name] for name in _sorted(train)]
    order = np.random.default_rng(0).permutation(len(rows))
    n_valid = max(1, len(rows) // _VALID_PART)
    shuffled = np.random.default_rng(1).permutation(len(test))
    tested = [test[name] for name in _sorted(test)]
    return [tested[i] for i in shuffled], [rows[i] for i in order[n_valid:]], [rows[i] for i in order[:n_valid]]


def _sorted(names: Iterable) -> list:
    return sorted(names, key=lambda name: _natural(name) if isinstance(name, str) else name)
