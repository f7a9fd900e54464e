"""NeuronIO made ready for training: generated or converted, checked, and named by one hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from elm_lib.datasets.neuronio import published
from elm_lib.datasets.neuronio.generated import generate_split
from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.support.files import file_digest, write_atomically
from elm_lib.support.workers import usable_cores

SPLITS = ("train", "valid", "test")


def prepare(wanted: NeuronIO, sources: dict, *, raw: Path, out: Path) -> dict:
    """Fill out/train, out/valid and out/test, and write out/manifest.json; returns the manifest.

    sources  what the download stage found: {"source": "generated"|"real", "morphology": file name or None}
    Manifest: source, morphology ("exact", "default", or "real" for real data), files {split: {name: sha256}}, sha256 of all.
    Each split is drawn from a seed of its own, 10 seed + 1, 2, 3. Raises DataError for anything damaged or non-finite.
    """
    if sources["source"] == "real":
        paths = published.convert(raw / "neuronio", out, SPLITS, workers=usable_cores())
    else:
        paths = {}
        for number, name in enumerate(SPLITS, start=1):
            split = getattr(wanted, name)
            paths[name] = generate_split(
                out / name,
                split.simulations,
                10 * wanted.seed + number,
                morphology=raw / "l5pc" / sources["morphology"],
                ranges=split.ranges,
                dt_ms=split.dt_ms,
                duration_ms=split.duration_ms,
            )
    for path in (p for split in paths.values() for p in split):
        open_simulations(path).verify()
    files = {name: {path.name: file_digest(path) for path in sorted(split)} for name, split in paths.items()}
    morphology = "real" if sources["source"] == "real" else wanted.morphology
    manifest = {"source": sources["source"], "morphology": morphology, "files": files}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    write_atomically(out / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return manifest
