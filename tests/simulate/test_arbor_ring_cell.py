"""The cell of Arbor's tutorial, as Arbor simulates it."""

import numpy as np
import pytest

from elm_lib.simulate.arbor_ring_cell import DETECTED_MV, DT_MS, SIGNS, simulate
from elm_lib.simulate.spike_trains import wandering

pytest.importorskip("arbor")


def test_each_trial_is_a_cell_of_its_own():
    rng = np.random.default_rng(0)
    trials = [wandering(rng, 30, 400, 15, 20) for _ in range(2)]
    voltage, spikes = simulate(trials, 400)
    (alone,), (times,) = simulate(trials[1:], 400)
    np.testing.assert_array_equal(alone, voltage[1])
    np.testing.assert_array_equal(times, spikes[1])
    for v, t in zip(voltage, spikes):
        assert v.shape == (4000,) and len(t) > 1
        crossed = np.flatnonzero((v[:-1] <= DETECTED_MV) & (v[1:] > DETECTED_MV)) * 0.1  # ms
        assert len(crossed) == len(t) and ((t >= crossed - DT_MS) & (t <= crossed + 0.1 + DT_MS)).all()


def test_synapses_have_their_signs():
    trials = [[np.array([50.0]) if k == one else np.array([]) for k in range(30)] for one in range(30)]
    voltage, _ = simulate([*trials, [np.array([])] * 30], 80)
    effect = np.array([np.trapezoid(v - voltage[-1]) for v in voltage[:-1]])
    assert (np.sign(effect) == SIGNS).all()


def test_the_rate_wanders_between_its_bounds():
    found = wandering(np.random.default_rng(1), 200, 4000, 2, 10)
    counts = np.histogram(np.concatenate(found), bins=np.arange(0, 4001, 100))[0] / 200 / 0.1  # Hz
    assert 1 < counts.min() < 5 and 7 < counts.max() < 11.5 and all((np.diff(t) >= 0).all() for t in found)
