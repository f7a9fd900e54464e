"""manifest.json: what a folder holds, with a checksum of every file.

A prepared data set has in it

    source, ...   what is true of all splits
    files         {split: {path below the folder: sha256}}
    sha256        {split: hash over its files}

A folder of published files has in it what each file was when it was first seen: `enter`.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, read_or_set_aside, write_json

NAME = "manifest.json"


def describe(folder: str | Path, splits: dict[str, list[Path]], **facts: Any) -> dict:
    """Write the manifest of a prepared data set and return it.

    splits  the files of each split that was made, below `folder`
    facts   JSON-able, true of all splits
    Splits that an earlier call described stay, if the facts are the same and their files are there.
    """
    folder = Path(folder)
    files = {
        split: {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(paths)}
        for split, paths in splits.items()
    }
    former = read_or_set_aside(folder / NAME, lambda path: _load(path.parent)) or {}
    if {key: value for key, value in former.items() if key not in ("files", "sha256")} == _as_json(facts):
        kept = {
            split: names
            for split, names in former.get("files", {}).items()
            if split not in files and all((folder / name).is_file() for name in names)
        }
        files = kept | files
    manifest = {**facts, "files": files, "sha256": {split: _digest(names) for split, names in files.items()}}
    write_json(folder / NAME, manifest)
    return _as_json(manifest)


def release(folder: str | Path, splits: Iterable[str]) -> None:
    """Compare the files of some splits with the manifest, then take them out of it: they are about to be made again
    where they are missing, and described anew.

    A file with another checksum is renamed to `<name>.changed`, with a warning: somebody or something has changed it
    since it was made. A manifest that cannot be read is set aside.
    """
    folder = Path(folder)
    manifest = read_or_set_aside(folder / NAME, lambda path: _load(path.parent)) or {}
    listed = {split: manifest.get("files", {}).get(split, {}) for split in splits}
    for name, sha256 in (item for names in listed.values() for item in names.items()):
        path = folder / name
        if path.is_file() and file_digest(path) != sha256:
            aside = path.with_name(path.name + ".changed")
            os.replace(path, aside)
            warnings.warn(
                f"{path} is not as it was made (sha256 in {NAME}): renamed to {aside.name} and made again", stacklevel=2
            )
    if any(listed.values()):
        for part in ("files", "sha256"):
            manifest[part] = {split: kept for split, kept in manifest[part].items() if split not in listed}
        write_json(folder / NAME, manifest)


def checksums(folder: str | Path, splits: tuple[str, ...], command: str) -> dict[str, str]:
    """{split: sha256} of a prepared data set. Raises DataError, which names the command that prepares it."""
    path = Path(folder) / NAME
    known = _load(Path(folder)).get("sha256", {}) if path.exists() else {}
    missing = [split for split in splits if split not in known]
    if missing:
        raise DataError(f"{path}: does not say what {', '.join(missing)} holds: run `{command}`")
    return {split: known[split] for split in splits}


def entered(folder: str | Path) -> dict[str, dict]:
    """What was entered so far of published files; {} at first. Raises DataError for a damaged manifest."""
    return _load(Path(folder)) if (Path(folder) / NAME).exists() else {}


def enter(folder: str | Path, name: str, entry: dict) -> None:
    """Enter published files under a name, in place of what stood there."""
    write_json(Path(folder) / NAME, {**entered(folder), name: entry})


def seen(path: Path) -> dict[str, Any]:
    """The entry of one published file: its size in bytes and sha256."""
    return {"bytes": path.stat().st_size, "sha256": file_digest(path)}


def _load(folder: Path) -> dict:
    path = folder / NAME
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise DataError(
            f"{path}: not JSON ({error}): restore it, or delete it to trust the files as they are"
        ) from None


def _digest(content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _as_json(content):
    return json.loads(json.dumps(content))
