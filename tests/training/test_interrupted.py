"""A run whose files were cut off, whose clock was set back, whose disk was full: it ends as if nothing had been."""

import itertools
import json
import resource
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.experiments.config import Runner
from elm_lib.experiments.execute import execute
from elm_lib.support.errors import DataError
from elm_lib.training import loop
from elm_lib.training.run import Run, train_run

TRAIN = dict(optimizer="adam", lr=1e-3, batch_size=2, epochs=2, batches_per_epoch=10, clip_grad_norm=None)
MODEL = {"kind": "elm", "d_m": 2, "l_mlp": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("neuronio"), np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        write_simulations(
            folder / split / "sims_00000.h5",
            spikes=[(rng.integers(1278, size=900), rng.integers(1100, size=900))],
            soma_voltage=rng.normal(-65, 5, (1, 1100)),
            output_spikes_ms=[rng.integers(600, 1100, size=9)],
            source="generated",
            provenance={},
        )
    return folder


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory) -> Run:
    options = {"window_ms": 100, "burn_in_ms": 50}
    run = Run("e", "neuronio", MODEL, TRAIN, 3, str(data), str(tmp_path_factory.mktemp("whole")), options)
    train_run(run)
    return run


@pytest.fixture
def run(whole, tmp_path) -> Run:
    """The same run, elsewhere."""
    return replace(whole, folder=str(tmp_path / "run"))


def assert_same(ours: Run, theirs: Run) -> None:
    a, b = (load_file(Path(run.folder) / "model.safetensors") for run in (ours, theirs))
    assert all(torch.equal(a[key], b[key]) for key in b)
    assert (Path(ours.folder) / "curve.csv").read_text() == (Path(theirs.folder) / "curve.csv").read_text()
    results = [json.loads(run.result.read_text())["result"] for run in (ours, theirs)]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["result.json", "model.safetensors", "curve.csv", "statistics.npz"])
def test_a_result_is_done_only_with_all_that_belongs_to_it(run, whole, name):
    train_run(run)
    assert run.is_done()
    path = Path(run.folder) / name
    path.write_bytes(b"" if name != "curve.csv" else path.read_bytes().rsplit(b"\n", 2)[0] + b"\n")  # a row less
    with pytest.warns(UserWarning, match=r"result\.json cannot be read .*: renamed to result\.json\.unreadable"):
        assert not run.is_done()
    train_run(run)
    assert_same(run, whole)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
def test_a_checkpoint_that_was_cut_off_is_set_aside(run, whole, part):
    train_run(run, stop=lambda step: step >= 12)
    path = Path(run.folder) / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.warns(UserWarning, match=r"checkpoint\.pt cannot be read"):
        train_run(run)
    assert_same(run, whole)


@pytest.mark.parametrize("content", ["", "null", "{}", "[1]", '{"step": "x"}'])
def test_a_note_of_progress_stops_nothing(run, whole, content, monkeypatch):
    monkeypatch.setattr(loop, "TOLD_S", -1)
    monkeypatch.setattr(loop, "CHECK_EVERY", 1)
    note = Path(run.folder) / "progress.json"
    note.parent.mkdir()
    note.write_text(content)
    note.with_name("progress.json.part").mkdir()  # it cannot be written either
    execute([run], Runner(cluster="debug", jobs=1, threads=1))
    assert_same(run, whole)
    assert note.read_text() == content


def test_a_clock_that_is_set_back_stops_no_checkpoint(run, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0)
    monkeypatch.setattr(loop, "CHECK_EVERY", 1)
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600 * next(hours))
    train_run(run, stop=lambda step: step >= 5)
    assert torch.load(Path(run.folder) / "checkpoint.pt")["progress"]["step"] == 5


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(run, whole):
    """No file may be larger than 4 kB meanwhile, which is how a test has no room without filling a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(
                DataError, match=r"checkpoint\.pt: file too large: it needs \d.* are free; make"
            ) as error:
                train_run(run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(error.value)
    train_run(run)
    assert_same(run, whole)
