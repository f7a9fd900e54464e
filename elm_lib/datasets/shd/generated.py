"""Generated SHD: spoken digits through the artificial cochlea, files in the published layout.

Utterance i of the train or test sequence depends on (seed, sequence, i) and on what `provenance` lists, on nothing
else: not on the number of workers, not on what was interrupted when. What is done is kept in parts, so a run that was
killed goes on where it stopped.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from elm_lib.datasets.shd.schema import (
    Recordings,
    open_recordings,
    read_provenance,
    validation_mask,
    write_recordings,
)
from elm_lib.simulate.speech import cochlea, voices
from elm_lib.support import processes
from elm_lib.support.errors import DataError
from elm_lib.support.files import need_space, read_npz, read_or_set_aside, write_atomically, write_npz
from elm_lib.support.workers import pool, usable_cores

REVISION = 2  # raise it by hand when the same settings give other results; docs/identity.md
PART = 20  # utterances of one part, the unit of work
BYTES_PER_UTTERANCE = 60_000
SPLITS = ("valid", "test", "train")  # in the order in which they are made
SEQUENCES = {"train": 1, "test": 2}
HELD_OUT = (4, 5)  # speakers of the test set alone, as in the real data
KNOWN = tuple(s for s in range(len(voices.SPEAKERS)) if s not in HELD_OUT)
TEST_BLOCKS_KNOWN = (
    5  # one of five blocks of the test set is by a speaker of the training set, about as in the real data
)

Spikes = tuple[np.ndarray, np.ndarray]  # times in s, channels


def plan(sequence: str, i: int) -> tuple[int, int]:
    """(label, speaker) of utterance i: blocks of all 20 words by one speaker, speakers in turn."""
    block, label = divmod(i, len(voices.WORDS))
    if sequence == "train":
        return label, KNOWN[block % len(KNOWN)]
    group, turn = divmod(block, TEST_BLOCKS_KNOWN)
    if turn == TEST_BLOCKS_KNOWN - 1:
        return label, KNOWN[group % len(KNOWN)]
    return label, HELD_OUT[turn % len(HELD_OUT)]


def utterance(sequence: str, i: int, seed: int, ear: cochlea.Cochlea) -> Spikes:
    """Spikes of utterance i: times in s and channels."""
    rng = np.random.default_rng([seed, SEQUENCES[sequence], i])
    return ear.spikes(voices.utter(*plan(sequence, i), rng), rng)


def provenance(split: str, n: int, seed: int) -> dict:
    """What the bytes of a file depend on.

    n  utterances of the file; of valid.h5, those of the train file that it is a part of, whose speakers it names
    """
    made = {
        "generator": "elm_lib.datasets.shd.generated",
        "generator_version": REVISION,
        "split": split,
        "seed": seed,
        "utterances": n,
        "espeakng_loader": version("espeakng-loader"),
    }
    return made | ({"speakers": sorted({plan("train", i)[1] for i in range(n)})} if split == "valid" else {})


@dataclass(frozen=True)
class _File:
    """<split>.h5 with the utterances `members` of a sequence, "train" or "test"."""

    path: Path
    split: str
    sequence: str
    members: np.ndarray  # int64 (n,)
    size: int  # utterances of the sequence
    seed: int

    def found(self) -> Recordings | None:
        """What is there of it: its first members, perhaps all or more. None where it is missing or was made
        otherwise."""
        recordings = read_or_set_aside(self.path, open_recordings)
        made = read_provenance(self.path) or {}
        same = made if self.split == "valid" else {**made, "utterances": self.size}
        return recordings if same == provenance(self.split, self.size, self.seed) else None

    def write(self, members: np.ndarray, spikes: list[Spikes]) -> None:
        labels, speakers = zip(*(plan(self.sequence, i) for i in members.tolist()), strict=True)
        size = self.size if self.split == "valid" else len(members)
        write_recordings(
            self.path,
            spikes,
            np.array(labels),
            np.array(speakers),
            words=voices.WORDS,
            genders=[who.gender for who in voices.SPEAKERS],
            source="generated",
            provenance=provenance(self.split, size, self.seed),
        )


def generate(
    folder: str | os.PathLike,
    sizes: dict[str, int],
    seed: int,
    *,
    splits: Iterable[str] = SPLITS,
    most: dict[str, int] | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, Path]:
    """Make folder/<split>.h5 where it is not there yet, and return the paths.

    sizes    {"train": utterances, "test": utterances}
    splits   valid.h5 has those utterances of the train file that are for validation, so they can be had before the
             others; train.h5 has them too, as published
    most     {split: n}: the first n utterances of a file are enough; a call without it adds the others
    workers  processes; all usable cores by default
    Utterances that a file has already are kept. Raises DataError: no space. ValueError: a size below 1.
    """
    folder, splits = Path(folder), set(splits)
    if min(sizes.values()) < 1:
        raise ValueError(f"sizes = {sizes}: at least 1 utterance each")
    files = {split: _file(folder, split, sizes, seed) for split in SPLITS}
    if not len(files["valid"].members):
        raise ValueError(f"sizes = {sizes}: {sizes['train']} utterances leave none for validation: more are needed")
    known: dict[tuple[str, int], Spikes] = {}
    lacking: dict[str, np.ndarray] = {}
    for split, file in files.items():
        if split not in splits and not (split == "valid" and "train" in splits):
            continue
        found = file.found()
        held = 0
        if found is not None:
            held = len(found)
            known |= {(file.sequence, i): found.spikes(k) for k, i in enumerate(file.members[:held].tolist())}
        members = file.members[: (most or {}).get(split)]
        enough = held >= len(members) if split in (most or {}) else held == len(members)
        if split in splits and not enough:
            lacking[split] = members
    if lacking:
        needed = {(files[split].sequence, i) for split, members in lacking.items() for i in members.tolist()}
        known |= _spoken(folder / "parts", files, needed - known.keys(), seed, workers, progress)
        for split, members in lacking.items():
            files[split].write(members, [known[files[split].sequence, i] for i in members.tolist()])
        shutil.rmtree(folder / "parts")
    return {split: file.path for split, file in files.items() if split in splits}


def _file(folder: Path, split: str, sizes: dict[str, int], seed: int) -> _File:
    sequence = "test" if split == "test" else "train"
    size = sizes[sequence]
    members = np.flatnonzero(validation_mask(size)) if split == "valid" else np.arange(size)
    return _File(folder / f"{split}.h5", split, sequence, members, size, seed)


def _spoken(
    parts: Path,
    files: dict[str, _File],
    needed: set[tuple[str, int]],
    seed: int,
    workers: int | None,
    progress: bool,
) -> dict[tuple[str, int], Spikes]:
    """Make the utterances (sequence, number) that are needed, in parts that lie in `parts` meanwhile."""
    need_space(parts, len(needed) * BYTES_PER_UTTERANCE, f"{len(needed)} utterances")
    parts.mkdir(parents=True, exist_ok=True)
    jobs = []
    for sequence in SEQUENCES:
        numbers = sorted(i for name, i in needed if name == sequence)
        jobs += [(parts, sequence, tuple(numbers[k : k + PART]), seed) for k in range(0, len(numbers), PART)]
    missing = [job for job in jobs if _read_part(*job) is None]
    done = len(needed) - sum(len(job[2]) for job in missing)
    with processes.progress(len(needed), "spoken digits", "digit", done) if progress else nullcontext() as bar:
        for n in _run(missing, min(workers or usable_cores(), len(missing)), parts):
            if bar is not None:
                bar.update(n)
    spoken: dict[tuple[str, int], Spikes] = {}
    for job in jobs:
        pairs = _read_part(*job)
        if pairs is None:
            raise DataError(
                f"{_part_path(parts, *job[1:3])}: cannot be read, though it was just made: run the stage again"
            )
        spoken |= {(job[1], i): pair for i, pair in zip(job[2], pairs, strict=True)}
    return spoken


def _part_path(parts: Path, sequence: str, members: tuple[int, ...]) -> Path:
    return parts / f"{sequence}_{members[0]:06d}.npz"


def _part_provenance(sequence: str, members: tuple[int, ...], seed: int) -> str:
    return json.dumps(provenance(sequence, len(members), seed) | {"members": members}, sort_keys=True)


def _read_part(parts: Path, sequence: str, members: tuple[int, ...], seed: int) -> list[Spikes] | None:
    """Spikes of some utterances; None where they have to be made."""

    def read(path: Path) -> list[Spikes] | None:
        found = read_npz(path)
        if str(found["provenance"]) != _part_provenance(sequence, members, seed):
            return None
        ends = found["row_ptr"][1:-1]
        return list(zip(np.split(found["time_s"], ends), np.split(found["channel"], ends), strict=True))

    return read_or_set_aside(_part_path(parts, sequence, members), read)


def _write_part(parts: Path, sequence: str, members: tuple[int, ...], seed: int) -> int:
    ear = _ear(parts)
    spikes = [utterance(sequence, i, seed, ear) for i in members]
    content = {
        "provenance": np.array(_part_provenance(sequence, members, seed)),
        "row_ptr": np.cumsum([0] + [len(t) for t, _ in spikes]),
        "time_s": np.concatenate([t for t, _ in spikes]).astype(np.float16),
        "channel": np.concatenate([c for _, c in spikes]).astype(np.uint16),
    }
    write_npz(_part_path(parts, sequence, members), content)
    return len(members)


def _run(jobs: list[tuple], workers: int, parts: Path) -> Iterator[int]:
    """Yields the number of utterances of each finished job."""
    if not jobs:
        return
    if workers <= 1:
        _write_transfer(parts, map)
        yield from (_write_part(*job) for job in jobs)
        return
    with pool(workers) as executor:
        _write_transfer(parts, executor.map)
        for future in as_completed([executor.submit(_write_part, *job) for job in jobs]):
            yield future.result()


def _transfer_path(parts: Path) -> Path:
    return parts / f"transfer_{REVISION}.npy"


def _write_transfer(parts: Path, apply) -> None:
    """The membrane's transfer function, once for all workers, who map it. apply: `map`, or a pool's."""
    if not _transfer_path(parts).exists():
        blocks = apply(cochlea.transfer_table, np.array_split(cochlea.place(np.arange(cochlea.N_CHANNELS)), 10))
        cochlea.compile_stages()  # meanwhile, once: the workers find the machine code in numba's cache
        image = io.BytesIO()
        np.save(image, np.concatenate(list(blocks)))
        write_atomically(_transfer_path(parts), image.getbuffer())


@lru_cache(1)
def _ear(parts: Path) -> cochlea.Cochlea:
    return cochlea.Cochlea(np.load(_transfer_path(parts), mmap_mode="r"))
