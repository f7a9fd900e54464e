"""Scores from what is kept of a prediction, against those of the prediction; and the simulation that figures show."""

import io

import numpy as np
import pytest
import torch

from elm_lib import ELM
from elm_lib.datasets.neuronio.example import LEAD_MS, liveliest, shown
from elm_lib.datasets.neuronio.metrics import score
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.datasets.neuronio.statistics import scores_from_statistics, statistics
from elm_lib.datasets.neuronio.task import Task, predict_all
from elm_lib.datasets.neuronio.writer import write_simulations


def prediction(n=24, duration_ms=6000, separation=14.0, seed=0):
    """As of a trained model: logits around -9 in silence, higher before a spike; a voltage 0.7 mV off."""
    rng = np.random.default_rng(seed)
    spike = (rng.random((n, duration_ms)) < rng.uniform(0.0005, 0.006, (n, 1))).astype(np.float32)
    logit = rng.normal(-9, 2, spike.shape) + spike * rng.gamma(4, separation / 4, spike.shape)
    voltage = np.minimum(rng.normal(-67, 4, spike.shape), -55)
    return 1 / (1 + np.exp(-logit)), voltage + rng.normal(0.1, 0.7, spike.shape), spike, voltage


# with an AUC near those of trained models the bins cost less than 1e-4, with a poorer one a little more
@pytest.mark.parametrize(("separation", "margin"), [(4.0, 4e-4), (12.0, 1e-4), (16.0, 1e-4)])
def test_scores_follow_from_the_statistics(separation, margin):
    arrays = prediction(separation=separation)
    assert (arrays[2].sum(1) > 24).any()
    assert (arrays[2].sum(1) <= 24).any()
    exact, ours = score(*arrays), scores_from_statistics(statistics(*arrays))
    for protocol in ("clean", "released"):
        assert ours[protocol]["auc"] == pytest.approx(exact[protocol]["auc"], abs=margin)
        assert ours[protocol]["rmse"] == pytest.approx(exact[protocol]["rmse"], abs=1e-9)
        assert ours[protocol]["explained_variance"] == pytest.approx(exact[protocol]["explained_variance"], abs=1e-7)
        for name in ("tp_at_0.0025_fp", "tp_at_0.01_fp"):
            assert ours[protocol][name] == pytest.approx(exact[protocol][name], abs=0.01)
        assert set(ours[protocol]) == set(exact[protocol]) - {"mae"}


def test_chosen_simulations_may_come_several_times():
    arrays, chosen = prediction(n=6), np.array([3, 0, 3, 5])
    ours = scores_from_statistics(statistics(*arrays), chosen)
    exact = scores_from_statistics(statistics(*(a[chosen] for a in arrays)))
    for protocol, values in exact.items():
        assert ours[protocol] == pytest.approx(values, rel=1e-12)
    mask = np.arange(6) < 2
    assert scores_from_statistics(statistics(*arrays), mask) == scores_from_statistics(
        statistics(*arrays), np.flatnonzero(mask)
    )


def test_the_arrays_are_as_the_ledger_keeps_them():
    kept = statistics(*prediction(n=3, duration_ms=700))
    shapes = {name: (array.shape, array.dtype) for name, array in kept.items()}
    assert shapes == {
        "spike_hist": ((3, 256), np.uint16),
        "silent_hist": ((3, 256), np.uint16),
        "sums": ((3, 6), np.float64),
        "whole": ((3, 6), np.float64),
        "spikes": ((3,), np.int64),
    }
    assert (kept["spike_hist"].sum(1) + kept["silent_hist"].sum(1) == 200).all()
    assert (kept["whole"][:, 0] == 700).all()


def test_certain_predictions_count_and_no_number_is_no_score():
    p, v, spike, voltage = prediction(n=2, duration_ms=2000)
    certain = scores_from_statistics(statistics(spike.astype(float), v, spike, voltage))["clean"]
    assert certain["auc"] == 1.0
    p[0, 600] = np.nan
    v[1, 650] = np.nan
    broken = scores_from_statistics(statistics(p, v, spike, voltage))["clean"]
    assert np.isnan(list(broken.values())).all()
    silent = scores_from_statistics(statistics(p[1:], voltage[1:], 0 * spike[1:], voltage[1:]))["clean"]
    assert np.isnan(silent["auc"])
    assert silent["rmse"] == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Simulations of 3.2 s with as many input spikes as the layer-5 pyramidal cell gets."""
    folder, rng, n_spikes = tmp_path_factory.mktemp("neuronio"), np.random.default_rng(0), 14 * 3200
    for split in ("valid", "test"):  # no training set
        write_simulations(
            folder / split / "sims_00000.h5",
            spikes=[(rng.integers(1278, size=n_spikes), rng.integers(3200, size=n_spikes)) for _ in range(3)],
            soma_voltage=rng.normal(-65, 5, (3, 3200)),
            output_spikes_ms=[rng.choice(3200, size=size, replace=False) for size in (2, 9, 40)],
            source="generated",
            provenance={},
        )
    return folder


@pytest.fixture
def model():
    return ELM(1278, 3, d_o=2, batch_first=True)


def test_scores_and_statistics_come_of_one_prediction_without_training_data(folder, model):
    task = Task(folder, 2, 0, window_ms=500, burn_in_ms=150)
    scores, kept = task.evaluate(model)
    assert scores == task.test(model)
    assert scores["test_rmse"] == pytest.approx(scores_from_statistics(kept)["clean"]["rmse"], abs=1e-9)
    few, first = task.evaluate(model, splits=("test",), most=2)
    assert {name for name in few if name.startswith("valid")} == set()
    assert all(np.array_equal(first[name], array[:2]) for name, array in kept.items())


def test_the_example_is_the_liveliest_span_and_small(folder, model):
    simulations = SimulationSet(folder / "test")
    kept = shown(simulations, model)
    n, start, stop, lead = (int(kept[name]) for name in ("n", "start_ms", "stop_ms", "lead_ms"))
    first = start - lead
    assert (n, start) == liveliest(simulations, 2000)
    assert n == 1
    assert (lead, stop - start) == (LEAD_MS, 2000)
    dense = np.zeros((stop - first, 1278), np.float32)
    dense[kept["time"], kept["channel"]] = 1 - 2.0 * (kept["channel"] % 2)
    assert np.array_equal(dense, simulations.dense(n, first, stop))
    spike, _ = simulations.targets(n, start, stop)
    assert np.array_equal(np.flatnonzero(spike), kept["spike"])
    with torch.no_grad():
        y, _ = model(torch.from_numpy(dense)[None])
    np.testing.assert_allclose(kept["p"], torch.sigmoid(y[0, lead:, 0]), atol=1e-3)
    assert len(kept["soma"]) == len(kept["v"]) == stop - start
    image = io.BytesIO()
    np.savez_compressed(image, **kept)
    assert len(image.getbuffer()) < 200_000


def test_predictions_of_the_first_simulations_are_those_of_all(folder, model):
    simulations = SimulationSet(folder / "test")
    for some, every in zip(predict_all(model, simulations, most=1), predict_all(model, simulations), strict=True):
        np.testing.assert_array_equal(some, every[:1])
