"""A real Slurm on this machine, without accounting: what a user does, and what goes wrong. Up to 3 minutes long."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import slurm
import torch
from safetensors.torch import load_file

from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.training.run import Run, train_run

ROOT = Path(__file__).resolve().parents[2]
STALLED_S = 300  # without what is waited for
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "-")]

TRAIN = {"optimizer": "adam", "lr": 1e-3, "batch_size": 2, "epochs": 3, "batches_per_epoch": 55, "clip_grad_norm": None}
MIDDLE = TRAIN | {"batches_per_epoch": 300}  # long enough to be told to end in the middle
LONG = TRAIN | {"batches_per_epoch": 20_000}  # never done here
SUBMIT = """
import json, sys
from elm_lib.experiments.execute import RunError, execute
from elm_lib.experiments.runner import Runner
from elm_lib.training.run import Run
content = json.loads(sys.argv[1])
try:
    execute([Run(**run) for run in content["runs"]], Runner(**content["runner"]))
except RunError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.Slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture(scope="module")
def env(cluster):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    return kept | cluster.env | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder, rng = tmp_path_factory.mktemp("neuronio"), np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        write_simulations(
            folder / split / "sims_00000.h5",
            spikes=[(rng.integers(1278, size=4000), rng.integers(1200, size=4000)) for _ in range(2)],
            soma_voltage=rng.normal(-65, 5, (2, 1200)),
            output_spikes_ms=[rng.integers(600, 1200, size=9) for _ in range(2)],
            source="generated",
            provenance={},
        )
    return folder


def until(found, what: str):
    """The first value that is true, of `found` called again and again."""
    end = time.monotonic() + STALLED_S
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {STALLED_S} s")


class Submitter:
    """A process that submits runs and watches them, as a context: it is gone after it."""

    def __init__(self, env, runs: list[Run], log: Path, **runner):
        content = {"runs": [asdict(run) for run in runs], "runner": {"cluster": "slurm", "threads": 1, **runner}}
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen([sys.executable, "-c", SUBMIT, json.dumps(content)], env=env, stderr=out)

    def end(self) -> str:
        """Wait. Returns the last lines of what it said: the error."""
        try:
            self.process.wait(STALLED_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()[-1000:]) from None
        return self.log.read_text().split("\r")[-1].split("\n", 1)[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def test_jobs_are_requeued_cancelled_killed_and_taken_up_again(cluster, env, data, tmp_path):
    """Four jobs in one array, of which two run at once. The first is told that its time ends, and queued again. The
    submitter is killed, and another takes up what lives. The second job is cancelled, the third killed."""

    def states() -> dict[str, str]:
        lines = cluster.call("squeue", "--noheader", "--array", "--states=all", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def has_begun(run: Run) -> bool:
        return (Path(run.folder) / "progress.json").exists()

    model, options = {"kind": "elm", "d_m": 4}, {"window_ms": 200, "burn_in_ms": 50}
    a, b, c, d = (
        Run("e", "neuronio", model, LONG, seed, str(data), str(tmp_path / name), options, "auto", labels={"size": name})
        for seed, name in enumerate(["requeued", "cancelled", "killed", "whole"])
    )
    a, d = replace(a, train=MIDDLE), replace(d, train=TRAIN)
    with Submitter(env, [a, b, c, d], tmp_path / "first", jobs=2) as first:
        until(lambda: has_begun(a), "a job that trains")
        array = next(iter(states())).split("_")[0]
        cluster.signal(f"{array}_0", "USR2", lambda: until(lambda: states()[f"{array}_0"] == "PENDING", "its requeue"))
        first.process.kill()
    step = torch.load(tmp_path / "requeued/checkpoint.pt", weights_only=True)["progress"]["step"]
    assert 0 < step < 900
    with Submitter(env, [a, b, c, d], tmp_path / "second", jobs=2) as second:
        until(lambda: " running" in second.log.read_text() and has_begun(b), "a submitter that watches the second job")
        cluster.call("scancel", f"{array}_1")
        until(lambda: has_begun(c), "the third job")
        cluster.process(2).kill()
        said = second.end()
    assert set(states()) - {f"{array}_{k}" for k in range(4)} == set()  # nothing was submitted twice
    assert re.search(r"^2 of 4 runs failed:$", said, re.MULTILINE), said
    assert re.search(rf"e, size cancelled, seed 1: its job was CANCELLED.* \(log: .*{array}_1_0_log.err\)", said), said
    assert re.search(rf"e, size killed, seed 2: its job was FAILED \(Killed\) \(log: .*{array}_2_0_log.err\)", said), (
        said
    )
    assert d.is_done()
    whole = replace(a, folder=str(tmp_path / "here"), device="cpu")
    train_run(whole)
    ours, expected = (load_file(f"{run.folder}/model.safetensors") for run in (a, whole))
    assert all(torch.equal(ours[key], expected[key]) for key in expected)


def test_a_job_with_a_gpu_that_torch_does_not_see_fails_by_name(env, data, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("torch sees a GPU here")
    run = Run("e", "neuronio", {"kind": "elm", "d_m": 4}, TRAIN, 0, str(data), str(tmp_path / "a"), device="auto")
    with Submitter(env, [run], tmp_path / "log", jobs=1, slurm={"gpus_per_node": 1}) as submitter:
        said = submitter.end()
    assert re.search(r"seed 0: node \S+: the job was given a GPU \(SLURM_\w+=\S+\), and torch \S+ sees none", said), (
        said
    )


def test_smoke_through_slurm(env, tmp_path):
    """As a user does it, several runs in a job."""
    text = (ROOT / "params.yaml").read_text()
    former, at = "runner: {cluster: debug, jobs: 1, threads: 1}", text.index("\n  smoke:")
    assert text.count(former) == 1 and text.index(former) > at
    asked = "runner: {cluster: slurm, jobs: 2, threads: 1, runs_per_job: 4, stage_to: $NODE_DISK}"
    (tmp_path / "params.yaml").write_text(text.replace(former, asked))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "elm_lib.experiments",
            "smoke",
            "shd_adding_ablations",
            "lra_pathfinder",
            "--minutes",
            "10",
        ],
        cwd=tmp_path,
        env=env | {"NODE_DISK": str(tmp_path / "node")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "4 of 4 planned runs are in runs/ledger" in done.stdout
    assert list((tmp_path / "runs/work/jobs").iterdir()) == [tmp_path / "runs/work/jobs/lock"]
    assert len(list((tmp_path / "node").glob("*/*-shd"))) == 1
