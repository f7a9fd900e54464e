"""Many Pathfinder images, part by part: what was drawn before an interruption is not drawn again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from elm_lib.simulate.symbols import pathfinder
from elm_lib.support.files import read_npz, read_or_set_aside, write_npz

PART = {32: 500, 128: 50}  # images in one part: about a second of one core


def draw(folder: Path, n: int, seed: int, size: int, mapped: Callable = map) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images uint8 (k, size, size) and labels int64 (k,) of 0 .. n - 1, in order, in parts that lie in `folder`
    meanwhile.

    folder   kept when this ends early, of use to the next call with the same arguments; removed when it is through
    mapped   map, or that of a pool of processes
    """
    asked = [n, seed, size, PART[size], pathfinder.REVISION]
    name = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    for stale in folder.glob("*"):
        if stale.name != name:
            shutil.rmtree(stale)
    (folder / name).mkdir(parents=True, exist_ok=True)
    jobs = [
        (folder / name / f"{first:07d}.npz", first, min(PART[size], n - first), seed, size)
        for first in range(0, n, PART[size])
    ]
    for path in mapped(draw_part, *zip(*jobs)):
        yield _read_part(path)
    shutil.rmtree(folder)


def _read_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    part = read_npz(path)
    return part["images"], part["labels"]


def draw_part(path: Path, first: int, n: int, seed: int, size: int) -> Path:
    """One part as a file, whole or absent; returns its path."""
    if read_or_set_aside(path, _read_part) is None:
        images, labels = pathfinder.generate(first, n, seed, size)
        write_npz(path, {"images": images, "labels": labels})
    return path
