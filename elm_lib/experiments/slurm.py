"""Runs as jobs of Slurm: submitted as arrays, watched by their files, taken up again by whoever calls next.

    <runs>/jobs/<name>/submission.json   which runs the jobs of an array have; it is there before the array is
    <runs>/jobs/<name>/<id>_0_log.err    what a job said

submitit writes the script of an array, and the results of its jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import submitit

from elm_lib.experiments import queue
from elm_lib.experiments.job import SlurmTask, name_of
from elm_lib.experiments.runner import Runner
from elm_lib.experiments.threads import Ended
from elm_lib.support.files import write_json
from elm_lib.support.processes import locked
from elm_lib.training.run import Run

NOTE = "submission.json"
LOOK_S = 5.0  # s between looks at the jobs' folder: one listing of it
ASK_S = 10.0  # s between questions to Slurm, and between looks at how far runs are
GONE_S = 20.0  # s that a job is not in the queue and has left no result: it has failed
VISIBLE_S = 60.0  # s after which a network file system shows what another node wrote
WEEK = 60 * 24 * 7  # minutes
NO_FAULT = ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REVOKED")  # ends that are not the run's


class SubmissionError(RuntimeError):
    """Slurm does not take jobs."""


@dataclass
class News:
    """What the last look has shown."""

    ended: list[Ended] = field(default_factory=list)
    active: list[Run] = field(default_factory=list)  # whose progress is worth a look
    said: str = ""  # about the queue


@dataclass
class Work:
    """One job, and what this process wants of it."""

    id: str
    home: Path  # folder of its array
    runs: list[Run]
    steps: dict[str, int]  # by the run's name, when it was submitted or taken up
    state: str = ""  # the last that squeue told
    gone_at: float | None = None  # since when it is missed

    @property
    def result(self) -> str:
        """Name of the file that appears last."""
        return f"{self.id}_0_result.pkl"

    @property
    def log(self) -> str:
        return f"(log: {self.home / f'{self.id}_0_log.err'})"


def by_slurm(runs: list[Run], runner: Runner, until: float, steps_done: Callable[[Run], int]) -> Iterator[News]:
    """Submit what no live job has, and watch until all have ended, or the time is over: jobs go on then.

    steps_done  how many steps a run has done, as far as its files tell

    Raises SubmissionError where Slurm refuses.
    """
    if shutil.which("squeue") is None:
        raise SubmissionError("runner.cluster = slurm, but there is no squeue here: call this where Slurm is installed")
    watch, waiting = _Watch(Path(runs[0].folder).parent / "jobs", runner, steps_done), list(runs)
    while waiting or watch.active:
        if waiting and time.monotonic() < until:
            waiting = watch.submit(waiting)
        news, again = watch.look()
        waiting = again + waiting
        yield news
        if runner.stop_at_first and any(ended.reason for ended in news.ended):
            queue.cancel([work.id for work in watch.active])
            return
        if time.monotonic() > until:
            if watch.active:
                print(f"{len(watch.active)} jobs go on in Slurm: the next call takes up what they do", flush=True)
            return
        if waiting or watch.active:
            time.sleep(LOOK_S)


class _Watch:
    def __init__(self, folder: Path, runner: Runner, steps_done: Callable[[Run], int]) -> None:
        self.folder, self.runner, self.steps_done = folder, runner, steps_done
        self.active: list[Work] = []
        self.queue: dict[str, queue.Job] = {}
        self.asked_at = -float("inf")  # when Slurm last answered
        self.failed: set[Path] = set()  # folders of arrays of which a job has failed

    def submit(self, runs: list[Run]) -> list[Run]:
        """Take up the live jobs of former calls, submit an array of the others. Returns the runs that still wait."""
        if len(self.active) >= self.runner.jobs:
            return runs
        with locked(self.folder):  # two who call at once must not both submit
            if not self._ask():
                return runs
            runs = self._take_up(runs)
            if not runs or len(self.active) >= self.runner.jobs:
                return runs
            groups, most = grouped(runs, self.runner.runs_per_job), queue.most_in_array()
            name = f"{self.runner.slurm.get('name', 'elm')}-{uuid.uuid4().hex[:8]}"
            home, now = self.folder / name, groups[:most]
            names = [[name_of(run) for run in several] for several in now]
            write_json(home / NOTE, {"name": name, "runs": names})  # before the array: a kill must not lose it
            try:
                ids = [job.job_id for job in self._executor(home, name).map_array(self._task(), now)]
            except RuntimeError as error:  # submitit's errors are such
                shutil.rmtree(home, ignore_errors=True)
                raise SubmissionError(f"Slurm refuses the jobs: {' '.join(str(error).split())}") from None
            write_json(home / NOTE, {"name": name, "runs": names, "jobs": dict(zip(ids, names))})
        for id, several in zip(ids, now):
            self._add(id, home, several)
        return [run for several in groups[most:] for run in several]

    def _take_up(self, runs: list[Run]) -> list[Run]:
        """Watch the live jobs that have some of these runs. Returns the runs that none has."""
        wanted = {name_of(run): run for run in runs}
        for note in sorted(self.folder.glob(f"*/{NOTE}")):
            for id, names in _live_jobs(note, self.queue).items():
                mine = [wanted.pop(name) for name in names if name in wanted]
                if mine:
                    self._add(id, note.parent, mine)
        return list(wanted.values())

    def _executor(self, home: Path, name: str) -> submitit.AutoExecutor:
        executor = submitit.AutoExecutor(folder=home, cluster="slurm")
        options: dict[str, Any] = {"timeout_min": WEEK} | self.runner.slurm | {"name": name}
        executor.update_parameters(
            **options | {"slurm_additional_parameters": self._more()},
            slurm_array_parallelism=self.runner.jobs,
            cpus_per_task=self.runner.threads,
        )
        return executor

    def _more(self) -> dict[str, Any]:
        """Options of sbatch that submitit does not name: a job whose node dies is queued again."""
        return {"requeue": True} | self.runner.slurm.get("slurm_additional_parameters", {})

    def _task(self) -> SlurmTask:
        return SlurmTask(self.runner.signal_s, self.runner.asks_for_gpu, self.runner.stage_to)

    def _add(self, id: str, home: Path, runs: list[Run]) -> None:
        self.active.append(Work(id, home, runs, {name_of(run): self.steps_done(run) for run in runs}))

    def look(self) -> tuple[News, list[Run]]:
        """What has happened; and runs that have to be submitted again."""
        news, again, due = News(), list[Run](), time.monotonic() - self.asked_at > ASK_S
        answered = self._ask() if due else True
        listed = {home: _names(home) for home in {work.home for work in self.active}}
        for work in list(self.active):
            job = self.queue.get(work.id)
            work.state = job.state if job else work.state
            ended = self._outcome(work, work.result in listed[work.home], answered and not (job and job.is_live))
            if ended is not None:
                self.active.remove(work)
                news.ended += [one for one in ended if one is not None]
                again += [run for run, one in zip(work.runs, ended) if one is None]
            elif job and job.state == "RUNNING" and due:
                news.active += work.runs
        self.failed |= {home for home in listed if any(f"{home}/" in ended.reason for ended in news.ended)}
        for home in set(listed) - {work.home for work in self.active}:
            self._tidy(home, listed[home])
        news.said = self._said() if answered else "Slurm does not answer"
        return news, again

    def _outcome(self, work: Work, has_result: bool, is_gone: bool) -> list[Ended | None] | None:
        """How each run of a job ended, None for a run that has to be submitted again. None: the job goes on."""
        if has_result:
            reasons = _result(work)
            if all(_is_visible(run) for run in work.runs if reasons[name_of(run)] == ""):
                return [_ended(work, run, reasons[name_of(run)]) for run in work.runs]
            if _for(work) < VISIBLE_S:
                return None
            return [Ended(run, f"its job reports that it is done, but {run.result} is missing") for run in work.runs]
        if not is_gone:
            work.gone_at = None
            return None
        if _for(work) < GONE_S:
            return None
        state = queue.ending(work.id, work.state)
        if state.split()[0] in NO_FAULT and any(self.steps_done(run) > work.steps[name_of(run)] for run in work.runs):
            return [Ended(run) if run.result.exists() else None for run in work.runs]
        return [_ended(work, run, f"its job was {state}") for run in work.runs]

    def _ask(self) -> bool:
        """Ask Slurm for all jobs. Returns whether it answers."""
        found = queue.jobs()
        if found is not None:
            self.queue, self.asked_at = found, time.monotonic()
        return found is not None

    def _said(self) -> str:
        """For the progress bar: how many jobs run, how many wait, and why."""
        jobs = [job for work in self.active if (job := self.queue.get(work.id))]
        states, reasons = Counter(job.state.lower() for job in jobs), Counter(j.reason for j in jobs if j.is_pending)
        why = f" ({reasons.most_common(1)[0][0]})" if reasons else ""
        return ", ".join(f"{n} {state}" for state, n in states.items()) + why

    def _tidy(self, home: Path, names: set[str]) -> None:
        """Remove the folder of an array when its jobs have ended. It stays where one failed: for its log."""
        live = {id for id, job in self.queue.items() if job.name == home.name and job.is_live}
        if any(f"{id}_0_result.pkl" not in names for id in live):  # another call watches them
            return
        if home in self.failed:
            (home / NOTE).unlink(missing_ok=True)
        else:
            shutil.rmtree(home, ignore_errors=True)


def grouped(runs: list[Run], size: int) -> list[list[Run]]:
    """Runs in jobs of up to `size`, in their order. Those of a job have one kind of model and one data set: a large
    graph beside small ones slows them down."""
    jobs: list[list[Run]] = []
    filling: dict[tuple, list[Run]] = {}
    for run in runs:
        kind = (run.task, run.model.get("kind"))
        if len(filling.get(kind, [])) in (0, size):
            filling[kind] = []
            jobs.append(filling[kind])
        filling[kind].append(run)
    return jobs


def _live_jobs(note: Path, known: dict[str, queue.Job]) -> dict[str, list[str]]:
    """Names of runs by the id of each live job of a submission. Its note is removed when none is left."""
    content = json.loads(note.read_text())
    jobs = content.get("jobs")
    if jobs is None:  # its writer was killed before it knew the ids, perhaps before all files were in place
        ids = [id for id, job in known.items() if job.name == content["name"] and job.is_live]
        if not all((note.parent / f"{id}_submitted.pkl").exists() for id in ids):
            queue.cancel(ids)
            ids = []
        jobs = {id: content["runs"][int(id.split("_")[1]) if "_" in id else 0] for id in ids}
    live = {id: names for id, names in jobs.items() if id in known and known[id].is_live}
    if not live:
        note.unlink()
    return live


def _names(home: Path) -> set[str]:
    """What is in a folder. Its mode is set anew, so that a network file system asks the server."""
    with suppress(OSError):
        home.chmod(home.stat().st_mode & 0o777)
        return set(os.listdir(home))
    return set()


def _is_visible(run: Run) -> bool:
    with suppress(OSError):
        os.listdir(run.folder)
    return run.result.exists()


def _result(work: Work) -> dict[str, str | None]:
    """What a job has returned, for each of its runs. An error outside of them counts for each."""
    try:
        outcome, content = submitit.core.utils.pickle_load(work.home / work.result)
    except Exception:
        outcome, content = "error", traceback.format_exc()
    if outcome == "success":
        return content
    return dict.fromkeys(map(name_of, work.runs), content.strip().splitlines()[-1])


def _for(work: Work) -> float:
    """How long a job has been missed (s)."""
    work.gone_at = work.gone_at or time.monotonic()
    return time.monotonic() - work.gone_at


def _ended(work: Work, run: Run, reason: str | None) -> Ended | None:
    if reason is None:
        return None
    return Ended(run, f"{reason} {work.log}" if reason else "")
