"""The Long Range Arena made ready for training: generated, stood in for or converted, checked, and named by one hash a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from elm_lib.datasets.lra import generated, published
from elm_lib.datasets.lra.archives import ARCHIVES, RELEASE, WHEEL_NAME, place
from elm_lib.datasets.lra.published import grey_levels
from elm_lib.datasets.lra.schema import FIRST_SYMBOL, FORMS, SOURCES, SPLITS, SplitWriter, open_split
from elm_lib.datasets.lra.settings import Lra, LraTask
from elm_lib.datasets.lra.text import PRINTABLE, deal, pair_halves, read_reviews, vocabulary, write_texts
from elm_lib.simulate.symbols import listops, pathfinder
from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, write_atomically
from elm_lib.support.processes import progress
from elm_lib.support.workers import pool, usable_cores

PREPARE_VERSION = 1  # raise it when the same settings give other files
_DRAWN = ("pathfinder", "pathfinder_x")
_FEW = 2000  # pictures that are drawn sooner than processes start


def prepare(wanted: Lra, found: dict[str, str], *, raw: Path, out: Path, workers: int | None = None) -> dict[str, dict]:
    """Fill out/<task>/{train,valid,test}.h5 and manifest.json for each task that `wanted` names; returns the manifests.

    found    what the download stage has: {file name: sha256}
    workers  processes that draw pictures; all usable cores by default
    Manifest: task, source and what it means (lra_schema.SOURCES), samples, files {name: sha256}, sha256 of all.
    A task whose files are there, made by the same settings, is left as it is. Raises DataError.
    """
    tasks = dict(wanted.tasks())
    workers = workers or usable_cores()
    missing = {
        task: asked for task, asked in tasks.items() if not _is_done(out / task, _provenance(wanted, task, found))
    }
    release = {}
    drawn = sum(sum(asked.sizes().values()) for task, asked in missing.items() if _is_drawn(task, asked))
    with _drawing(drawn, workers) as mapped:
        for task, asked in missing.items():
            provenance = _provenance(wanted, task, found)
            if asked.source == "generated":
                _generate(task, asked, 10 * wanted.seed, raw, out, provenance, mapped)
            elif ARCHIVES[task] is RELEASE:
                release[task] = (asked.sizes(), asked.max_length, provenance)
            elif task == "text":
                published.convert_imdb(place(raw, ARCHIVES[task]), out, asked.sizes(), asked.max_length, provenance)
            else:
                published.convert_cifar(place(raw, ARCHIVES[task]), out, asked.sizes(), provenance)
    if release:
        published.convert_release(place(raw, RELEASE), out, release)
    return {task: _manifest(out / task, task) for task in tasks}


def _provenance(wanted: Lra, task: str, found: dict[str, str]) -> dict:
    """What the files of a task depend on."""
    asked = getattr(wanted, task)
    made = {"prepare": PREPARE_VERSION, "settings": asked.model_dump()}
    if asked.source == "real":
        archive = ARCHIVES[task].name
        return {**made, "archive": archive, "sha256": found.get(archive), "reader": published.READER_VERSION}
    made["seed"] = wanted.seed
    if task in ("text", "retrieval"):
        made |= {"archive": WHEEL_NAME, "sha256": found.get(WHEEL_NAME)}
    elif task == "listops":
        made["generator"] = listops.REVISION
    elif task != "image":
        made["generator"] = pathfinder.REVISION
    return made


def _is_drawn(task: str, asked: LraTask) -> bool:
    return task in _DRAWN and asked.source == "generated"


def _is_done(folder: Path, provenance: dict) -> bool:
    try:
        splits = [open_split(folder / f"{split}.h5") for split in SPLITS]
    except DataError:  # absent, damaged, or of another schema: made again
        return False
    return all(split.provenance.get(key) == value for split in splits for key, value in provenance.items())


def _generate(task: str, asked: LraTask, seed: int, raw: Path, out: Path, provenance: dict, mapped: Callable) -> None:
    """The three splits of a task from seeds of their own, seed + 1, 2, 3; what was drawn for test never comes up in train."""
    folder = out / task
    if task == "listops":
        _listops(folder, asked, seed, provenance)
    elif task in _DRAWN:
        for number, split in enumerate(SPLITS, start=1):
            _pictures(folder / f"{split}.h5", task, asked.sizes()[split], seed + number, provenance, mapped)
    elif task == "image":
        _digits(folder, asked, seed, provenance)
    else:
        _reviews(folder, task, asked, seed, raw, provenance)


def _listops(folder: Path, asked: LraTask, seed: int, provenance: dict) -> None:
    lengths = (asked.min_length, asked.max_length)
    source = "generated" if lengths == listops.LENGTHS else "generated, shortened"
    drawn: set[bytes] = set()
    for split in ("test", "valid", "train"):  # a larger training set leaves the others as they are
        number = SPLITS.index(split) + 1
        try:
            symbols, row_ptr, values = listops.generate(
                asked.sizes()[split], seed + number, lengths=lengths, without=drawn
            )
        except ValueError as error:
            raise DataError(f"lra.listops: {error}: ask for fewer, or for other lengths") from None
        with SplitWriter(folder / f"{split}.h5", "listops", source=source, provenance=provenance) as writer:
            writer.add(symbols + np.uint8(FIRST_SYMBOL), np.diff(row_ptr), values)


def _pictures(path: Path, task: str, n: int, seed: int, provenance: dict, mapped: Callable) -> None:
    size = 32 if task == "pathfinder" else 128
    parts = path.with_name(f"{path.stem}.parts")
    with (
        SplitWriter(path, task, source="generated", provenance=provenance) as writer,
        progress(n, f"{task} {path.stem}", "picture") as bar,
    ):
        for images, labels in generated.draw(parts, n, seed, size, mapped):
            writer.add(grey_levels(images, FORMS[task].n_tokens), np.full(len(labels), size**2), labels)
            bar.update(len(labels))


@contextmanager
def _drawing(n_pictures: int, workers: int) -> Iterator[Callable]:
    """A function like map that draws pictures in processes, in order; here, where few are wanted."""
    if workers <= 1 or n_pictures < _FEW:
        yield map
        return
    pathfinder.generate(0, 1, 0)  # compile here, once; the workers find the machine code in numba's cache
    with pool(workers) as executor:
        yield executor.map


def _digits(folder: Path, asked: LraTask, seed: int, provenance: dict) -> None:
    """Scikit-learn's 1,797 handwritten digits, 8 x 8 in 17 levels, enlarged to 32 x 32: the stand-in of Image."""
    digits = load_digits()
    large = zoom(digits.images, (1, 4, 4), order=1, mode="nearest", grid_mode=True)
    grey = np.rint(large * (255 / 16)).astype(np.uint8)
    for split, chosen in deal(len(grey), asked.sizes(), seed, "lra.image: digits").items():
        with SplitWriter(folder / f"{split}.h5", "image", source="stand-in", provenance=provenance) as writer:
            writer.add(
                grey_levels(grey[chosen], FORMS["image"].n_tokens), np.full(len(chosen), 1024), digits.target[chosen]
            )


