"""Map runs over local processes, threads, or jobs of Slurm. What is done already is not done again."""

from __future__ import annotations

import json
import math
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import submitit

from elm_lib.experiments.runner import Runner
from elm_lib.experiments.slurm import WEEK, News, SubmissionError, by_slurm
from elm_lib.experiments.threads import Ended, in_threads, train_here
from elm_lib.support.processes import die_with, progress
from elm_lib.training.run import Run


class RunError(RuntimeError):
    """Training runs failed; a line each says which, why, and where its log is."""


def execute(
    runs: list[Run],
    runner: Runner,
    what: str = "runs",
    *,
    on_done: Callable[[Run], None] = lambda run: None,
    until: float = math.inf,
) -> None:
    """Do the runs that have no result yet.

    One after another here ("debug"), in `jobs` threads of this process ("threads": many small runs share one GPU), in
    `jobs` processes ("local"), or on Slurm.

    on_done  called with each run as soon as its result is there, in this process; also with those that had one before
    until    time (s, as `time.monotonic`) from which on runs save a checkpoint and end; no other is begun. Jobs of
             Slurm go on: a later call takes up what they have done.

    Killed at any point, the next call goes on from the checkpoints. When a run fails, the others go on, unless
    `runner.stop_at_first`. Raises RunError at the end, with a line for each run that failed.
    """
    missing = []
    for run in runs:
        if run.is_done():
            on_done(run)
        else:
            missing.append(run)
    if not missing:
        return
    total = sum(_steps_of(run) for run in missing)
    steps, failed = {run.folder: _steps_done(run) for run in missing}, list[Ended]()
    how = {"debug": _here, "threads": _threads, "local": _processes, "slurm": _slurm}[runner.cluster]
    with progress(total, what, "step") as bar:
        bar.initial = sum(steps.values())  # by checkpoints; the rate is of this time's steps
        for news in how(missing, runner, until):
            for ended in news.ended:
                if ended.run.is_done():
                    on_done(ended.run)
                elif ended.reason:
                    failed.append(ended)
            steps |= {run.folder: _steps_done(run) for run in [*news.active, *(ended.run for ended in news.ended)]}
            bar.n = sum(steps.values())
            bar.set_postfix_str(news.said, refresh=False)
            bar.refresh()
    if failed:
        lines = [f"{_said(ended.run)}: {ended.reason}" for ended in failed]
        head = [] if len(failed) == 1 else [f"{len(failed)} of {len(missing)} runs failed:"]
        raise RunError("\n  ".join(head + lines)) from failed[0].error


def _said(run: Run) -> str:
    return f"{run.experiment}, size {run.labels.get('size', '?')}, seed {run.seed}"


def _here(runs: list[Run], runner: Runner, until: float) -> Iterator[News]:
    for run in runs:
        ended = train_here(run, lambda step: time.monotonic() > until)
        yield News([ended])
        if ended.reason and runner.stop_at_first:
            return


def _threads(runs: list[Run], runner: Runner, until: float) -> Iterator[News]:
    for several in in_threads(runs, runner.jobs, lambda step: time.monotonic() > until):
        yield News(several, active=runs)
        if runner.stop_at_first and any(ended.reason for ended in several):
            return


class LocalTask:
    """A run in a process of its own."""

    def __call__(self, run: Run, parent_pid: int, until: float) -> str:
        """Train. Returns why it failed, else ""."""
        die_with(parent_pid)
        ended = train_here(run, lambda step: time.monotonic() > until)
        if ended.error is not None:
            traceback.print_exception(ended.error)
        return ended.reason


def _processes(runs: list[Run], runner: Runner, until: float) -> Iterator[News]:
    executor = submitit.AutoExecutor(folder=Path(runs[0].folder).parent / "jobs", cluster="local")
    executor.update_parameters(timeout_min=WEEK)
    waiting, active = list(runs), dict[str, tuple[Run, submitit.Job]]()
    while waiting or active:
        while waiting and len(active) < runner.jobs and time.monotonic() < until:
            run = waiting.pop(0)
            active[run.folder] = run, executor.submit(LocalTask(), run, os.getpid(), until)
        ended = [_ended(*active.pop(folder)) for folder in [k for k, (_, job) in active.items() if job.done()]]
        yield News(ended, [run for run, _ in active.values()])
        if runner.stop_at_first and any(one.reason for one in ended):
            for _, job in active.values():
                job.cancel()
            return
        if not active and time.monotonic() > until:
            return
        time.sleep(0.5)


def _ended(run: Run, job: submitit.Job) -> Ended:
    try:
        reason = job.result()
    except submitit.core.utils.UncompletedJobError as error:
        found = re.findall(r"^(?:\w+\.)*\w+: .+$", str(error), re.MULTILINE)
        reason = found[-1] if found else "its process was killed"
    return Ended(run, f"{reason} (log: {job.paths.stderr})" if reason else "")


def _slurm(runs: list[Run], runner: Runner, until: float) -> Iterator[News]:
    try:
        yield from by_slurm(runs, runner, until, _steps_done)
    except SubmissionError as error:
        raise RunError(str(error)) from None


def _steps_of(run: Run) -> int:
    return run.train["epochs"] * run.train["batches_per_epoch"]


def _steps_done(run: Run) -> int:
    """For the progress bar, and to see that a run advances: 0 where the note of it is missing or cannot be read."""
    try:
        if run.result.exists():
            return _steps_of(run)
        return int(json.loads((Path(run.folder) / "progress.json").read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
