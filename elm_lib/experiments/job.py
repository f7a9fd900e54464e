"""What a Slurm job does on its node: choose the device, train, save a checkpoint and be queued again at its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import submitit
import torch

from elm_lib.experiments.staging import staged
from elm_lib.experiments.threads import in_threads, reason_of
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.training.run import Device, Run, pick_device

REQUEUE_S = 15.0  # s before the end of a job's time: what `scontrol requeue` may take
GIVEN = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")  # what Slurm sets in a job that has GPUs


@dataclass(frozen=True)
class SlurmTask:
    """The runs of one job, in threads of one process."""

    signal_s: float  # how long before the end of the job's time Slurm tells it
    asks_for_gpu: bool = False
    stage_to: str | None = None  # folder on the node's disk for a copy of the data

    def __call__(self, runs: list[Run]) -> dict[str, str | None]:
        """Train. Returns, by the name of each run's folder, why it failed; "": it is done; None: it has to go on.

        Told by Slurm that its time ends, the job saves checkpoints and is queued again, as long as steps advance. Told
        to end (SIGTERM), it saves checkpoints and ends. In both cases it does not return.
        """
        job = _Job()
        outcome: dict[str, str | None] = {name_of(run): None for run in runs}
        try:
            device = device_here(runs[0].device, self.asks_for_gpu)
            ready = [replace(run, device=device, data=staged(run.data, self.stage_to)) for run in runs]
        except (ConfigError, DataError) as error:
            return dict.fromkeys(outcome, reason_of(error))
        working = in_threads(ready, len(ready), job.over)  # kept: its end waits for the threads
        for several in working:
            for ended in several:
                if ended.error is not None:
                    traceback.print_exception(ended.error)
                if ended.error is not None or ended.run.result.exists():
                    outcome[name_of(ended.run)] = ended.reason
            if time.monotonic() > job.told_at + self.signal_s - REQUEUE_S:
                break  # one is in the middle of a long evaluation: its last checkpoint has to do
        goes_on = [name for name, reason in outcome.items() if reason is None]
        if job.is_cancelled:
            _end(128 + signal.SIGTERM)
        if goes_on and not job.advanced.is_set():
            return outcome | dict.fromkeys(goes_on, "no step within the time of its job: raise slurm.timeout_min")
        if goes_on:
            refused = _queue_again()
            if not refused:
                _end(1)
            print(f"this job cannot queue itself again ({refused}): who submitted it will", file=sys.stderr)
        return outcome


def name_of(run: Run) -> str:
    """Of a run's folder: the same from wherever the folder is looked at."""
    return Path(run.folder).name


class _Job:
    """What Slurm's signals have said."""

    def __init__(self) -> None:
        self.told, self.advanced = threading.Event(), threading.Event()
        self.told_at, self.is_cancelled = float("inf"), False
        signal.signal(getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}"), self._tell)
        signal.signal(signal.SIGTERM, self._cancel)

    def _tell(self, *_: Any) -> None:
        self.told_at = min(self.told_at, time.monotonic())
        self.told.set()

    def _cancel(self, *_: Any) -> None:
        self.is_cancelled = True
        self._tell()

    def over(self, step: int) -> bool:
        """Whether runs have to end; also notes that a step was done."""
        if step:
            self.advanced.set()
        return self.told.is_set()


def device_here(wanted: str, given: bool = False) -> Device:
    """ "auto", "cpu" or "cuda" -> the device of this node.

    given  whether the job asked for a GPU; what Slurm's environment says counts too

    Raises ConfigError for a job that was given a GPU where torch sees none.
    """
    found = next((f"{name}={os.environ[name]}" for name in GIVEN if os.environ.get(name)), "its options ask for one")
    if wanted != "cpu" and (given or "=" in found) and not torch.cuda.is_available():
        raise ConfigError(
            f"node {socket.gethostname()}: the job was given a GPU ({found}), and torch {torch.__version__} sees none: "
            "install a CUDA build of torch that fits the driver, or set device: cpu in params.yaml"
        )
    return pick_device(wanted)  # type: ignore[arg-type]  # params.yaml was checked


def job_id() -> str:
    """Of this job, as Slurm's commands take it."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def _queue_again() -> str:
    """Ask Slurm to queue this job again. Returns why it does not."""
    try:
        subprocess.run(["scontrol", "requeue", job_id()], capture_output=True, text=True, check=True, timeout=60)
        return ""
    except subprocess.CalledProcessError as error:
        return " ".join(error.stderr.split()) or f"scontrol ended with {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _end(code: int) -> None:
    """End this process at once, without a result: Slurm's word counts."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
