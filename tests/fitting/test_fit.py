"""`elm_lib.fit`: a neuron of the user's own, from arrays or files to weights that load in one line."""

import json

import numpy as np
import pytest
import torch

import elm_lib
from elm_lib.datasets.neuronio import task as neuronio
from elm_lib.datasets.neuronio.schema import SOMA_BIAS_MV, SOMA_CAP_MV, SOMA_SCALE_MV, SimulationSet
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.datasets.recorded.schema import TEST, TRAIN, Prepared, prepare
from elm_lib.datasets.recorded.task import Task
from elm_lib.datasets.recorded.trials import read_simulations, read_trials
from elm_lib.fitting.choices import choose
from elm_lib.models.registry import build
from elm_lib.simulate import adex
from elm_lib.support.errors import DataError

SIGNS = np.array([1] * 8 + [-1] * 2)
QUICK = {"epochs": 2, "batches_per_epoch": 150}


@pytest.fixture(scope="module")
def recorded():
    """12 trials of 1.5 s of an adaptive exponential neuron, sampled every 0.1 ms."""
    rng, found = np.random.default_rng(0), []
    for _ in range(12):
        inputs = [np.sort(rng.uniform(0, 1500, rng.poisson(22))) for _ in SIGNS]
        found.append((inputs, *adex.simulate(inputs, np.full(10, 35.0), SIGNS, 1500)))
    return [list(part) for part in zip(*found)]


@pytest.fixture(scope="module")
def simulations(tmp_path_factory):
    """12 random simulations of the project's own schema."""
    path, rng = tmp_path_factory.mktemp("own") / "sims.h5", np.random.default_rng(1)
    spikes = [(rng.integers(1278, size=3000), rng.integers(1200, size=3000)) for _ in range(12)]
    output = [np.sort(rng.uniform(0.5, 1200, 9)) for _ in range(12)]
    voltage = rng.normal(-62, 6, (12, 1200))
    write_simulations(
        path, spikes=spikes, soma_voltage=voltage, output_spikes_ms=output, source="generated", provenance={}
    )
    return path