def _reviews(folder: Path, task: str, asked: LraTask, seed: int, raw: Path, provenance: dict) -> None:
    texts, labels = read_reviews(raw / WHEEL_NAME)
    dealt = deal(len(texts), asked.sizes(), seed, f"lra.{task}: reviews")
    values = vocabulary(texts[i] for i in dealt["train"]) if task == "text" else PRINTABLE
    for number, (split, chosen) in enumerate(dealt.items(), start=1):
        some = [texts[i] for i in chosen]
        samples, y = ([[t] for t in some], labels[chosen]) if task == "text" else pair_halves(some, seed + number)
        write_texts(
            folder / f"{split}.h5",
            task,
            samples,
            y,
            values=values,
            max_length=asked.max_length,
            source="stand-in",
            provenance=provenance,
        )


def _manifest(folder: Path, task: str) -> dict:
    splits = {split: open_split(folder / f"{split}.h5").verify() for split in SPLITS}
    manifest = {
        "task": task,
        "source": splits["train"].source,
        "meaning": SOURCES[splits["train"].source],
        "n_tokens": FORMS[task].n_tokens,
        "n_classes": FORMS[task].n_classes,
        "samples": {name: len(split) for name, split in splits.items()},
        "files": {split.path.name: file_digest(split.path) for split in splits.values()},
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    write_atomically(folder / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return manifest
