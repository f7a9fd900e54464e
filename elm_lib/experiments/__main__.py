"""Work through the runs that a profile lacks: what one gives a free night, a lab machine or a Slurm job.

    python -m elm_lib.experiments desk --minutes 0             what is missing, and its expected hours
    python -m elm_lib.experiments desk neuronio --minutes 480  eight hours of it, most wanted first, on all cores

Each run is entered into the ledger as it ends: commit results/ledger. When the time is over, runs stop at a checkpoint,
and the next call goes on from there.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from elm_lib.experiments.config import PROFILES, Params, Runner, load
from elm_lib.experiments.execute import RunError
from elm_lib.experiments.ledger import Ledger
from elm_lib.experiments.plan import Planned, plan
from elm_lib.experiments.work import Folders, do_missing, hours, wanted_first
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.support.processes import for_owner_alone
from elm_lib.support.workers import usable_cores
from elm_lib.training.run import Device, device_name, pick_device


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m elm_lib.experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="of params.yaml; all by default")
    parser.add_argument("--minutes", type=_not_negative, default=0.0, help="how long to work; 0 lists what is missing")
    parser.add_argument("--jobs", type=_whole, help="runs at once; by default all cores, on a GPU as the profile says")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's folder")
    options = parser.parse_args(arguments)
    for_owner_alone()
    try:
        params = load(options.root / "params.yaml")
        folders = Folders.of(options.profile, options.root, params.fresh)
        if options.minutes > 0:
            runner = _runner(params, options.profile, options.jobs)
            until = time.monotonic() + 60 * options.minutes
            do_missing(params, options.profile, options.groups or None, folders=folders, runner=runner, until=until)
        _tell(params, options.profile, options.groups or None, folders)
    except (ConfigError, DataError, RunError) as error:
        sys.exit(str(error))


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a finite number, 0 or more")
    return value


def _whole(text: str) -> int:
    if not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text}: give 1 to 10000")
    return int(text)


def _runner(params: Params, profile: str, jobs: int | None) -> Runner:
    runner = params.profiles[profile].runner
    if runner.cluster == "slurm" or pick_device(params.device) == "cuda":
        return runner.model_copy(update={"jobs": jobs or runner.jobs})
    return Runner(cluster="local", jobs=jobs or usable_cores(), threads=1)


def _tell(params: Params, profile: str, groups: list[str] | None, folders: Folders) -> None:
    """Print what is missing: a line each experiment, and the sum."""
    planned = plan(params, profile, groups, data=folders.data)
    ledger = Ledger(folders.ledger)
    missing = wanted_first(ledger.missing(planned), params.profiles[profile].later)
    runner = _runner(params, profile, None)
    device, known = _machine(params, runner, ledger)
    print(f"profile {profile}: {len(planned) - len(missing)} of {len(planned)} planned runs are in {folders.ledger}")
    by_experiment: dict[str, list[Planned]] = defaultdict(list)
    for one in missing:
        by_experiment[one.experiment].append(one)
    for name, found in by_experiment.items():
        spent = sum(hours(one, known, device) for one in found)
        print(f"  {spent:8.1f} h  {name}: {found[0].vary} = {_by_budget(found)}")
    total = sum(hours(one, known, device) for one in missing)
    jobs = runner.jobs
    print(
        f"  {total:8.1f} h  in all, on one {'GPU' if device == 'cuda' else 'core'}; "
        f"{total / jobs:.1f} h with {jobs} at once"
    )


def _machine(params: Params, runner: Runner, ledger: Ledger) -> tuple[Device, dict[tuple, float]]:
    """What trains, and what a step takes there as far as it is known: of Slurm's nodes nothing is."""
    if runner.cluster == "slurm":
        gpu = params.device == "cuda" or (params.device == "auto" and runner.asks_for_gpu)
        return ("cuda" if gpu else "cpu"), {}
    device = pick_device(params.device)
    return device, ledger.seconds_a_step(device_name(device))


def _by_budget(found: list[Planned]) -> str:
    """Sizes, and after those of one budget the budget, unless it is the published one."""
    parts = []
    for budget in sorted({one.budget for one in found}, reverse=True):
        sizes = Counter(str(one.size) for one in found if one.budget == budget)
        shown = ", ".join(size if n == 1 else f"{size} ({n} seeds)" for size, n in sizes.items())
        parts.append(shown + (f" at {100 * budget:.2g} %" if budget < 1 else ""))
    return "; ".join(parts)


if __name__ == "__main__":
    main()
