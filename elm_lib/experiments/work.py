"""Do what a profile lacks: make the data that a missing run needs, train, enter each run into the ledger as it ends."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from elm_lib import datasets
from elm_lib.experiments.config import Params, Runner
from elm_lib.experiments.execute import execute
from elm_lib.experiments.ledger import Ledger, enter, enter_twin, home
from elm_lib.experiments.plan import Planned, plan
from elm_lib.experiments.retest import retest
from elm_lib.experiments.workspace import copy_entries, project_of
from elm_lib.training.run import Device, Run, pick_device

PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Folders:
    """Where a profile's files are; each may be missing."""

    data: Path  # <data>/<data set>
    raw: Path  # what the download stage leaves
    runs: Path  # working files of runs
    ledger: Path
    shared: Path | None = None  # the ledger of the project, in a workspace of `dvc exp run --temp` or `--queue`

    @classmethod
    def of(cls, profile: str, root: str | Path = ".", fresh: bool = False) -> Folders:
        """Those of the project in `root`."""
        root, project = Path(root), project_of(root)
        return cls(
            data=root / "data" / profile,
            raw=root / "data" / "raw",
            runs=project / "runs" / ("fresh" if fresh else "work"),
            ledger=home(profile, root, fresh),
            shared=None if project == root else home(profile, project, fresh),
        )


def wanted_first(planned: list[Planned], later: Collection[str] = ()) -> list[Planned]:
    """The order of work: the first seed of every point before the second of any; else as params.yaml has them.

    later  experiments whose runs come after the others of the same seed
    """
    several = sorted(planned, key=lambda one: one.experiment in later)
    order = {id(one): k for k, one in enumerate(several)}
    rank: dict[tuple, int] = {}
    for one in several:
        point = (one.experiment, str(one.size), one.budget)
        rank[point] = rank.get(point, -1) + 1
        order[id(one)] += rank[point] * len(planned)
    return sorted(planned, key=lambda one: order[id(one)])


def do_missing(
    params: Params,
    profile: str,
    groups: list[str] | None = None,
    *,
    folders: Folders,
    runner: Runner | None = None,
    until: float = math.inf,
) -> list[Planned]:
    """Do the planned runs that the ledger lacks, and return all planned runs.

    Data are made only when a run is missing. Where the profile has another test set than an entry, its weights are
    tested on that one first. A run that was interrupted goes on. Raises RunError when a run fails.
    """
    planned = plan(params, profile, groups, data=folders.data)
    if folders.shared is not None:
        copy_entries(planned, folders.shared, folders.ledger)
    ledger = Ledger(folders.ledger)
    if retest(planned, ledger, params.profiles[profile], data=folders.data, raw=folders.raw):
        ledger = Ledger(folders.ledger)
    missing = wanted_first(ledger.missing(planned), params.profiles[profile].later)
    missing = [one for one in missing if not enter_twin(one, ledger, folders.ledger)]
    if not missing:
        return planned
    for name in dict.fromkeys(one.task for one in missing):
        datasets.ensure(name, getattr(params.profiles[profile], name), raw=folders.raw, out=folders.data / name)
    runner = runner or params.profiles[profile].runner
    # a job of Slurm chooses on its node: the machine that submits may have no GPU
    device = params.device if runner.cluster == "slurm" else pick_device(params.device)
    made_by = commit()
    runs: dict[str, Run] = {}
    same: dict[str, list[Planned]] = {}  # planned runs of one key are one run
    for one in missing:
        run = replace(one.run(folders.data, folders.runs, device, runner.threads), accumulate=runner.accumulate)
        runs.setdefault(run.folder, run)
        same.setdefault(run.folder, []).append(one)

    def on_done(run: Run) -> None:
        for one in same[run.folder]:
            enter(one, run.folder, folders.ledger, made_by)
            if folders.shared is not None:
                copy_entries([one], folders.ledger, folders.shared)

    what = ", ".join(groups) if groups else profile
    execute(list(runs.values()), runner, what, on_done=on_done, until=until)
    return planned


def hours(planned: Planned, spent: dict[tuple, float], device: Device) -> float:
    """Expected hours of a run: by finished runs of the same point here, else by the estimate in params.yaml.

    spent  `Ledger.seconds_a_step` of this machine
    """
    known = spent.get((planned.experiment, planned.size))
    return planned.point.hours(device) if known is None else known * planned.train.steps / 3600


def commit() -> str:
    """The commit that the code is at, marked when elm_lib has changes.

    Where the code was copied without its repository, the environment variable ELM_COMMIT says it; else "unknown".
    """
    if os.environ.get("ELM_COMMIT"):
        return os.environ["ELM_COMMIT"]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
