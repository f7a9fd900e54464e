"""The Long Range Arena made ready: generated, stood in for or converted, checked, and named by a hash a split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from elm_lib.datasets.lra import archives, generated, published, recipe
from elm_lib.datasets.lra.archives import ARCHIVES, RELEASE, WHEEL_NAME, place
from elm_lib.datasets.lra.published import grey_levels
from elm_lib.datasets.lra.recipe import DRAWN, REVISION
from elm_lib.datasets.lra.schema import FIRST_SYMBOL, FORMS, SOURCES, SPLITS, SplitWriter, open_split
from elm_lib.datasets.lra.settings import Lra, LraTask
from elm_lib.datasets.lra.text import PRINTABLE, deal, pair_halves, read_reviews, vocabulary, write_texts
from elm_lib.simulate.symbols import listops, pathfinder
from elm_lib.support import manifest
from elm_lib.support.errors import DataError
from elm_lib.support.files import read_or_set_aside
from elm_lib.support.processes import progress
from elm_lib.support.workers import pool, usable_cores

RAW = "lra"  # folder of the downloads below that of all data sets
_FEW = 2000  # pictures that are drawn sooner than processes start


def fetch(wanted: Lra, *, raw: Path) -> dict[str, str]:
    """Get the archives that the tasks are made from. Returns {file name: sha256}. Raises DataError where one cannot be
    had."""
    return archives.fetch(raw / RAW, wanted)


def prepare(
    wanted: Lra,
    found: dict[str, str],
    *,
    raw: Path,
    out: Path,
    splits: Iterable[str] = SPLITS,
    workers: int | None = None,
) -> dict[str, dict]:
    """Fill out/<task>/<split>.h5 and manifest.json for each task that `wanted` names; returns the manifests, with
    `samples`.

    found    what the download stage has: {file name: sha256}
    splits   generated ListOps and Pathfinder make no others; the rest is dealt from one pool, all of it at once
    workers  processes that draw pictures; all usable cores by default
    Manifest: see `elm_lib.support.manifest`; task, source and what it means (lra_schema.SOURCES), n_tokens, n_classes.
    A task whose files are there, made by the same settings, is left as it is. Raises DataError.
    """
    asked_splits, tasks = tuple(split for split in SPLITS if split in set(splits)), dict(wanted.tasks())
    made = {task: asked_splits if _is_split_by_split(task, asked) else SPLITS for task, asked in tasks.items()}
    workers = workers or usable_cores()
    for task in tasks:
        manifest.release(out / task, made[task])
    missing = {task: _missing(out / task, made[task], _provenance(wanted, task, found)) for task in tasks}
    release = {}
    drawn = sum(
        tasks[task].generated_sizes()[split]
        for task in tasks
        if _is_drawn(task, tasks[task])
        for split in missing[task]
    )
    with _drawing(drawn, workers) as mapped:
        for task in (task for task in tasks if missing[task]):
            asked, provenance, seed = tasks[task], _provenance(wanted, task, found), 10 * wanted.seed
            if task == "listops" and asked.source == "generated":
                _listops(out / task, asked, seed, provenance, missing[task])
            elif _is_drawn(task, asked):
                for split in missing[task]:
                    number = SPLITS.index(split) + 1
                    path = out / task / f"{split}.h5"
                    _pictures(path, task, asked.generated_sizes()[split], seed + number, provenance, mapped)
            elif task in ("image", "digits") and asked.source == "generated":
                _digits(out / task, task, asked, seed, provenance)
            elif asked.source == "generated":
                _reviews(out / task, task, asked, seed, raw, provenance)
            elif ARCHIVES[task] is RELEASE:
                release[task] = (asked.sizes(), asked.max_length, provenance)
            elif task == "text":
                published.convert_imdb(place(raw, ARCHIVES[task]), out, asked.sizes(), asked.max_length, provenance)
            else:
                published.convert_cifar(place(raw, ARCHIVES[task]), out, asked.sizes(), provenance)
    if release:
        published.convert_release(place(raw, RELEASE), out, release)
    return {task: _describe(out / task, task, made[task]) for task in tasks}


def _provenance(wanted: Lra, task: str, found: dict[str, str]) -> dict:
    """What the files of a task depend on."""
    asked = getattr(wanted, task)
    made = {"prepare": REVISION, "settings": asked.model_dump()}
    if asked.source == "real":
        archive = ARCHIVES[task].name
        return {**made, "archive": archive, "sha256": found.get(archive), "reader": published.READER_VERSION}
    made["seed"] = wanted.seed
    if task in ("text", "retrieval"):
        made |= {"archive": WHEEL_NAME, "sha256": found.get(WHEEL_NAME)}
    elif task == "listops":
        made["generator"] = listops.REVISION
    elif task in DRAWN:
        made["generator"] = pathfinder.REVISION
    return made


def _is_drawn(task: str, asked: LraTask) -> bool:
    return task in DRAWN and asked.source == "generated"


def _is_split_by_split(task: str, asked: LraTask) -> bool:
    return asked.source == "generated" and task in ("listops", *DRAWN)


def _missing(folder: Path, splits: tuple[str, ...], provenance: dict) -> tuple[str, ...]:
    """Splits whose file is not there, or was made otherwise."""

    def is_done(split: str) -> bool:
        found = read_or_set_aside(folder / f"{split}.h5", open_split)
        return found is not None and all(found.provenance.get(key) == value for key, value in provenance.items())

    return tuple(split for split in splits if not is_done(split))


def _listops(folder: Path, asked: LraTask, seed: int, provenance: dict, splits: tuple[str, ...]) -> None:
    """The three splits are drawn from seeds of their own, seed + 1, 2, 3; what was drawn for test never comes up in
    train."""
    drawn: set[bytes] = set()
    for split in ("test", "valid", "train"):  # a larger training set leaves the others as they are
        try:
            symbols, row_ptr, values = listops.generate(
                asked.generated_sizes()[split],
                seed + SPLITS.index(split) + 1,
                lengths=asked.lengths,
                without=drawn,
            )
        except ValueError as error:
            raise DataError(f"lra.listops: {error}: ask for fewer, or for other lengths") from None
        if split in splits:
            source = recipe.source("listops", asked)
            with SplitWriter(folder / f"{split}.h5", "listops", source=source, provenance=provenance) as writer:
                writer.add(symbols + np.uint8(FIRST_SYMBOL), np.diff(row_ptr), values)
        if set(splits) <= set(SPLITS[SPLITS.index(split) :]):  # train, the largest, only where it is asked for
            return


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


def _digits(folder: Path, task: str, asked: LraTask, seed: int, provenance: dict) -> None:
    """Scikit-learn's 1,797 handwritten digits: as they are, 8 x 8 in 17 levels, or enlarged to 32 x 32 as the stand-in
    of Image."""
    digits = load_digits()
    if task == "digits":
        levels = digits.images.astype(np.uint8)
    else:
        large = zoom(digits.images, (1, 4, 4), order=1, mode="nearest", grid_mode=True)
        levels = grey_levels(np.rint(large * (255 / 16)).astype(np.uint8), FORMS[task].n_tokens)
    levels, source = levels.reshape(len(digits.target), -1), recipe.source(task, asked)
    for split, chosen in deal(len(levels), asked.generated_sizes(), seed, f"lra.{task}: digits").items():
        with SplitWriter(folder / f"{split}.h5", task, source=source, provenance=provenance) as writer:
            writer.add(levels[chosen], np.full(len(chosen), levels.shape[1]), digits.target[chosen])


def _reviews(folder: Path, task: str, asked: LraTask, seed: int, raw: Path, provenance: dict) -> None:
    texts, labels = read_reviews(raw / WHEEL_NAME)
    dealt = deal(len(texts), asked.generated_sizes(), seed, f"lra.{task}: reviews")
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


def _describe(folder: Path, task: str, names: tuple[str, ...]) -> dict:
    splits = {name: open_split(folder / f"{name}.h5").verify() for name in names}
    source = next(iter(splits.values())).source
    described = manifest.describe(
        folder,
        {name: [split.path] for name, split in splits.items()},
        task=task,
        source=source,
        meaning=SOURCES[source],
        n_tokens=FORMS[task].n_tokens,
        n_classes=FORMS[task].n_classes,
    )
    return described | {"samples": {name: len(split) for name, split in splits.items()}}
