"""What the data of a NeuronIO run are, without the data."""

from __future__ import annotations

from pathlib import Path

from elm_lib.datasets.neuronio import generated
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.simulate import point_neurons
from elm_lib.support import manifest


def recipe(settings: NeuronIO, folder: str | Path, options: dict) -> dict[str, dict]:
    """See `elm_lib.datasets.recipe`."""
    if settings.source == "real":
        hashes = manifest.checksums(folder, ("train", "valid", "test"), "dvc repro preprocess_neuronio")
        parts = {"train": {"train": hashes["train"], "valid": hashes["valid"]}, "test": {"test": hashes["test"]}}
        found = {name: {"source": "real", "sha256": part} for name, part in parts.items()}
    else:
        made = {
            "source": "generated",
            "morphology": settings.morphology,
            "seed": settings.seed,
            "revision": generated.REVISION,
        }
        split = {name: getattr(settings, name).model_dump() for name in ("train", "valid", "test")}
        found = {
            "train": made | {"train": split["train"], "valid": split["valid"]},
            "test": made | {"test": split["test"]},
        }
    teacher = options.get("teacher")
    taught = {"teacher": {"kind": teacher, "revision": point_neurons.REVISION}} if teacher else {}
    return {name: part | taught for name, part in found.items()}


def label(settings: NeuronIO, options: dict) -> dict[str, str]:
    """See `elm_lib.datasets.label`."""
    if options.get("teacher"):
        return {"source": "generated", "morphology": "point neuron"}
    return {"source": settings.source, "morphology": settings.morphology if settings.source == "generated" else ""}
