"""What the data of a run on the Long Range Arena are, without the data."""

from __future__ import annotations

from pathlib import Path

from elm_lib.datasets.lra.archives import WHEEL_SHA256
from elm_lib.datasets.lra.settings import Lra, LraTask
from elm_lib.simulate.symbols import listops, pathfinder
from elm_lib.support import manifest
from elm_lib.support.errors import ConfigError

REVISION = 1  # of the stand-ins and of how splits are dealt; raise it by hand when the same settings give other files
DRAWN = ("pathfinder", "pathfinder_x")


def recipe(settings: Lra, folder: str | Path, options: dict) -> dict[str, dict]:
    """See `elm_lib.datasets.recipe`.

    Digits, Image, Text and Retrieval are dealt from one pool and the vocabulary of Text is that of its training set, so
    all sizes stand in both. No training sequence of ListOps is one of the test set, so the training data depend on that
    size too.
    """
    task, asked = _asked(settings, options)
    if asked.source == "real":
        hashes = manifest.checksums(Path(folder) / task, ("train", "valid", "test"), "dvc repro preprocess_lra")
        parts = {"train": {"train": hashes["train"], "valid": hashes["valid"]}, "test": {"test": hashes["test"]}}
        return {name: {"source": "real", "task": task, "sha256": part} for name, part in parts.items()}
    made = {"task": task, "seed": settings.seed, "revision": REVISION, **label(settings, options)}
    del made["morphology"]
    sizes = asked.sizes()
    if task in ("text", "retrieval"):
        made |= {"max_length": asked.max_length, "wheel": WHEEL_SHA256}
    if task in ("text", "retrieval", "image", "digits"):
        return {"train": made | sizes, "test": made | sizes}
    test = {"test": sizes["test"]}
    if task == "listops":
        made |= {"generator": listops.REVISION, "min_length": asked.min_length, "max_length": asked.max_length}
        return {"train": made | sizes, "test": made | test}
    made["generator"] = pathfinder.REVISION
    return {"train": made | {"train": sizes["train"], "valid": sizes["valid"]}, "test": made | test}


def label(settings: Lra, options: dict) -> dict[str, str]:
    """See `elm_lib.datasets.label`."""
    task, asked = _asked(settings, options)
    return {"source": source(task, asked), "morphology": ""}


def source(task: str, asked: LraTask) -> str:
    """What the files of a task say of themselves: one of `schema.SOURCES`."""
    if asked.source == "real":
        return "real"
    if task == "listops":
        full = (asked.min_length, asked.max_length) == listops.LENGTHS
        return "generated" if full else "generated, shortened"
    if task == "digits":
        return "scikit-learn"
    return "generated" if task in DRAWN else "stand-in"


def _asked(settings: Lra, options: dict) -> tuple[str, LraTask]:
    task = options["name"]
    asked = getattr(settings, task)
    if asked is None:
        raise ConfigError(f"params.yaml: lra.{task} is null in this profile: say how it is prepared")
    return task, asked
