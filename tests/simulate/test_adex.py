"""The adaptive exponential neuron against its equations, integrated by scipy."""

import numpy as np
from scipy.integrate import solve_ivp

from elm_lib.simulate import adex


def test_below_threshold_it_follows_its_equations():
    times = np.array([5.0, 12.0, 12.0, 30.0])
    voltage, spikes = adex.simulate([times, times + 4], np.array([9.0, 6.0]), np.array([1, -1]), 100)
    assert len(voltage) == 1000 and not len(spikes)

    def slope(t, y):
        v, w = y
        g_e = sum(9.0 * np.exp(-(t - s) / adex.TAU_EXC_MS) for s in times if t >= s)
        g_i = sum(6.0 * np.exp(-(t - s - 4) / adex.TAU_INH_MS) for s in times if t >= s + 4)
        upstroke = adex.G_L_NS * adex.DELTA_T_MV * np.exp((v - adex.V_T_MV) / adex.DELTA_T_MV)
        synapses = g_e * (v - adex.E_EXC_MV) + g_i * (v - adex.E_INH_MV)
        current = -adex.G_L_NS * (v - adex.E_L_MV) + upstroke - w - synapses
        return current / adex.C_PF, (adex.A_NS * (v - adex.E_L_MV) - w) / adex.TAU_W_MS

    exact = solve_ivp(slope, (0, 100), (adex.E_L_MV, 0), max_step=0.1, t_eval=np.arange(0.1, 100, 0.1))
    assert exact.y[0].max() > adex.E_L_MV + 2  # mV
    np.testing.assert_allclose(voltage[:-1], exact.y[0], atol=0.15)  # Euler with 0.1 ms


def test_it_adapts():
    steady = [np.arange(0, 1000, 1.0)]
    _, spikes = adex.simulate(steady, np.array([14.0]), np.array([1]), 1000)
    intervals = np.diff(spikes)
    assert len(intervals) > 5 and intervals[-1] > 1.5 * intervals[0]
