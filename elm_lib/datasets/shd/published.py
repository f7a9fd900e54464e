"""The published Spiking Heidelberg Digits: found in a folder or downloaded, checked, unpacked."""

from __future__ import annotations

import gzip
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

from elm_lib.support.download import download
from elm_lib.support.errors import DataError
from elm_lib.support.files import GB, file_digest, need_space, part_of, put_in_place, room_for

SERVERS = ("https://zenkelab.org/datasets", "https://compneuro.net/datasets")  # the second is the first's mirror
UNPACKED_BYTES = 0.7 * GB  # room for both files, generously


@dataclass(frozen=True)
class Published:
    """name: of the HDF5 file; on the servers it has .gz behind it. md5 as published there."""

    name: str
    md5: str
    md5_gz: str


PUBLISHED = {
    "train": Published("shd_train.h5", "8e9877c85f29a28dd353ea6a54402667", "d47c9825dee33347913e8ce0f2be08b0"),
    "test": Published("shd_test.h5", "207ad1295a0ab611e22d1734989c254e", "3062a80ec0c5719404d5b02e166543b1"),
}  # 8156 and 2264 recordings; older copies have 8332 and 2088 and are not these


def fetch(
    folder: str | Path,
    *,
    servers: tuple[str, ...] = SERVERS,
    published: dict[str, Published] = PUBLISHED,
    attempts: int = 5,
    wait_s: float = 2.0,
) -> dict[str, Path]:
    """The file of each split in `folder`: .h5 or .h5.gz if it is there, else downloaded from the first server that
    gives it.

    Every file is checked against its md5. attempts, wait_s: see `download`; a later call goes on where it stopped.
    Raises DataError, naming the file and what to do, for a wrong md5 or when no server gives it.
    """
    return {split: _fetch_one(Path(folder), wanted, servers, attempts, wait_s) for split, wanted in published.items()}


def _fetch_one(folder: Path, wanted: Published, servers: tuple[str, ...], attempts: int, wait_s: float) -> Path:
    plain, packed = folder / wanted.name, folder / f"{wanted.name}.gz"
    for path, md5 in ((plain, wanted.md5), (packed, wanted.md5_gz)):
        if path.exists():
            found = file_digest(path, "md5")
            if found != md5:
                raise DataError(
                    f"{path}: md5 is {found}, not {md5} of the present release: "
                    "replace it, or delete it and run again to download"
                )
            return path
    failures = []
    for server in servers:
        url = f"{server}/{packed.name}"
        try:
            return download(url, packed, checksum=f"md5:{wanted.md5_gz}", attempts=attempts, wait_s=wait_s)
        except DataError as error:
            failures.append(str(error))
    raise DataError(f"{packed}: no server gave it: {'; '.join(failures)}")


def unpack(source: Path, target: Path, md5: str) -> Path:
    """The HDF5 file `target` from `source`, .h5 or .h5.gz, whole or absent; one that is there already is kept if its
    md5 is right.

    Raises DataError for a damaged archive, a wrong md5 or a full disk.
    """
    if target.exists() and file_digest(target, "md5") == md5:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    need_space(target.parent, UNPACKED_BYTES if source.suffix == ".gz" else source.stat().st_size, target.name)
    part = part_of(target)
    try:
        opener = gzip.open if source.suffix == ".gz" else open
        with room_for(target), opener(source, "rb") as packed, open(part, "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        part.unlink(missing_ok=True)
        raise DataError(f"{source}: damaged ({error}): delete it and run again") from None
    except (OSError, DataError):
        part.unlink(missing_ok=True)
        raise
    found = file_digest(part, "md5")
    if found != md5:
        part.unlink()
        raise DataError(f"{source}: unpacked, its md5 is {found}, not {md5}: delete it and run again")
    put_in_place(part, target)
    return target
