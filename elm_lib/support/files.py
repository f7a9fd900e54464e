"""Files that are either whole or absent, also after a kill or a power cut."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from elm_lib.support.errors import DataError

GB = 1e9  # bytes
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the share of this user, what a file may hold
Content = TypeVar("Content")
_UNREADABLE = (DataError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def part_of(path: str | Path) -> Path:
    """The temporary name of a file that is being written. It is fixed, so a run after a kill overwrites what is
    left."""
    path = Path(path)
    return path.with_name(path.name + ".part")


def put_in_place(part: Path, path: Path, *, durable: bool = True) -> None:
    """Give a finished temporary file its name. Content first, then the name, reach the disk before this returns.

    durable  False: the disk may have it later. For notes that nobody misses after a power cut.
    """
    if durable:
        _sync(part)
    os.replace(part, path)
    if durable:
        _sync(path.parent)


def write_atomically(path: str | Path, data: bytes | memoryview, *, durable: bool = True) -> None:
    """Write bytes under a temporary name, then rename. Makes the folder if it is missing.

    durable  see `put_in_place`

    Raises DataError when the disk is full.
    """
    path, part = Path(path), part_of(path)
    with room_for(path, memoryview(data).nbytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            put_in_place(part, path, durable=durable)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def write_text(path: str | Path, text: str, *, durable: bool = True) -> None:
    write_atomically(path, text.encode(), durable=durable)


def write_json(path: str | Path, content) -> None:
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_npz(path: str | Path, arrays: dict[str, np.ndarray], *, compressed: bool = False) -> None:
    """Arrays by name, as `numpy.load` reads them."""
    image = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(image, **arrays)  # type: ignore[arg-type]  # allow_pickle, says mypy, might be a name
    write_atomically(path, image.getbuffer())


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays by name. Raises DataError for a file that was cut off or damaged."""
    try:
        with open(path, "rb") as file, np.load(file) as arrays:  # numpy alone leaves a damaged file open
            return dict(arrays)
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path}: not a whole file of arrays ({reason}): take it from git again, or delete it and run again"
        ) from None


def read_or_set_aside(path: str | Path, read: Callable[[Path], Content]) -> Content | None:
    """What `read(path)` returns; None where the file has to be made: it is missing, or it cannot be read.

    A file that cannot be read is renamed to `<name>.unreadable`, with a warning that says why.
    """
    path = Path(path)
    try:
        return read(path) if path.exists() else None
    except _UNREADABLE as error:
        aside = path.with_name(path.name + ".unreadable")
        os.replace(path, aside)
        reason = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
        warnings.warn(f"{path} cannot be read ({reason}): renamed to {aside.name} and made again", stacklevel=2)
        return None


def need_space(folder: str | Path, n_bytes: float, what: str) -> None:
    """DataError if the disk that holds `folder` (which may not exist yet) has less than n_bytes free."""
    free = _free(Path(folder))
    if free < n_bytes:
        raise DataError(
            f"{Path(folder).absolute()}: {what} needs {amount(n_bytes)} and {amount(free)} are free: "
            "free some, or put the folder on a larger disk"
        )


@contextmanager
def room_for(path: str | Path, n_bytes: float | None = None) -> Iterator[None]:
    """Within it, an error of a full disk is a DataError of one line: file, needed and free space, remedy.

    n_bytes  of the file, as far as it is known
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # HDF5 says some in the text of a RuntimeError alone
        found = re.search(r"\berrno = (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(found[1]) if found else None)
        if number not in FULL:
            raise
        need = "" if n_bytes is None else f"it needs {amount(n_bytes)}, "
        raise DataError(
            f"{path}: {os.strerror(number).lower()}: {need}{amount(_free(Path(path).parent))} are free; make room, "
            "then run again, which goes on where it stopped"
        ) from None


def amount(n_bytes: float) -> str:
    """A number of bytes as people read it."""
    return f"{n_bytes / GB:.1f} GB" if n_bytes >= GB else f"{n_bytes / 1e6:.1f} MB"


def _free(folder: Path) -> int:
    """Bytes that this user can still write on the disk that holds `folder`, which may not exist yet."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Hex digest of a file's content, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
