"""Files that are either whole or absent."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

from elm_lib.support.errors import DataError

GB = 1e9  # bytes


def write_atomically(path: str | Path, data: bytes | memoryview) -> None:
    """Write bytes under a temporary name, then rename: the file is whole or absent, also after a kill.

    The temporary name is fixed (`<name>.part`), so that a run after a kill overwrites what the kill left.
    Raises DataError when the disk is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{path}: no space left on the disk: free {memoryview(data).nbytes / GB:.2f} GB") from None
        raise


def need_space(folder: str | Path, n_bytes: float, what: str) -> None:
    """DataError if the disk that holds `folder` (which may not exist yet) has less than n_bytes free."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise DataError(
            f"{folder}: {what} needs {n_bytes / GB:.1f} GB and {free / GB:.1f} GB are free: free some, or put the folder on a larger disk"
        )


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Hex digest of a file's content, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def write_text(path: str | Path, text: str) -> None:
    write_atomically(Path(path), text.encode())


def write_json(path: str | Path, content) -> None:
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
