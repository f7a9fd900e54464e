"""NeuronIO made ready: generated or converted, checked, and named by a hash a split."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elm_lib.datasets.neuronio import published
from elm_lib.datasets.neuronio.generated import generate_split
from elm_lib.datasets.neuronio.morphology import fetch_morphology
from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.support import manifest
from elm_lib.support.workers import usable_cores

SPLITS = ("train", "valid", "test")
RAW = ""  # folder of the downloads below that of all data sets


def fetch(wanted: NeuronIO, *, raw: Path) -> dict:
    """Get what the simulations are made of, where it is not at hand: the cell's reconstruction, or the published files.

    Returns {"source": .., "morphology": file name or None}. Raises DataError where something cannot be had.
    """
    if wanted.source == "real":
        published.fetch(raw / "neuronio")
        return {"source": "real", "morphology": None}
    return {"source": wanted.source, "morphology": fetch_morphology(raw / "l5pc", wanted.morphology).name}


def prepare(
    wanted: NeuronIO,
    sources: dict,
    *,
    raw: Path,
    out: Path,
    splits: Iterable[str] = SPLITS,
    most: dict[str, int] | None = None,
) -> dict:
    """Fill out/<split> for each of `splits`, and write out/manifest.json; returns the manifest.

    sources  what the download stage found: {"source": "generated"|"real", "morphology": file name or None}
    most     {split: n}: of a generated split, no more than the first files that hold n simulations; a later call
             without it adds the others
    Manifest: see `elm_lib.support.manifest`; source, morphology ("exact", "default", or "real" for real data).
    Each split is drawn from a seed of its own, 10 seed + 1, 2, 3. Raises DataError for anything damaged or non-finite.
    """
    splits = tuple(splits)
    manifest.release(out, splits)
    if sources["source"] == "real":
        paths = published.convert(raw / "neuronio", out, splits, workers=usable_cores())
    else:
        paths = {}
        for name in splits:
            split = getattr(wanted, name)
            paths[name] = generate_split(
                out / name,
                split.simulations,
                10 * wanted.seed + 1 + SPLITS.index(name),
                morphology=raw / "l5pc" / sources["morphology"],
                ranges=split.ranges,
                dt_ms=split.dt_ms,
                duration_ms=split.duration_ms,
                most=(most or {}).get(name),
            )
    for path in (p for split in paths.values() for p in split):
        open_simulations(path).verify()
    morphology = "real" if sources["source"] == "real" else wanted.morphology
    return manifest.describe(out, paths, source=sources["source"], morphology=morphology)
