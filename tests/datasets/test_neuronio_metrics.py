"""Scores against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elm_lib.datasets.neuronio.metrics import spike_scores, voltage_scores


@given(st.integers(0, 2**32 - 1))
def test_auc_is_the_chance_that_a_spike_scores_above_silence(seed):
    rng = np.random.default_rng(seed)
    target, score = rng.random(60) < 0.3, rng.integers(0, 8, 60).astype(float)
    if not 0 < target.sum() < 60:
        return
    pairs = score[target][:, None] - score[~target][None, :]
    assert spike_scores(target, score)["auc"] == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_true_positive_rate_at_a_false_positive_rate():
    target = np.r_[np.zeros(1000), np.ones(4)]
    score = np.r_[
        np.linspace(0, 1, 1000), 0.9995, 0.995, 0.5, 0.1
    ]  # 1 and 5 of 1000 silent bins lie above the two best
    scores = spike_scores(target, score)
    assert scores["tp_at_0.0025_fp"] == 0.25
    assert scores["tp_at_0.01_fp"] == 0.5


def test_voltage_scores_by_hand():
    scores = voltage_scores(np.array([0.0, 2, 4, 6]), np.array([1.0, 2, 4, 3]))
    assert scores == pytest.approx({"rmse": np.sqrt(10 / 4), "mae": 1.0, "explained_variance": 100 * (1 - 2.5 / 5)})


@pytest.mark.parametrize(
    ("target", "score"),
    [(np.zeros(5), np.arange(5)), (np.ones(5), np.arange(5)), (np.arange(5) > 2, np.array([0, 1, np.nan, 3, 4]))],
)
def test_no_roc_is_nan_not_a_crash(target, score):
    assert all(np.isnan(value) for value in spike_scores(target, score).values())
