"""What the data of a NeuronIO run are, without the data."""

from __future__ import annotations

from pathlib import Path

from elm_lib.datasets.neuronio import generated
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.support import manifest


def recipe(settings: NeuronIO, folder: str | Path, options: dict) -> dict[str, dict]:
    """See `elm_lib.datasets.recipe`."""
    if settings.source == "real":
        hashes = manifest.checksums(folder, ("train", "valid", "test"), "dvc repro preprocess_neuronio")
        parts = {"train": {"train": hashes["train"], "valid": hashes["valid"]}, "test": {"test": hashes["test"]}}
        return {name: {"source": "real", "sha256": part} for name, part in parts.items()}
    made = {
        "source": "generated",
        "morphology": settings.morphology,
        "seed": settings.seed,
        "revision": generated.REVISION,
    }
    split = {name: getattr(settings, name).model_dump() for name in ("train", "valid", "test")}
    return {"train": made | {"train": split["train"], "valid": split["valid"]}, "test": made | {"test": split["test"]}}


def label(settings: NeuronIO, options: dict) -> dict[str, str]:
    """See `elm_lib.datasets.label`."""
    return {"source": settings.source, "morphology": settings.morphology if settings.source == "generated" else ""}
