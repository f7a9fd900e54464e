"""Workspaces of `dvc exp run --temp` and `--queue`: copies of the project below .dvc/tmp/exps, which share its ledger.

A workspace takes the entries that it needs from the project, and gives it those that it makes. Working files of runs
are the project's, so a run that was interrupted goes on in the next workspace.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elm_lib.experiments.ledger import copy_beside
from elm_lib.experiments.plan import Planned
from elm_lib.support.files import write_atomically

EXPERIMENTS = (".dvc", "tmp", "exps")  # where DVC makes workspaces


def project_of(root: str | Path) -> Path:
    """The project that a workspace was made of; else `root` itself."""
    parts = Path(root).resolve().parts
    for k in range(len(parts) - len(EXPERIMENTS)):
        if parts[k : k + len(EXPERIMENTS)] == EXPERIMENTS:
            return Path(*parts[:k])
    return Path(root)


def copy_entries(planned: Iterable[Planned], source: Path, target: Path) -> int:
    """Copy the entries of these runs from one ledger to another that lacks them. Returns how many.

    The entry itself is written last: where it is, what belongs to it is there.
    """
    copied = 0
    for one in planned:
        folder = Path(one.group) / one.experiment
        entry = f"{one.key}.json"
        if (source / folder / entry).is_file() and not (target / folder / entry).exists():
            copy_beside(one.key, source / folder, target / folder)
            write_atomically(target / folder / entry, (source / folder / entry).read_bytes())
            copied += 1
    return copied
