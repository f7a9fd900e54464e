"""Fetch one file over HTTP: resumed where it stopped, checked, whole or absent."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from elm_lib.support.errors import DataError
from elm_lib.support.files import GB, amount, file_digest, need_space, part_of, put_in_place, room_for, write_text
from elm_lib.support.processes import progress

CHUNK = 1 << 20  # bytes, at most, of a piece; what has come is written, however little
TIMEOUT_S = (10, 60)  # s: to connect, and between two pieces
STALL_S, STALL_BYTES = 120.0, 100_000  # a connection that brings less than so many bytes in so many s is given up
LIMIT_S = 48 * 3600.0  # s: of one call
MOST_BYTES = 100 * GB  # of a file whose size nobody says
LOOPBACK = ("127.0.0.1", "localhost", "::1")  # may be asked without https


class _Interrupted(Exception):
    """The connection failed in a way that a further attempt may mend."""


def download(
    url: str,
    path: str | Path,
    *,
    checksum: str | None = None,
    checksum_of: str = "",
    most_bytes: float = MOST_BYTES,
    check: Callable[[Path], None] = lambda part: None,
    attempts: int = 5,
    wait_s: float = 2.0,
) -> Path:
    """Fetch url into path and return it. A path that exists is compared with the checksum, not fetched again.

    checksum     "sha256:<hex>" or "md5:<hex>"; None where the source publishes none
    checksum_of  where the checksum comes from, if not from the publisher: for the message
    most_bytes   a larger file is refused
    check        raises DataError for a file that is not what it should be, before it gets its name
    attempts     how often in a row a connection may bring nothing, wait_s (s) times 1, 2, 4, ... in between

    The content collects in `<path>.part`, so a later call, also after a kill, asks for the rest alone. A server that
    cannot resume, or whose file has changed meanwhile (ETag), is asked for all of it. What came and is refused is set
    aside as `<path>.rejected`, with the reason in `<path>.rejected.txt`.
    Raises DataError (file and remedy) for a wrong checksum, a full disk, an HTTP error, an unreachable server, an
    address that ends in plain http, or when STALL_S and LIMIT_S are over.
    """
    path, until = Path(path), time.monotonic() + LIMIT_S
    _parts(path, checksum)
    if path.exists():
        _compare(path, path, checksum, f"delete it to fetch it again from {url}")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    by_hand = f"run again to go on where it stopped, or put the file there by hand (from {url})"
    failures = 0
    while True:
        before = _size(part)
        try:
            with room_for(path):
                _fetch(url, part, path, most_bytes, until)
            break
        except _Interrupted as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= attempts:
                raise DataError(
                    f"{path}: download failed {failures} times at byte {_size(part)} ({error}): {by_hand}"
                ) from None
            if time.monotonic() > until:
                raise DataError(
                    f"{path}: download took {LIMIT_S / 3600:.3g} h, to byte {_size(part)}: {by_hand}"
                ) from None
            time.sleep(wait_s * 2 ** (failures - 1))
    named = f"the entry {checksum_of}" if checksum_of else "its publisher"
    remedy = f"look into {path.name}.rejected; if it is the right file, correct {named}, else tell who publishes {url}"
    try:
        _compare(part, path, checksum, remedy, f" of {checksum_of}" if checksum_of else "")
        check(part)
    except DataError as error:
        reason = str(error).replace(str(part), str(path))
        _reject(part, path, reason)
        raise DataError(reason if ".rejected" in reason else f"{reason}; look into {path.name}.rejected") from None
    put_in_place(part, path)
    _etag_file(part).unlink(missing_ok=True)
    return path


def _fetch(url: str, part: Path, path: Path, most_bytes: float, until: float) -> None:
    """Append what is missing to `part`. Raises _Interrupted, DataError or OSError."""
    start = _size(part)
    headers = {"Accept-Encoding": "identity"}  # count the bytes of the file, not of a compressed form
    if start:
        headers["Range"] = f"bytes={start}-"
        if _etag_file(part).exists():
            headers["If-Range"] = _etag_file(part).read_text()
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            final = urlsplit(response.url)
            if final.scheme != "https" and final.hostname not in LOOPBACK:
                raise DataError(
                    f"{path}: {url} leads to {response.url}, which anybody on the way can change: "
                    "give an address with https, or put the file there by hand"
                )
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
            total = _total(response.headers.get("Content-Length"), start, path, url)
            if total is not None:
                _check_size(total, most_bytes, path, url)
                need_space(part.parent, total - start, f"the rest of {path.name}")
            if etag := response.headers.get("ETag", ""):
                write_text(_etag_file(part), etag, durable=False)
            with open(part, "ab" if start else "wb") as file, progress(total, path.name, "B") as bar:
                bar.unit_scale = True
                bar.update(start)
                looked_at, since = time.monotonic(), 0
                while piece := response.raw.read1(CHUNK):
                    file.write(piece)
                    bar.update(len(piece))
                    start, since, now = start + len(piece), since + len(piece), time.monotonic()
                    _check_size(start, most_bytes, path, url)
                    if now > until:
                        raise _Interrupted("the time is over")
                    if now - looked_at > STALL_S:
                        if since < STALL_BYTES:
                            raise _Interrupted(f"{since} bytes in {STALL_S:.0f} s")
                        looked_at, since = now, 0
    except (requests.RequestException, HTTPError) as error:
        raise _Interrupted(f"{type(error).__name__}") from None
    if total is not None and _size(part) != total:
        raise _Interrupted(f"{_size(part)} of {total} bytes arrived")


def _total(length: str | None, start: int, path: Path, url: str) -> int | None:
    """Bytes of the whole file; None where the server does not say how many come."""
    if length is None:
        return None
    if not re.fullmatch(r"\d{1,18}", length.strip(), re.ASCII):
        raise DataError(
            f"{path}: {url} says Content-Length: {length[:40]!r}, which is no size: put the file there by hand"
        )
    return start + int(length)


def _check_size(n_bytes: float, most_bytes: float, path: Path, url: str) -> None:
    if n_bytes > most_bytes:
        raise DataError(
            f"{path}: {url} sends {amount(n_bytes)} or more, and {amount(most_bytes)} is the most that is taken: "
            f"check the address; delete {part_of(path).name}"
        )


def _parts(path: Path, checksum: str | None) -> tuple[str, str] | None:
    """Algorithm and digest. Raises DataError for an algorithm that Python does not have."""
    if checksum is None:
        return None
    algorithm, _, expected = checksum.partition(":")
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake") or not expected:
        raise DataError(f"{path}: its checksum is given as {checksum!r}: write sha256:<hex> or md5:<hex>")
    return algorithm, expected


def _compare(file: Path, path: Path, checksum: str | None, remedy: str, origin: str = "") -> None:
    """DataError naming `path` if `file` does not have the checksum."""
    if parts := _parts(path, checksum):
        found = file_digest(file, parts[0])
        if found != parts[1].lower():
            raise DataError(f"{path}: {parts[0]} is {found}, not {parts[1]}{origin}: {remedy}")


def _reject(part: Path, path: Path, reason: str) -> None:
    aside = path.with_name(path.name + ".rejected")
    os.replace(part, aside)
    write_text(aside.with_name(aside.name + ".txt"), reason + "\n")
    _etag_file(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _etag_file(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _etag_file(part).unlink(missing_ok=True)