def test_a_neuron_is_fitted_kept_and_loaded(recorded, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    inputs, voltage, spikes = recorded
    found = elm_lib.fit(inputs, voltage, spikes, dt_ms=0.1, signs=SIGNS, out="mine", train=QUICK)
    assert torch.equal(before, torch.get_rng_state())
    assert found.scores["test_auc"] > 0.85 and found.scores["test_explained_variance"] > 40
    assert [row["step"] for row in found.curve] == [150, 300]
    assert found.curve[1]["train_loss"] < found.curve[0]["train_loss"]

    again = elm_lib.load_fit(found.path)
    assert isinstance(again.neuron, elm_lib.ELM) and again.scores == found.scores
    first = found.held_out["first"]
    test = found.settings["data"]["part"].index(TEST)
    p, v = again.predict(inputs[test], 1500)
    np.testing.assert_allclose(p, found.held_out["p"][: first[1]], atol=1e-6)
    np.testing.assert_allclose(v, found.held_out["v"][: first[1]], atol=1e-4)
    assert len(p) == 1500

    # nothing beside the folder that was named; the same call does nothing, other data get another key
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    capfd.readouterr()
    assert elm_lib.fit(inputs, voltage, spikes, dt_ms=0.1, signs=SIGNS, out="mine", train=QUICK).path == found.path
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert "step" not in capfd.readouterr().err
    tiny = {"epochs": 1, "batches_per_epoch": 1}
    keys = {
        elm_lib.fit(i, v, s, dt_ms=0.1, signs=SIGNS, out="mine", train=tiny).path.stem
        for i, v, s in (recorded, (inputs, [v + 1e-3 for v in voltage], spikes))
    }
    assert len(keys) == 2 and found.path.stem not in keys


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        elm_lib.load_fit(tmp_path / "none.safetensors")
    (tmp_path / "x.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"not a file of `elm_lib.fit`"):
        elm_lib.load_fit(tmp_path / "x.safetensors")


# ---- the same data, loss, windows and scores as NeuronIO's ----------------------------------------------------------


def test_files_of_the_project_become_the_same_steps(simulations):
    ours, theirs = read_simulations(simulations), SimulationSet(simulations)
    assert ours.delta_t == 1.0 and len(ours) == len(theirs)
    for k in (0, 11):
        rows = slice(ours.first[k], ours.first[k + 1])
        spike, _ = theirs.targets(k)
        np.testing.assert_array_equal(ours.spike[rows], spike > 0.5)
        file, n = theirs[k]
        np.testing.assert_array_equal(ours.voltage[rows], file.soma_voltage[n])
        dense = np.zeros((1200, 1278), np.float32)
        counts = np.diff(ours.row_ptr)[rows]
        entries = slice(ours.row_ptr[rows.start], ours.row_ptr[rows.stop])
        dense[np.repeat(np.arange(1200), counts), ours.channel[entries]] = ours.value[entries]
        np.testing.assert_array_equal(dense, theirs.dense(k))


def test_loss_prediction_and_scores_are_those_of_the_paper(simulations, tmp_path):
    chosen = choose(read_simulations(simulations), window_ms=500, burn_in_ms=150)
    assert (chosen.model["kind"], chosen.model["d_tree"], chosen.model["d_brch"]) == ("branch_elm", 45, 100)
    assert "d_tree" not in choose(read_simulations(simulations), model={"kind": "elm"}).model
    data = prepare(read_simulations(simulations), 500, cap_mv=SOMA_CAP_MV)
    Prepared(data.recording, data.part, SOMA_CAP_MV, SOMA_BIAS_MV, SOMA_SCALE_MV).save(tmp_path / "d.npz")
    task = Task(tmp_path / "d.npz", 4, 0, n_synapses=1278, window=500, burn_in=150)
    model = build(chosen.model, input_size=1278, d_o=2)
    theirs, trials = SimulationSet(simulations), data.trials("test")
    found = task.predictions(model, "test")
    p, v = neuronio.predict(model, theirs, int(trials[0]))
    np.testing.assert_allclose(found["p"][:1200], p, atol=1e-6)
    np.testing.assert_allclose(found["v"][:1200], v, atol=1e-4)
    batch = task.batch(0, 3)
    other = neuronio.Task(tmp_path, 4, 0, window_ms=500, burn_in_ms=150)
    assert task.loss(model, batch).item() == pytest.approx(other.loss(model, batch).item(), rel=1e-6)
    assert batch.voltage.max() <= (SOMA_CAP_MV - SOMA_BIAS_MV) / SOMA_SCALE_MV + 1e-6


# ---- what is read ---------------------------------------------------------------------------------------------------


def test_the_sampling_step_does_not_matter(recorded):
    inputs, voltage, spikes = recorded
    fine = read_trials(inputs, voltage, spikes, dt_ms=0.1, signs=SIGNS)
    coarse = read_trials(inputs, [v[::5] for v in voltage], spikes, dt_ms=0.5, signs=SIGNS)
    assert fine.digest == coarse.digest
    slow = read_trials(inputs, [v[::25] for v in voltage], spikes, dt_ms=2.5, signs=SIGNS)
    assert slow.delta_t == 2.5 and slow.durations.tolist() == [600] * 12
    n = sum(len(times) for trial in inputs for times in trial)
    for found in (fine, slow):
        assert np.abs(found.value).sum() == n  # spikes of one synapse in one step add up
        assert (np.sign(found.value) == SIGNS[found.channel]).all()
    detected = read_trials(inputs, voltage, None, dt_ms=0.1, signs=SIGNS)
    given, crossed = np.flatnonzero(fine.spike), np.flatnonzero(detected.spike)
    assert len(given) == len(crossed) and set(given - crossed) <= {0, 1}  # -20 mV lies in the upstroke
    trial = np.arange(fine.first[3], fine.first[4])
    np.testing.assert_array_equal(np.flatnonzero(fine.spike[trial]), np.unique((spikes[3] - 0.5).astype(int)))


def test_one_long_trial_is_cut_and_trials_can_be_held_out(recorded):
    inputs, voltage, spikes = recorded
    shifts = 1500 * np.arange(12)
    long = [np.concatenate([trial[c] + t for trial, t in zip(inputs, shifts)]) for c in range(10)]
    times = np.concatenate([s + t for s, t in zip(spikes, shifts)])
    one = read_trials(long, np.concatenate(voltage), times, dt_ms=0.1, signs=SIGNS)
    many = read_trials(inputs, voltage, spikes, dt_ms=0.1, signs=SIGNS)
    np.testing.assert_array_equal(one.spike, many.spike)
    np.testing.assert_array_equal(one.row_ptr, many.row_ptr)
    chosen = choose(one)
    assert chosen.window == 500 and chosen.burn_in == 150
    cut = prepare(one, 500)
    assert len(cut.recording) == 20 and cut.recording.durations.min() >= 500
    assert sorted(np.bincount(cut.part)) == [2, 2, 16]
    held = prepare(many, 500, held_out=[2, 5])
    assert held.trials("test").tolist() == [2, 5] and len(held.trials("valid")) == 1
    with pytest.raises(DataError, match="held_out"):
        prepare(many, 500, held_out=list(range(12)))


def test_the_target_is_learned_from_the_training_trials_alone(recorded):
    inputs, voltage, spikes = recorded
    before = prepare(read_trials(inputs, voltage, spikes, dt_ms=0.1, signs=SIGNS), 500)
    changed = [v if part == TRAIN else v + 3 for v, part in zip(voltage, before.part)]
    after = prepare(read_trials(inputs, changed, spikes, dt_ms=0.1, signs=SIGNS), 500)
    assert (before.cap_mv, before.bias_mv, before.scale_mv) == (after.cap_mv, after.bias_mv, after.scale_mv)
    assert adex.RESET_MV < before.bias_mv < before.cap_mv < adex.PEAK_MV


def change(recorded, **parts):
    given = dict(zip(("inputs", "voltage", "spikes"), recorded)) | {"dt_ms": 0.1, "signs": SIGNS}
    return given | {name: made(given[name]) for name, made in parts.items()}


def put(values, k, value):
    return [value if n == k else one for n, one in enumerate(values)]


BAD = {
    "fewer trials of voltage": ({"voltage": lambda v: v[:-1]}, "12 of inputs, 11 of voltage, 12 of spikes"),
    "fewer synapses": ({"inputs": lambda x: put(x, 4, x[4][:-1])}, "inputs of trial 4 have 9 synapses, signs has 10"),
    "NaN": ({"voltage": lambda v: put(v, 2, np.where(np.arange(15000) == 70, np.nan, v[2]))}, "trial 2 is nan at 7 ms"),
    "NaN among times": (
        {"spikes": lambda s: put(s, 1, np.array([np.nan]))},
        "output spikes of trial 1: a spike at nan",
    ),
    "no output": ({"spikes": lambda s: [[] for _ in s]}, "no output spike in any trial"),
    "no input": ({"inputs": lambda x: [[[]] * 10 for _ in x]}, "no spike at any synapse"),
    "V": ({"voltage": lambda v: [x / 1000 for x in v]}, "multiply V by 1000"),
    "uV": ({"voltage": lambda v: [x * 1000 for x in v]}, "divide uV by 1000"),
    "times in s": ({"inputs": lambda x: [[t / 1000 for t in trial] for trial in x]}, "multiply s by 1000"),
    "times in us": ({"spikes": lambda s: [t * 1000 for t in s]}, "outside the 1500 ms of its voltage"),
    "step in s": ({"dt_ms": lambda dt: dt / 1000}, "dt_ms = 0.0001"),
    "constant voltage": ({"voltage": lambda v: [0 * x - 70 for x in v]}, "-70 mV throughout"),
    "signs": ({"signs": lambda s: s * 0.5}, "signs: give \\+1"),
    "a table of voltages": ({"voltage": lambda v: put(v, 0, np.zeros((3, 5)))}, "voltage of trial 0 has shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_cannot_be_right_get_one_sentence(recorded, name, tmp_path):
    parts, message = BAD[name]
    with pytest.raises(DataError, match=message) as error:
        elm_lib.fit(**change(recorded, **parts), out=tmp_path / "none")
    assert "\n" not in str(error.value) and str(error.value).count(". ") == 0
    assert not (tmp_path / "none").exists()


def test_too_little_and_ill_fitting_lengths_are_refused(recorded, tmp_path):
    few = change([part[:1] for part in recorded])
    for given, message in (
        (few | {"window_ms": 1000}, "window at most 300 ms"),
        (change(recorded) | {"window_ms": 200, "burn_in_ms": 200}, "shorter than the window"),
        (change(recorded) | {"window_ms": float("nan")}, "window_ms = nan: give a number of ms"),
        (change(recorded) | {"train": {"lr": -1.0}}, "lr"),
        (change(recorded) | {"train": {"accumulate": 2}}, "accumulate = 2"),
        (change(recorded) | {"model": {"d_mm": 3}}, "d_mm"),
        (change(recorded) | {"model": {"kind": "branch_elm", "d_m": 2.5}}, "d_m"),
    ):
        with pytest.raises((DataError, ValueError), match=message):
            elm_lib.fit(**given, out=tmp_path / "none")
    with pytest.raises(TypeError, match="dt_ms, signs"):
        elm_lib.fit(*recorded, out=tmp_path / "none")
    with pytest.raises(TypeError, match="leave out signs"):
        elm_lib.fit("some.h5", signs=SIGNS)
    assert not (tmp_path / "none").exists()


def test_settings_are_json_and_hold_what_a_reader_needs(recorded, tmp_path):
    tiny = {"epochs": 1, "batches_per_epoch": 1}
    found = elm_lib.fit(*recorded, dt_ms=0.1, signs=SIGNS, out=tmp_path, train=tiny, model={"d_m": 3})
    settings = json.loads(json.dumps(found.settings))
    assert settings["model"]["d_m"] == 3 and settings["model"]["lambda_"] == 5.0
    assert settings["signs"] == SIGNS.tolist() and settings["delta_t"] == 1.0
    assert settings["data"]["sha256"] == read_trials(*recorded, dt_ms=0.1, signs=SIGNS).digest
    (tmp_path / found.path.stem / "statistics.npz").unlink()
    with pytest.raises(DataError, match=r"statistics\.npz is missing"):
        _ = found.held_out
