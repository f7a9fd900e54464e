"""What the data of a run on spoken digits are, without the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elm_lib.datasets.shd import generated
from elm_lib.datasets.shd.settings import Shd
from elm_lib.support import manifest


def recipe(settings: Shd, folder: str | Path, options: dict) -> dict[str, dict]:
    """See `elm_lib.datasets.recipe`. A fifth of the training words are for validation."""
    parts: dict[str, dict[str, Any]]
    if settings.source == "real":
        hashes = manifest.checksums(folder, ("train", "test"), "dvc repro preprocess_shd")
        parts = {name: {"source": "real", "sha256": {name: hashes[name]}} for name in hashes}
    else:
        made = {"source": "generated", "seed": settings.seed, "revision": generated.REVISION}
        parts = {"train": made | {"words": settings.train}, "test": made | {"words": settings.test}}
    if options["adding"]:
        parts["train"]["valid_pairs"] = settings.valid_pairs
        parts["test"]["test_pairs"] = settings.test_pairs
    return parts


def label(settings: Shd, options: dict) -> dict[str, str]:
    """See `elm_lib.datasets.label`."""
    return {"source": settings.source, "morphology": ""}
