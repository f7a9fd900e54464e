"""SHD made ready: generated or unpacked, checked, and named by a hash a split."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elm_lib.datasets.shd import generated, published
from elm_lib.datasets.shd.schema import open_recordings
from elm_lib.datasets.shd.settings import Shd
from elm_lib.support import manifest

SPLITS = ("train", "valid", "test")
RAW = "shd"  # folder of the downloads below that of all data sets


def fetch(wanted: Shd, *, raw: Path) -> dict:
    """Get the published recordings, where the profile asks for them.

    Returns {"source": .., "files": {split: file name}}. Raises DataError where they cannot be had.
    """
    files = published.fetch(raw / RAW) if wanted.source == "real" else {}
    return {"source": wanted.source, "files": {split: path.name for split, path in files.items()}}


def prepare(
    wanted: Shd,
    sources: dict,
    *,
    raw: Path,
    out: Path,
    splits: Iterable[str] = SPLITS,
    most: dict[str, int] | None = None,
) -> dict:
    """Fill out/train.h5, valid.h5, test.h5, as far as asked, and write out/manifest.json; returns the manifest.

    sources  what the download stage found: {"source": "generated"|"real", "files": {split: file name in raw} or None}
    most     {split: n}: of a generated file, no more than its first n words; a later call without it adds the others
    The published data are train.h5 and test.h5, whatever is asked for: the words of validation are some of the train
    file. Manifest: see `elm_lib.support.manifest`; source, and pairs of SHD-Adding {split: n}. Raises DataError for
    anything damaged.
    """
    splits = tuple(splits)
    manifest.release(out, splits)
    if sources["source"] == "real":
        (out / "valid.h5").unlink(missing_ok=True)  # of generated data that were here before
        paths = {
            split: published.unpack(raw / name, out / f"{split}.h5", published.PUBLISHED[split].md5)
            for split, name in sources["files"].items()
        }
    else:
        sizes = wanted.generated_sizes()
        paths = generated.generate(out, sizes, wanted.seed, splits=splits, most=most)
    for path in paths.values():
        open_recordings(path)
    pairs = {"valid": wanted.valid_pairs, "test": wanted.test_pairs}
    files = {split: [path] for split, path in paths.items()}
    return manifest.describe(out, files, source=sources["source"], pairs=pairs)
