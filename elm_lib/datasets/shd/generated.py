"""Generated SHD: spoken digits through the artificial cochlea, one file in the published layout.

Utterance i of a split depends on (seed, split, i) and on what `provenance` lists, on nothing else: not on the number of workers,
not on what was interrupted when. What is done is kept in parts, so a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from concurrent.futures import as_completed
from contextlib import nullcontext
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from elm_lib.datasets.shd.schema import read_provenance, write_recordings
from elm_lib.simulate.speech import cochlea, voices
from elm_lib.support import processes
from elm_lib.support.files import need_space, write_atomically
from elm_lib.support.workers import pool, usable_cores

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md
PART = 20  # utterances of one file that a worker writes
BYTES_PER_UTTERANCE = 60_000
SPLITS = {"train": 1, "test": 2}
HELD_OUT = (4, 5)  # speakers of the test set alone, as in the real data
KNOWN = tuple(s for s in range(len(voices.SPEAKERS)) if s not in HELD_OUT)
TEST_BLOCKS_KNOWN = (
    5  # one of five blocks of the test set is by a speaker of the training set, about as in the real data
)


def plan(split: str, i: int) -> tuple[int, int]:
    """(label, speaker) of utterance i: blocks of all 20 words by one speaker, speakers in turn."""
    block, label = divmod(i, len(voices.WORDS))
    if split == "train":
        return label, KNOWN[block % len(KNOWN)]
    group, turn = divmod(block, TEST_BLOCKS_KNOWN)
    if turn == TEST_BLOCKS_KNOWN - 1:
        return label, KNOWN[group % len(KNOWN)]
    return label, HELD_OUT[turn % len(HELD_OUT)]


def utterance(split: str, i: int, seed: int, ear: cochlea.Cochlea) -> tuple[np.ndarray, np.ndarray]:
    """Spikes of utterance i: times in s and channels."""
    rng = np.random.default_rng([seed, SPLITS[split], i])
    return ear.spikes(voices.utter(*plan(split, i), rng), rng)


def provenance(split: str, n: int, seed: int) -> dict:
    """What the bytes of a file depend on."""
    return {
        "generator": "elm_lib.datasets.shd.generated",
        "generator_version": REVISION,
        "split": split,
        "seed": seed,
        "utterances": n,
        "espeakng_loader": version("espeakng-loader"),
    }


def generate(
    folder: str | os.PathLike, sizes: dict[str, int], seed: int, *, workers: int | None = None, progress: bool = True
) -> dict[str, Path]:
    """Make folder/train.h5 and folder/test.h5 where they are not there yet, and return them.

    sizes: {"train": utterances, "test": utterances}. workers: processes, all usable cores by default.
    Raises DataError: no space. ValueError: a size below 1.
    """
    folder = Path(folder)
    if min(sizes.values()) < 1:
        raise ValueError(f"sizes = {sizes}: at least 1 utterance each")
    paths = {split: folder / f"{split}.h5" for split in sizes}
    wanted = [split for split in sizes if read_provenance(paths[split]) != provenance(split, sizes[split], seed)]
    if not wanted:
        return paths
    n_wanted = sum(sizes[split] for split in wanted)
    need_space(folder, n_wanted * BYTES_PER_UTTERANCE, f"{n_wanted} utterances")
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    jobs = [
        (parts, split, first, min(PART, sizes[split] - first), seed)
        for split in wanted
        for first in range(0, sizes[split], PART)
    ]
    missing = [job for job in jobs if _read_part(*job) is None]
    done = n_wanted - sum(job[3] for job in missing)
    with processes.progress(n_wanted, "spoken digits", "digit", done) if progress else nullcontext() as bar:
        for n in _run(missing, min(workers or usable_cores(), len(missing)), parts):
            if bar is not None:
                bar.update(n)
    for split in wanted:
        spikes = [pair for job in jobs if job[1] == split for pair in _read_part(*job)]
        labels, speakers = zip(*(plan(split, i) for i in range(sizes[split])), strict=True)
        write_recordings(
            paths[split],
            spikes,
            np.array(labels),
            np.array(speakers),
            words=voices.WORDS,
            genders=[who.gender for who in voices.SPEAKERS],
            source="generated",
            provenance=provenance(split, sizes[split], seed),
        )
    shutil.rmtree(parts)
    return paths


def _part_path(parts: Path, split: str, first: int) -> Path:
    return parts / f"{split}_{first:06d}.npz"


def _part_provenance(split: str, first: int, n: int, seed: int) -> str:
    return json.dumps(provenance(split, n, seed) | {"first": first}, sort_keys=True)


def _read_part(parts: Path, split: str, first: int, n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Spikes of utterances first .. first + n - 1; None where they have to be made."""
    try:
        with np.load(io.BytesIO(_part_path(parts, split, first).read_bytes())) as found:
            if str(found["provenance"]) != _part_provenance(split, first, n, seed):
                return None
            ends = found["row_ptr"][1:-1]
            return list(zip(np.split(found["time_s"], ends), np.split(found["channel"], ends), strict=True))
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        zipfile.BadZipFile,
    ):  # absent, damaged, of other settings: made again
        return None


def _write_part(parts: Path, split: str, first: int, n: int, seed: int) -> int:
    ear = _ear(parts)
    spikes = [utterance(split, i, seed, ear) for i in range(first, first + n)]
    image = io.BytesIO()
    np.savez(
        image,
        provenance=_part_provenance(split, first, n, seed),
        row_ptr=np.cumsum([0] + [len(t) for t, _ in spikes]),
        time_s=np.concatenate([t for t, _ in spikes]).astype(np.float16),
        channel=np.concatenate([c for _, c in spikes]).astype(np.uint16),
    )
    write_atomically(_part_path(parts, split, first), image.getbuffer())
    return n


def _run(jobs: list[tuple], workers: int, parts: Path):
    """Yields the number of utterances of each finished job."""
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
