"""SHD made ready for training: generated or unpacked, checked, and named by one hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from elm_lib.datasets.shd import generated, published
from elm_lib.datasets.shd.schema import open_recordings
from elm_lib.datasets.shd.settings import Shd
from elm_lib.support.files import file_digest, write_atomically


def prepare(wanted: Shd, sources: dict, *, raw: Path, out: Path) -> dict:
    """Fill out/train.h5 and out/test.h5, and write out/manifest.json; returns the manifest.

    sources  what the download stage found: {"source": "generated"|"real", "files": {split: file name in raw} or None}
    Manifest: source, files {split: {name: sha256}}, pairs of SHD-Adding {split: n}, sha256 of all. Raises DataError for anything damaged.
    """
    if sources["source"] == "real":
        paths = {
            split: published.unpack(raw / name, out / f"{split}.h5", published.PUBLISHED[split].md5)
            for split, name in sources["files"].items()
        }
    else:
        paths = generated.generate(out, {"train": wanted.train, "test": wanted.test}, wanted.seed)
    for path in paths.values():
        open_recordings(path)
    files = {split: {path.name: file_digest(path)} for split, path in paths.items()}
    pairs = {"valid": wanted.valid_pairs, "test": wanted.test_pairs}
    manifest = {"source": sources["source"], "files": files, "pairs": pairs}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    write_atomically(out / "manifest.json", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return manifest
