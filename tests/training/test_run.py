"""The training loop: exact resume, divergence, schedule; and the evaluation protocols against published scores."""

import json
import re
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elm_lib import load_released
from elm_lib.datasets.neuronio.batches import read_batch
from elm_lib.datasets.neuronio.resident import Resident
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.datasets.neuronio.task import evaluate, predict
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.experiments.config import Runner
from elm_lib.experiments.execute import RunError, execute
from elm_lib.support.errors import DataError
from elm_lib.training.optimisation import Train, learning_rate
from elm_lib.training.run import Run, pick_device, train_run

TRAIN = dict(
    optimizer="adam",
    lr=1e-3,
    batch_size=2,
    epochs=3,
    batches_per_epoch=55,
    clip_grad_norm=None,
)
OPTIONS = {"window_ms": 200, "burn_in_ms": 50}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Random simulations of 1.2 s in the real format; nothing to learn, but everything runs as in earnest."""
    folder, rng = tmp_path_factory.mktemp("neuronio"), np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        spikes = [(rng.integers(1278, size=4000), rng.integers(1200, size=4000)) for _ in range(2)]
        write_simulations(
            folder / split / "sims_00000.h5",
            spikes=spikes,
            soma_voltage=rng.normal(-65, 5, (2, 1200)),
            output_spikes_ms=[rng.integers(600, 1200, size=9) for _ in range(2)],
            source="generated",
            provenance={},
        )
    return folder


def _run(data, folder, **changes):
    model = {"kind": "branch_elm", "d_m": 4, "d_tree": 6, "d_brch": 9}
    return replace(Run("e", "neuronio", model, TRAIN, 3, str(data), str(folder), OPTIONS), **changes)


def test_a_killed_run_ends_with_the_same_weights(data, tmp_path, killed_as_whole):
    whole, killed = _run(data, tmp_path / "whole"), _run(data, tmp_path / "killed")
    # killed before the first checkpoint, inside and right after an epoch, later
    assert killed_as_whole(whole, killed, 20, 54, 56, 120)["steps"] == 165
    assert not (tmp_path / "killed/checkpoint.pt").exists()


def test_training_lowers_the_loss_and_keeps_the_best_epoch(data, tmp_path):
    run = _run(data, tmp_path / "r")
    train_run(run)
    rows = [line.split(",") for line in (tmp_path / "r/curve.csv").read_text().splitlines()]
    header, values = rows[0], np.array(rows[1:], float)
    loss, rmse = values[:, header.index("train_loss")], values[:, header.index("valid_rmse")]
    assert loss[-1] < 0.8 * loss[0]
    result = json.loads(run.result.read_text())["result"]
    assert result["best_epoch"] == int(np.argmin(rmse))
    assert result["valid_rmse"] == pytest.approx(rmse.min(), rel=1e-9)


def test_a_divergent_run_is_recorded_not_lost(data, tmp_path):
    run = _run(data, tmp_path / "r", train=TRAIN | {"lr": 1e30}, model={"kind": "lstm", "hidden_size": 2})
    train_run(run)
    result = json.loads(run.result.read_text())["result"]
    assert result["diverged"]
    assert result["steps"] < 165
    assert "test_auc" not in result


def test_cosine_decay_over_the_whole_run():
    train = Train(**TRAIN)
    rates = [learning_rate(train, step) for step in range(train.steps + 1)]
    assert rates[0] == train.lr
    assert rates[train.steps // 2] == pytest.approx(train.lr / 2, rel=0.02)
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert (np.diff(rates) < 0).all()


def test_windows_of_the_released_evaluation_cover_every_millisecond_once(data):
    """A model that returns its own clock: what is kept is the first window whole, then the last 350 ms of each next
    one."""

    class Clock(torch.nn.Module):
        weight = torch.nn.Parameter(torch.zeros(1))

        def parameters(self, recurse=True):
            yield self.weight

        def forward(self, x):
            time = torch.arange(x.shape[1], dtype=torch.float64).expand(x.shape[0], -1)
            return torch.stack([time, time], -1), None

    _, clock = predict(Clock(), SimulationSet(data / "test"), 0)
    clock = (clock + 67.7) / 10
    expected = np.concatenate([np.arange(500), np.tile(np.arange(150, 500), 2)])[:1200]
    np.testing.assert_allclose(clock, expected)


def test_released_weights_reach_their_published_scores_on_independent_simulations(shared, tmp_path):
    """64 simulations of 6 s by another simulator: published test scores are AUC 0.9922, RMSE 0.638 mV, 95.7 % for d_m =
    20."""
    with h5py.File(shared / "l5pc" / "testset_64x6s.h5") as file:
        synapse, time = file["input/synapse"][:].astype(int), file["input/time_ms"][:]
        channel = np.where(synapse < 639, 2 * synapse, 2 * (synapse - 639) + 1)
        offset, out = file["input/offset"][:], file["output/offset"][:]
        spikes = [(channel[a:b], time[a:b]) for a, b in zip(offset, offset[1:])]
        output = [file["output/spike_ms"][a:b] for a, b in zip(out, out[1:])]
        write_simulations(
            tmp_path / "sims.h5",
            spikes=spikes,
            soma_voltage=file["soma_voltage_mV"][:].astype("f4"),
            output_spikes_ms=output,
            source="generated",
            provenance={},
        )
    model = load_released(shared / "official" / "num_memory_20", channels="interleaved")
    scores = evaluate(model, SimulationSet(tmp_path / "sims.h5"))["released"]
    assert scores["auc"] == pytest.approx(0.9922, abs=0.002)
    assert scores["rmse"] == pytest.approx(0.638, abs=0.05)
    assert scores["explained_variance"] == pytest.approx(95.7, abs=0.5)
    assert scores["tp_at_0.01_fp"] == pytest.approx(0.744, abs=0.06)


def test_local_processes_do_what_is_missing_and_an_error_is_one_line(data, tmp_path):
    short = TRAIN | {"epochs": 1, "batches_per_epoch": 3}
    runs = [_run(data, tmp_path / "e" / str(seed), seed=seed, train=short) for seed in (0, 1, 2)]
    train_run(runs[0])
    before = runs[0].result.stat().st_mtime_ns
    execute(runs, Runner(cluster="local", jobs=2, threads=1))
    assert all(run.result.exists() for run in runs)
    assert runs[0].result.stat().st_mtime_ns == before
    assert len({json.loads(run.result.read_text())["result"]["valid_rmse"] for run in runs}) == 3  # seeds differ
    broken = _run(tmp_path / "nowhere", tmp_path / "e" / "broken", train=short, labels={"size": 4})
    with pytest.raises(RunError, match=r"size 4, seed 3: .*nowhere.* \(log: ") as error:
        execute([broken], Runner(cluster="local", jobs=1, threads=1))
    assert "\n" not in str(error.value)


def test_missing_data_and_missing_cuda_are_one_clear_line(tmp_path):
    with pytest.raises(DataError, match=r"train.*"):
        train_run(_run(tmp_path / "nowhere", tmp_path / "r"))
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device = 'cuda', but torch sees no CUDA device"):
            pick_device("cuda")


def test_a_resident_set_gives_the_batches_of_the_files(data):
    simulations = SimulationSet(data / "train")
    resident = Resident(simulations, "cpu")
    batch = read_batch(simulations, [1, 0], [30, 1000], 200)
    ours = resident.batch(torch.tensor([1 * 1200 + 30, 1000]), 200)
    assert torch.equal(ours.x, batch.x.dense())
    assert torch.equal(ours.spike, batch.spike)
    assert torch.equal(ours.voltage, batch.voltage)


def test_runs_in_threads_end_as_they_do_one_by_one(data, tmp_path):
    runs = [_run(data, tmp_path / f"threads{seed}", seed=seed) for seed in (1, 2)]
    execute(runs, Runner(cluster="threads", jobs=2, threads=1))
    for run in runs:
        alone = replace(run, folder=str(tmp_path / f"alone{run.seed}"))
        train_run(alone)
        a, b = (load_file(f"{r.folder}/model.safetensors") for r in (run, alone))
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_run_that_fails_ends_the_others_only_where_that_is_asked_for(data, tmp_path):
    bad, worse = (
        _run(data, tmp_path / f"bad{seed}", model={"kind": "elm", "d_m": 0}, seed=seed, labels={"size": 0})
        for seed in (7, 8)
    )
    good = _run(data, tmp_path / "good", train=TRAIN | {"epochs": 1, "batches_per_epoch": 3})
    for cluster in ("threads", "debug"):
        with pytest.raises(RunError) as error:
            execute([bad, good, worse], Runner(cluster=cluster, jobs=2, threads=1))
        lines = str(error.value).splitlines()
        assert lines[0] == ("2 of 3 runs failed:" if cluster == "threads" else "2 of 2 runs failed:")
        assert all(re.search(rf"e, size 0, seed {seed}: .*at least 1", str(error.value)) for seed in (7, 8))
        assert len(lines) == 3
        assert good.is_done()
    long = _run(data, tmp_path / "long", train=TRAIN | {"epochs": 1000})
    with pytest.raises(RunError, match=r"^e, size 0, seed 7: .*at least 1"):
        execute([long, bad], Runner(cluster="threads", jobs=2, threads=1, stop_at_first=True))
    assert not long.is_done()
    assert (tmp_path / "long/checkpoint.pt").exists()  # what it has done is kept


def test_a_run_is_told_to_end_between_two_looks_and_goes_on(data, tmp_path, killed_as_whole):
    """A checkpoint at any step, also where the loss is not looked at."""
    whole, paused = (_run(data, tmp_path / name, seed=5) for name in ("whole", "paused"))
    train_run(paused, over=lambda step: step >= 7)
    assert torch.load(tmp_path / "paused/checkpoint.pt", weights_only=True)["progress"]["step"] == 7
    killed_as_whole(whole, paused)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize(
    "model",
    [
        {"kind": "branch_elm", "d_m": 4, "d_tree": 6, "d_brch": 9},
        {"kind": "elm", "d_m": 4},
        {"kind": "lstm", "hidden_size": 5},
    ],
)
def test_steps_of_a_cuda_graph_are_the_steps_of_the_loop(data, tmp_path, model, monkeypatch):
    graphed, killed, looped = (_run(data, tmp_path / n, model=model, device="cuda") for n in ("g", "k", "l"))
    train_run(graphed)
    train_run(killed, stop=lambda step: step >= 60)
    train_run(killed)
    monkeypatch.setattr("elm_lib.training.run.on_gpu", lambda *_: None)
    train_run(looped)
    a, b, c = (load_file(f"{run.folder}/model.safetensors") for run in (graphed, killed, looped))
    for key in a:
        assert torch.equal(a[key], b[key])
        torch.testing.assert_close(a[key], c[key], rtol=2e-2, atol=2e-3)  # cuDNN's products are TF32


@needs_gpu
def test_runs_share_a_gpu_in_threads(data, tmp_path):
    runs = [_run(data, tmp_path / f"threads{seed}", seed=seed, device="cuda") for seed in range(4)]
    execute(runs, Runner(cluster="threads", jobs=4, threads=1))
    alone = replace(runs[2], folder=str(tmp_path / "alone"))
    train_run(alone)
    a, b = (load_file(f"{r.folder}/model.safetensors") for r in (runs[2], alone))
    assert all(torch.equal(a[key], b[key]) for key in a)
