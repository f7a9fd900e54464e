"""Sampling errors: replicates against scores of the same draws, and against the binomial law."""

import numpy as np
import pytest

from elm_lib.datasets.neuronio.statistics import scores_from_statistics, statistics
from elm_lib.paper import bootstrap
from elm_lib.support.errors import DataError


def _simulations(n, noise):
    """Statistics of a prediction of n simulations of 2 s, of which two have more than 24 output spikes."""
    rng = np.random.default_rng(0)
    spike = (rng.random((n, 2000)) < np.where(np.arange(n) < 2, 0.05, 0.004)[:, None]).astype(float)
    voltage = rng.normal(-65, 4, (n, 2000)) + 10 * spike
    logit = 5 * spike - 4 + rng.normal(0, 2, spike.shape)
    v = 0.8 * voltage - 14 + noise * rng.normal(0, 1, spike.shape)
    return statistics(1 / (1 + np.exp(-logit)), v, spike, voltage)


def test_replicates_are_the_scores_of_the_draws(npz):
    kept = _simulations(16, noise=1.0)
    path = npz("run", **kept)
    for prefix, protocol in (("test_", "clean"), ("test_released_", "released")):
        for name in ("auc", "rmse", "tp_at_0.0025_fp", "tp_at_0.01_fp"):
            values = bootstrap.replicates(path, prefix + name)
            for draw in (0, 1, 999):
                drawn = np.repeat(np.arange(16), bootstrap.draws(16)[draw].astype(int))
                expected = scores_from_statistics(kept, drawn)[protocol][name]
                assert values[draw] == pytest.approx(expected, rel=1e-9), prefix + name
    assert bootstrap.replicates(path, "test_released_mae") is None and bootstrap.replicates(path, "valid_auc") is None


def test_errors_are_deterministic_and_paired():
    one, other = _simulations(64, noise=1.0), _simulations(64, noise=1.1)
    a, b = (bootstrap.neuronio(kept, released=True)["rmse"] for kept in (one, other))
    assert len(a) == 1000 and np.array_equal(a, bootstrap.neuronio(one, released=True)["rmse"])
    assert bootstrap.error(a - a) == 0
    assert bootstrap.error(b - a) < 0.5 * np.hypot(
        bootstrap.error(a), bootstrap.error(b)
    )  # the same simulations in both


def test_accuracy_has_the_binomial_error(npz):
    rng = np.random.default_rng(0)
    right = rng.random(2000) < 0.7
    values = bootstrap.replicates(npz("words", right=right, unseen=right), "test_accuracy")
    p = right.mean()
    assert values.mean() == pytest.approx(p, abs=0.002)
    assert bootstrap.error(values) == pytest.approx(np.sqrt(p * (1 - p) / 2000), rel=0.1)
    flipped = right ^ (rng.random(2000) < 0.01)  # of the difference: that of the words that differ
    assert bootstrap.error(values - bootstrap.accuracy({"right": flipped}, "right", None)) == pytest.approx(
        np.sqrt(0.01 / 2000), rel=0.3
    )


def test_a_prediction_that_is_no_number_has_no_error_and_a_broken_file_is_named(tmp_path):
    kept = _simulations(8, noise=1.0) | {"sums": np.full((8, 6), np.nan)}
    for values in bootstrap.neuronio(kept, released=False).values():
        assert bootstrap.error(values) is None
    (tmp_path / "broken.npz").write_bytes(b"not an archive")
    for name, says in (("broken", "broken.npz cannot be read"), ("gone", "gone.npz is missing")):
        with pytest.raises(DataError, match=says):
            bootstrap.replicates(tmp_path / f"{name}.npz", "test_auc")
