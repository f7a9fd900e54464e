"""What a Slurm job does, without Slurm: its device, its signals, its copy of the data. And what is asked of Slurm."""

import os
import re
import shutil
import signal
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lra_sets import write

from elm_lib.experiments import job, queue, slurm, staging
from elm_lib.experiments.runner import Runner
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.training.run import Run

TRAIN = {"optimizer": "adam", "lr": 1e-2, "batch_size": 4, "epochs": 2, "batches_per_epoch": 9, "clip_grad_norm": None}


@pytest.fixture
def run(tmp_path) -> Run:
    write(tmp_path / "lra", "pathfinder", sizes=(24, 4, 5))
    model = {"kind": "elm", "d_m": 4, "tau_m_range": [1, 100]}
    options = {"name": "pathfinder", "dropout": 0.0}
    return Run("e", "lra", model, TRAIN, 3, str(tmp_path / "lra"), str(tmp_path / "runs/a"), options, device="auto")


@pytest.fixture(autouse=True)
def _handlers_as_before():
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_device_is_that_of_the_node_and_a_gpu_that_is_not_seen_is_named(monkeypatch):
    for name in job.GIVEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [job.device_here(wanted) for wanted in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert job.device_here("auto") == "cpu"
    with pytest.raises(ConfigError, match=r"node \S+: the job was given a GPU \(its options ask for one\)"):
        job.device_here("auto", given=True)
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    with pytest.raises(ConfigError, match=r"given a GPU \(SLURM_JOB_GPUS=0\), and torch \S+ sees none: install"):
        job.device_here("auto")
    assert job.device_here("cpu") == "cpu"


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({"gpus_per_node": 1}, True),
        ({"slurm_gres": "gpu:a100:1"}, True),
        ({"slurm_additional_parameters": {"gpus": 1}}, True),
        ({"slurm_partition": "gpu", "mem_gb": 4}, False),
    ],
)
def test_options_that_ask_for_a_gpu(options, asks):
    assert Runner(cluster="slurm", jobs=1, threads=1, slurm=options).asks_for_gpu == asks


def told_at(step: int, number: int):
    """`_Job.over` of a job that Slurm sends a signal when a run has done so many steps."""

    def over(self, done):
        if done == step:
            os.kill(os.getpid(), number)
            assert self.told.wait(60)
        return OVER(self, done)

    return over


def steps_of(run: Run) -> int:
    return torch.load(f"{run.folder}/checkpoint.pt", weights_only=True)["progress"]["step"]


OVER = job._Job.over


def test_told_that_its_time_ends_a_job_saves_and_is_queued_again_as_long_as_steps_advance(run, monkeypatch):
    ended: list[int] = []
    monkeypatch.setattr(job._Job, "over", told_at(5, signal.SIGUSR2))
    monkeypatch.setattr(job, "_end", ended.append)
    task, queue_again = job.SlurmTask(signal_s=90), job._queue_again
    monkeypatch.setattr(job, "_queue_again", lambda: "")
    task([run])
    assert ended == [1]  # it ends without a result: Slurm has queued it again
    assert steps_of(run) == 5

    monkeypatch.setattr(job, "_queue_again", queue_again)
    monkeypatch.setenv("PATH", "")  # a node without scontrol
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(job._Job, "over", told_at(11, signal.SIGUSR2))
    assert task([run]) == {"a": None}  # who submitted it submits it again
    assert steps_of(run) == 11

    monkeypatch.setattr(job._Job, "over", told_at(0, signal.SIGUSR2))
    assert task([run]) == {"a": "no step within the time of its job: raise slurm.timeout_min"}
    monkeypatch.setattr(job._Job, "over", OVER)
    assert task([run]) == {"a": ""}
    assert run.is_done()


def test_a_cancelled_job_saves_and_ends_without_a_result(run, monkeypatch):
    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(job._Job, "over", told_at(5, signal.SIGTERM))
    monkeypatch.setattr(job, "_end", end)
    monkeypatch.setattr(job, "_queue_again", pytest.fail)
    with pytest.raises(SystemExit, match="143"):
        job.SlurmTask(signal_s=90)([run])
    assert steps_of(run) == 5


def test_runs_that_share_a_job_have_one_kind_of_model(run):
    kinds = ["elm", "elm", "lstm", "elm", "lstm", "elm"]
    runs = [replace(run, folder=str(k), model={"kind": kind}) for k, kind in enumerate(kinds)]
    assert [[one.folder for one in several] for several in slurm.grouped(runs, 3)] == [
        ["0", "1", "3"],
        ["2", "4"],
        ["5"],
    ]
    assert [len(several) for several in slurm.grouped(runs, 1)] == [1] * 6


def test_a_copy_on_the_nodes_disk_is_made_once_and_follows_changes(tmp_path, monkeypatch):
    data, node = tmp_path / "data/lra", tmp_path / "node"
    write(data, "pathfinder")
    monkeypatch.setenv("NODE_DISK", str(node))
    copy = Path(staging.staged(str(data), "$NODE_DISK"))
    files = sorted(path.relative_to(data) for path in data.rglob("*") if path.is_file())
    assert sorted(path.relative_to(copy) for path in copy.rglob("*") if path.is_file()) == files
    assert all((copy / name).read_bytes() == (data / name).read_bytes() for name in files)
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(shutil, "copy2", pytest.fail)
    assert staging.staged(str(data), "$NODE_DISK") == str(copy)
    monkeypatch.undo()
    monkeypatch.setenv("NODE_DISK", str(node))
    (data / files[0]).write_bytes(b"changed")
    staging.staged(str(data), "$NODE_DISK")
    assert (copy / files[0]).read_bytes() == b"changed"
    assert staging.staged(str(data), None) == str(data)
    with pytest.raises(DataError, match=r"stage_to = '\$NO_SUCH' is '\$NO_SUCH' on this node"):
        staging.staged(str(data), "$NO_SUCH")
    copy.parent.chmod(0o777)
    with pytest.raises(DataError, match="another user"):
        staging.staged(str(data), "$NODE_DISK")


def test_how_a_job_ended_is_said_in_slurms_words(monkeypatch):
    told: dict[str, str | None] = {}
    monkeypatch.setattr(queue, "_call", lambda *command: told.get(command[0]))
    told["scontrol"] = "JobId=2 JobState=FAILED Reason=NonZeroExitCode ExitCode=137:0 RunTime=00:00:01"
    assert queue.ending("2") == "FAILED (Killed)"
    told["scontrol"] = "JobId=2 JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125 RunTime=00:00:01"
    assert queue.ending("2") == "OUT_OF_MEMORY"
    told["scontrol"], told["sacct"] = None, "CANCELLED by 0|0:15\n"  # forgotten by the controller
    assert queue.ending("2") == "CANCELLED (Terminated)"
    told["sacct"] = None
    assert queue.ending("2", "TIMEOUT") == "TIMEOUT"
    assert queue.ending("2", "RUNNING") == "gone from Slurm's queue"
    monkeypatch.undo()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError))
    assert queue.jobs() is None
    assert not re.search("gone", queue.ending("2", "FAILED"))
