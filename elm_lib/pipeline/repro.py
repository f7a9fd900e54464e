"""`make repro`: `dvc repro`, after what an interruption left has been mended.

    python -m elm_lib.pipeline.repro [ARGUMENTS OF dvc repro]
    python -m elm_lib.pipeline.repro --prepare                  no stage is run

- DVC rewrites dvc.lock in place, so a kill at that moment leaves half a file, which it then refuses. Every stage keeps
  a copy at its start: `elm_lib.pipeline.notebook.keep_lock`. Where dvc.lock cannot be read, that copy takes its place,
  and one stage is run again.
- DVC makes its site folder writable by everybody, and unpickles what lies there. It is made before, with mode 0755.
- A project without a git repository, such as an unpacked archive, is run with `core.no_scm`.
- Workspaces of `dvc exp run --temp` and `--queue` need the absolute path of the site folder.
- A lock that another process holds is waited for.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import yaml
from dvc.config import Config
from dvc.exceptions import DvcException
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from dvc.utils.strictyaml import validate

from elm_lib.pipeline.notebook import KEPT, LOCK, TMP, keep_lock
from elm_lib.support.files import write_atomically
from elm_lib.support.processes import for_owner_alone

SITE = TMP / "site"


def mend_lock(root: Path = Path()) -> str:
    """Put the kept copy in the place of a dvc.lock that cannot be read. Returns a line that says so, else ""."""
    lock, kept = root / LOCK, root / KEPT
    if not lock.exists() or _is_whole(lock):
        return ""
    aside = root / TMP / "dvc.lock.unreadable"
    os.replace(lock, aside)
    if kept.is_file() and _is_whole(kept):
        write_atomically(lock, kept.read_bytes())
        done = "the copy from the start of the last stage takes its place, and that stage is run again"
    else:
        done = "there is no copy of it, so every stage is run again; what the stages keep is used"
    return f"{lock} was cut off by an interruption (what is left of it: {aside}): {done}"


def mend_rwlock(root: Path = Path()) -> None:
    """Remove DVC's note of who reads and writes what, where a kill has left half of it: all whom it names are gone."""
    path = root / TMP / "rwlock"
    if not path.exists():
        return
    with path.with_name("rwlock.lock").open("a") as guard:  # DVC holds it while it writes the note
        fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            json.loads(path.read_text())
        except ValueError:
            path.unlink()


def close_site(root: Path = Path()) -> None:
    """Make DVC's site folder with mode 0755. One that others could write is emptied: it holds nothing but a cache."""
    site = root / SITE
    if any(folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH for folder in (site, site / "repo")):
        shutil.rmtree(site)
    (site / "repo").mkdir(parents=True, exist_ok=True)
    for folder in (root / TMP, site, site / "repo"):
        folder.chmod(0o755)


def settle(root: Path = Path()) -> None:
    """Tell DVC what depends on where the project lies: whether there is a git repository, and the absolute path of its
    site folder, as DVC's workspaces for experiments are elsewhere. Other settings in .dvc/config.local stay."""
    wanted = {"site_cache_dir": str((root / SITE).absolute())}
    if not any((folder / ".git").exists() for folder in (root.absolute(), *root.absolute().parents)):
        wanted["no_scm"] = "true"
    config = Config(str(root / ".dvc"), validate=False)
    core = config.read("local").get("core", {})
    if {name: core.get(name) for name in ("site_cache_dir", "no_scm")} != {"no_scm": None} | wanted:
        with config.edit("local") as local:
            local["core"] = {name: value for name, value in core.items() if name != "no_scm"} | wanted


def main(arguments: list[str] | None = None) -> None:
    """Mend, then become `dvc repro`: a kill of this process is a kill of DVC."""
    for_owner_alone()
    (Path() / TMP).mkdir(parents=True, exist_ok=True)
    alone = os.open(TMP / "repro.lock", os.O_RDWR | os.O_CREAT, 0o644)  # of two calls, the second waits for the first
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another `make repro` is at work in this folder: waiting for its end", file=sys.stderr, flush=True)
        fcntl.flock(alone, fcntl.LOCK_EX)
    os.set_inheritable(alone, True)
    close_site()
    settle()
    mend_rwlock()
    if said := mend_lock():
        print(said, file=sys.stderr, flush=True)
    keep_lock()
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--prepare"]:
        return
    os.execv(sys.executable, [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *words])


def _is_whole(lock: Path) -> bool:
    """Whether DVC can read it."""
    try:
        content = yaml.load(lock.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        validate(content, COMPILED_LOCKFILE_SCHEMA)
    except (yaml.YAMLError, UnicodeDecodeError, DvcException):
        return False
    return True


if __name__ == "__main__":
    main()
