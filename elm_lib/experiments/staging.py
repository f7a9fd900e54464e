"""Data copied to a node's own disk before runs read them: for file systems that are slow for many small reads."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from elm_lib.support.errors import DataError
from elm_lib.support.files import need_space, part_of, put_in_place, room_for
from elm_lib.support.processes import locked


def staged(data: str, to: str | None) -> str:
    """The folder that runs read: `data` itself, or its copy below `to`, which names a folder on the node.

    to  variables of the node's environment such as $TMPDIR are filled in

    Runs of several jobs on a node share the copy: one makes it, the others wait. Files of the same size and date are
    not copied again. Raises DataError where a variable is not set, another user owns the folder, or there is no room.
    """
    if to is None:
        return data
    named = os.path.expandvars(to)
    if "$" in named or not os.path.isabs(named):
        raise DataError(f"runner.stage_to = {to!r} is {named!r} on this node: name a folder by its absolute path")
    source = Path(data).resolve()
    home = Path(named) / f"elm-{os.getuid()}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o022:
        raise DataError(f"{home} can be written by another user: choose another runner.stage_to")
    target = home / f"{hashlib.sha256(str(source).encode()).hexdigest()[:16]}-{source.name}"
    with locked(home / f"{target.name}.lock"):
        todo = [
            (path, target / path.relative_to(source))
            for path in sorted(source.rglob("*"))
            if path.is_file() and path.name != "lock" and not path.name.endswith(".part")
        ]
        todo = [(path, copy) for path, copy in todo if not _is_same(path, copy)]
        need_space(home, sum(path.stat().st_size for path, _ in todo), f"the copy of {source}")
        for path, copy in todo:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with room_for(copy, path.stat().st_size):
                shutil.copy2(path, part_of(copy))
                put_in_place(part_of(copy), copy, durable=False)
    return str(target)


def _is_same(path: Path, copy: Path) -> bool:
    if not copy.is_file():
        return False
    ours, theirs = path.stat(), copy.stat()
    return (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)
