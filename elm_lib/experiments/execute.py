"""Map runs over local processes, threads, or a Slurm job array. What is done already is not done again."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import submitit

from elm_lib.experiments.config import Runner
from elm_lib.support.processes import progress
from elm_lib.training.run import Run, train_run


class RunError(RuntimeError):
    """A training run failed in its own process; the line says which, why, and where its log is."""


class TrainTask(submitit.helpers.Checkpointable):
    """A run as submitit wants it: preempted or out of time on Slurm, it is queued again and resumes its checkpoint."""

    def __call__(self, run: Run, parent_pid: int | None = None, until: float = math.inf) -> str:
        train_run(run, parent_pid, until=until)
        return str(run.result)


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
    until    time (s, as `time.monotonic`) from which on runs save a checkpoint and end; no other is begun

    Killed at any point, the next call goes on from the checkpoints. Raises RunError, one line, when a run fails.
    """
    waiting = list(runs)

    def tell() -> None:
        for run in [run for run in waiting if run.is_done()]:
            waiting.remove(run)
            on_done(run)

    tell()
    missing = list(waiting)
    if not missing:
        return
    total = sum(run.train["epochs"] * run.train["batches_per_epoch"] for run in missing)
    with progress(total, what, "step") as bar:
        bar.initial = sum(_steps_done(run) for run in missing)  # by checkpoints; the rate is of this time's steps
        how = {"debug": _here, "threads": _threads}.get(runner.cluster, _submitted)
        for _ in how(missing, runner, until):
            tell()
            bar.n = sum(_steps_done(run) for run in missing)
            bar.refresh()
    tell()


def _here(runs: list[Run], runner: Runner, until: float) -> Iterator[None]:
    for run in runs:
        if time.monotonic() < until:
            _train_named(run, until=until)
        yield


def _threads(runs: list[Run], runner: Runner, until: float) -> Iterator[None]:
    """A failure, or an interrupt, ends all of them; what they have done is in their checkpoints."""
    over, before = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # s: a thread that draws batches must not keep the others from launching theirs
    with ThreadPoolExecutor(runner.jobs) as pool:
        try:
            waiting = {pool.submit(_train_named, run, lambda step: over.is_set(), until) for run in runs}
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                yield
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            sys.setswitchinterval(before)


def _train_named(run: Run, stop: Callable[[int], bool] = lambda step: False, until: float = math.inf) -> None:
    """Train in this process; an error says which run it was."""
    if stop(0) or time.monotonic() > until:
        return
    try:
        train_run(run, stop=stop, until=until)
    except Exception as error:
        raise RunError(f"{_said(run)}: {error}") from error


def _said(run: Run) -> str:
    return f"{run.experiment}, size {run.labels.get('size', '?')}, seed {run.seed}"


def _submitted(runs: list[Run], runner: Runner, until: float) -> Iterator[None]:
    """Yields now and then until all runs are done, or the time is over."""
    executor = submitit.AutoExecutor(folder=Path(runs[0].folder).parent / "jobs", cluster=runner.cluster)
    executor.update_parameters(timeout_min=60 * 24 * 7)
    waiting, active, parent = list(runs), [], os.getpid()
    if runner.cluster == "slurm":
        executor.update_parameters(slurm_array_parallelism=runner.jobs, cpus_per_task=runner.threads, **runner.slurm)
        waiting, active = [], list(zip(runs, executor.map_array(TrainTask(), runs)))
    while waiting or active:
        while waiting and len(active) < runner.jobs and time.monotonic() < until:
            run = waiting.pop(0)
            active.append((run, executor.submit(TrainTask(), run, parent, until)))
        for run, job in list(active):
            if job.done():
                try:
                    job.result()
                except submitit.core.utils.UncompletedJobError as error:
                    for _, other in active:
                        other.cancel()
                    reasons = re.findall(r"^(?:\w+\.)*\w+: .+$", str(error), re.MULTILINE) or ["ended without a word"]
                    raise RunError(f"{_said(run)}: {reasons[-1]} (log: {job.paths.stderr})") from None
                active.remove((run, job))
        if not active and time.monotonic() > until:
            return
        yield
        time.sleep(0.5)


def _steps_done(run: Run) -> int:
    """For the progress bar alone: 0 where the note of it is missing or cannot be read."""
    try:
        if run.result.exists():
            return run.train["epochs"] * run.train["batches_per_epoch"]
        return int(json.loads((Path(run.folder) / "progress.json").read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
