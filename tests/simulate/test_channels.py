"""Channels and synapses against Arbor's compiled ones, and the single-precision functions below them."""

from pathlib import Path

import numpy as np
import pytest
from numba import njit

from elm_lib.simulate.cell import l5pc, singles
from elm_lib.simulate.cell.arbor_reference import PROTOCOLS, arbor_voltage, our_voltage

TRACES = Path(__file__).parents[1] / "data" / "arbor_single_compartment.npz"


def over(function):
    """The function applied to an array in a vectorised loop, as the simulator uses it."""

    @njit(fastmath=singles.FAST, error_model="numpy")
    def loop(x, y):
        for i in range(len(x)):
            y[i] = function(x[i])

    def call(x):
        x = np.asarray(x, np.float32)
        y = np.empty_like(x)
        loop(x, y)
        return y

    return call


def test_compiled_code_depends_on_all_sources_of_the_simulator():
    _, digest = l5pc.run._cache._cache_file._source_stamp
    assert len(digest) == 64


def test_exp_is_exact_to_1e6_over_its_range_and_keeps_nan():
    x = np.linspace(-87, 88, 200_001, dtype=np.float32)
    exp = over(singles.exp)
    np.testing.assert_allclose(exp(x), np.exp(x.astype(float)), rtol=1e-6)
    assert np.isnan(exp([np.nan, 0.0])[0])
    assert np.isfinite(exp([-1e6, 1e6])).all()


def test_log_is_exact_to_1e6_over_its_range():
    x = np.exp(np.linspace(-80, 80, 200_001)).astype(np.float32)
    exact = np.log(x.astype(float))
    assert np.max(np.abs(over(singles.log)(x) - exact) / (1 + np.abs(exact))) < 1e-6


def test_linoid_passes_its_removable_singularity():
    x = np.concatenate([np.linspace(-40, 40, 200_001), np.linspace(-0.03, 0.03, 200_001), [0.0]])
    exact = np.ones_like(x)
    exact[x != 0] = x[x != 0] / -np.expm1(-x[x != 0])
    np.testing.assert_allclose(over(singles.linoid)(x), exact, rtol=1e-5)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_voltage_equals_arbors(name):
    """Every channel and synapse type, in current clamp with an action potential: 0.01 mV at each ms."""
    with np.load(TRACES) as traces:
        np.testing.assert_allclose(our_voltage(PROTOCOLS[name]), traces[name], rtol=0, atol=0.01)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_frozen_traces_are_arbors(name):
    pytest.importorskip("arbor", reason="pip install arbor to check the frozen traces against it")
    with np.load(TRACES) as traces:
        np.testing.assert_allclose(arbor_voltage(PROTOCOLS[name]), traces[name], rtol=0, atol=0.001)
