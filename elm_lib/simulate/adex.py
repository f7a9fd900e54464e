"""An adaptive exponential integrate-and-fire neuron with conductance synapses, at any sampling step.

    C dV/dt   = -g_L (V - E_L) + g_L Delta_T exp((V - V_T) / Delta_T) - w - g_e (V - E_e) - g_i (V - E_i)
    tau_w dw/dt = a (V - E_L) - w
    dg/dt     = -g / tau                      g rises by the synapse's weight with each of its spikes
    spike     where V > V_peak:  V = V_r,  w = w + b

Brette and Gerstner (2005), doi:10.1152/jn.00686.2005, whose constants these are; tau_w is 144 ms, so the neuron
remembers its own spikes for long. Synapse weights and their time constants are ours.
"""

from __future__ import annotations

import numpy as np

from elm_lib.support.compiled import njit_cached

DT_MS = 0.1
C_PF, G_L_NS, E_L_MV, V_T_MV, DELTA_T_MV = 281.0, 30.0, -70.6, -50.4, 2.0
TAU_W_MS, A_NS, B_PA = 144.0, 4.0, 80.5
PEAK_MV, RESET_MV = 20.0, -70.6
E_EXC_MV, E_INH_MV, TAU_EXC_MS, TAU_INH_MS = 0.0, -80.0, 3.0, 8.0


def simulate(
    inputs: list[np.ndarray], weights_ns: np.ndarray, signs: np.ndarray, duration_ms: float
) -> tuple[np.ndarray, np.ndarray]:
    """Voltage (mV) every 0.1 ms, (T,), and times (ms) of the output spikes.

    inputs      C arrays of spike times (ms)
    weights_ns  (C,) peak conductance of a spike;  signs (C,) +1 excitatory, -1 inhibitory
    Forward Euler with 0.1 ms.
    """
    steps = round(duration_ms / DT_MS)
    rise = np.zeros((2, steps))
    for times, weight, sign in zip(inputs, weights_ns, signs, strict=True):
        np.add.at(rise[int(sign < 0)], np.minimum((np.asarray(times) / DT_MS).astype(int), steps - 1), weight)
    voltage, spiked = np.empty(steps), np.zeros(steps, np.bool_)
    _run(rise, voltage, spiked)
    return voltage, np.flatnonzero(spiked) * DT_MS


@njit_cached(nogil=True, error_model="numpy")
def _run(rise, voltage, spiked):
    v, w, g_e, g_i = E_L_MV, 0.0, 0.0, 0.0
    for t in range(len(voltage)):
        g_e += rise[0, t]
        g_i += rise[1, t]
        upstroke = G_L_NS * DELTA_T_MV * np.exp(min((v - V_T_MV) / DELTA_T_MV, 20.0))
        current = -G_L_NS * (v - E_L_MV) + upstroke - w - g_e * (v - E_EXC_MV) - g_i * (v - E_INH_MV)
        w += DT_MS * (A_NS * (v - E_L_MV) - w) / TAU_W_MS
        v += DT_MS * current / C_PF
        g_e -= DT_MS * g_e / TAU_EXC_MS
        g_i -= DT_MS * g_i / TAU_INH_MS
        if v > PEAK_MV:
            voltage[t] = PEAK_MV
            spiked[t] = True
            v = RESET_MV
            w += B_PA
        else:
            voltage[t] = v
