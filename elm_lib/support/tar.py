"""Read tar archives to the end, gzipped or not: what was cut off or changed on the way is noticed."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from elm_lib.support.errors import DataError

_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20  # bytes read at a time
_FAULTS = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class Member(io.BufferedReader):
    """Content of a file, read once from front to back; `digest` is that of all of it."""

    def __init__(self, content: Any, told: Any) -> None:
        self._hashed = _Hashed(content, told)
        super().__init__(self._hashed, 1 << 16)

    def digest(self) -> bytes:
        """Reads what is left."""
        while self.read(_BLOCK):
            pass
        return self._hashed.sum.digest()


class _Hashed(io.RawIOBase):
    def __init__(self, content: Any, told: Any) -> None:
        self.content, self.told, self.sum = content, told, hashlib.blake2b(digest_size=16)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self.told():
            data = self.content.read(len(buffer))
        self.sum.update(data)
        buffer[: len(data)] = data
        return len(data)


def members(place: Path, remedy: str) -> Iterator[tuple[str, Member]]:
    """(name, content) of every file of an archive, or of an unpacked folder, in its order.

    remedy  what the reader of an error can do
    The archive is read to its end, also past its last member, and the checksum of gzip is compared there. Raises
    DataError, with the file and the byte up to which it was read, for one that is cut off or damaged.
    """
    if place.is_dir():
        for path in sorted(p for p in place.rglob("*") if p.is_file()):
            with path.open("rb") as file:
                yield f"{place.name}/{path.relative_to(place).as_posix()}", Member(file, _as_it_is)
        return
    with place.open("rb") as raw:

        @contextmanager
        def told() -> Iterator[None]:
            try:
                yield
            except _FAULTS as error:
                raise DataError(
                    f"{place}: not a whole archive: {' '.join(str(error).split())}, at byte {raw.tell()} of "
                    f"{place.stat().st_size}: {remedy}"
                ) from None

        with told():
            is_packed = raw.read(2) == _GZIP
            if not is_packed:
                _check_end(raw)
            raw.seek(0)
            stream: Any = gzip.GzipFile(fileobj=raw) if is_packed else raw
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # tarfile keeps all it has seen
                    if member.isfile():
                        content = archive.extractfile(member)
                        yield member.name, Member(content, told)
                rest: Any = archive.fileobj
                while block := rest.read(_BLOCK):
                    if block.strip(b"\0"):
                        raise tarfile.ReadError("a damaged header")
            if is_packed and stream.read(1):
                raise tarfile.ReadError("something behind its end")


def check_whole(path: Path, folder: str, remedy: str) -> None:
    """Read an archive from front to back. Raises DataError: cut off, damaged, no archive, or without a file below
    `folder`."""
    names = [name for name, _ in members(path, remedy)]
    if not any(folder in name.split("/")[:-1] for name in names):
        first = f"its first file is {names[0]}" if names else "it has no file"
        raise DataError(f"{path}: another archive, {first}, and none lies in {folder}/: {remedy}")


def _check_end(raw: IO[bytes]) -> None:
    """A tar archive ends in zeros: else what was cut off at the end of a member would go unseen."""
    size, end = raw.seek(0, io.SEEK_END), 2 * tarfile.BLOCKSIZE
    raw.seek(max(0, size - end))
    if size < end or size % tarfile.BLOCKSIZE or raw.read().strip(b"\0"):
        raise tarfile.ReadError("neither gzip, nor tar up to its end")


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
