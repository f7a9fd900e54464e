"""Fetch one file over HTTP: resumed where it stopped, checked, whole or absent."""

from __future__ import annotations

import errno
import re
import time
from pathlib import Path

import requests

from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, need_space, part_of, put_in_place
from elm_lib.support.processes import progress

CHUNK = 1 << 20  # bytes
TIMEOUT_S = (10, 60)  # s: to connect, and between two pieces


class _Interrupted(Exception):
    """The connection failed in a way that a further attempt may mend."""


def download(
    url: str,
    path: str | Path,
    *,
    checksum: str | None = None,
    attempts: int = 5,
    wait_s: float = 2.0,
) -> Path:
    """Fetch url into path and return it. A path that exists is checked, not fetched again.

    checksum:  "sha256:<hex>" or "md5:<hex>"; None where the source publishes none
    attempts:  how often a failing connection is tried, each going on where the last stopped; wait_s (s) times 1, 2, 4,
               ... in between

    The content collects in `<path>.part`, so a later call, also after a kill, asks for the rest alone. A server that
    cannot resume, or whose file has changed meanwhile (ETag), is asked for all of it.
    Raises DataError (file and remedy) for a wrong checksum, a full disk, an HTTP error or an unreachable server.
    """
    path = Path(path)
    if path.exists():
        _check(path, path, checksum, f"delete it to fetch it again from {url}")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    by_hand = f"run again to go on where it stopped, or put the file there by hand (from {url})"
    for attempt in range(attempts):
        if attempt:
            time.sleep(wait_s * 2 ** (attempt - 1))
        try:
            _fetch(url, part, path)
            break
        except _Interrupted as error:
            reason = error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(f"{path}: no space left on the disk: free some, then {by_hand}") from None
            raise
    else:
        size = part.stat().st_size if part.exists() else 0
        raise DataError(f"{path}: download failed {attempts} times at byte {size} ({reason}): {by_hand}")
    try:
        _check(part, path, checksum, f"it was discarded; run again, or tell who publishes {url}")
    except DataError:
        _discard(part)
        raise
    put_in_place(part, path)
    _etag_file(part).unlink(missing_ok=True)
    return path


def _fetch(url: str, part: Path, path: Path) -> None:
    """Append what is missing to `part`. Raises _Interrupted, DataError or OSError."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # count the bytes of the file, not of a compressed form
    if start:
        headers["Range"] = f"bytes={start}-"
        if _etag_file(part).exists():
            headers["If-Range"] = _etag_file(part).read_text()
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            if response.status_code == 416:  # nothing after `start`: whole already, or not the same file
                whole = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
                if whole and int(whole[1]) == start:
                    return
                _discard(part)
                raise _Interrupted("the server's file is shorter than what was fetched before")
            if response.status_code >= 500 or response.status_code == 429:
                raise _Interrupted(f"HTTP {response.status_code}")
            if response.status_code not in (200, 206):
                raise DataError(
                    f"{path}: {url} answers HTTP {response.status_code}: check the address or put the file there"
                )
            if response.status_code == 200:
                start = 0
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                _discard(part)
                raise _Interrupted("the server resumed at another byte")
            length = response.headers.get("Content-Length")
            total = start + int(length) if length is not None else None
            if length is not None:
                need_space(part.parent, int(length), f"the rest of {path.name}")
            if etag := response.headers.get("ETag", ""):
                _etag_file(part).write_text(etag)
            with open(part, "ab" if start else "wb") as file, progress(total, path.name, "B") as bar:
                bar.unit_scale = True
                bar.update(start)
                for piece in response.iter_content(CHUNK):
                    file.write(piece)
                    bar.update(len(piece))
    except requests.RequestException as error:
        raise _Interrupted(f"{type(error).__name__}") from None
    if total is not None and part.stat().st_size != total:
        raise _Interrupted(f"{part.stat().st_size} of {total} bytes arrived")


def _check(file: Path, path: Path, checksum: str | None, remedy: str) -> None:
    """DataError naming `path` if `file` does not have the checksum."""
    if checksum is None:
        return
    algorithm, expected = checksum.split(":")
    found = file_digest(file, algorithm)
    if found != expected:
        raise DataError(f"{path}: {algorithm} is {found}, not {expected}: {remedy}")


def _etag_file(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _etag_file(part).unlink(missing_ok=True)
