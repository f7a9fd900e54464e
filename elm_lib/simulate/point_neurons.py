"""Point neurons driven by the input of a NeuronIO simulation: the teachers of Figure S7.

    g_t     = kappa_s g_{t-1} + sum of w over the synapses that have a spike       w < 0 for inhibitory ones
    V_t     = E + kappa_m (V_{t-1} - E) + (1 - kappa_m) g_t                        mV; the reset to E after a spike
    a_t     = kappa_a a_{t-1} + 1 after a spike                                    adaptation, for "alif" alone
    spike   where V_t > -55 + 4 a_t mV

kappa = exp(-1 ms / tau). The paper gives no constants of its LIF and adaptive LIF: those here are ours. Synapses differ
in their weights, which are drawn once from a fixed seed; their scale gives one or two output spikes a second.
"""

from __future__ import annotations

import math

import numpy as np

from elm_lib.support.compiled import njit_cached

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

KINDS = ("lif", "alif")
REST_MV, THRESHOLD_MV, RISE_MV = -70.0, -55.0, 4.0
TAU_S_MS, TAU_M_MS, TAU_A_MS = 5.0, 20.0, 200.0
EXCITATORY_MV, INHIBITORY_MV = 0.6, -0.55  # mean weights
SEED = 20240507


def weights(n_channels: int) -> np.ndarray:
    """Synapse weights, mV, (n_channels,): even channels are excitatory; uniform between 0 and twice their mean."""
    drawn = np.random.default_rng(SEED).uniform(0, 2, n_channels)
    return drawn * np.where(np.arange(n_channels) % 2 == 0, EXCITATORY_MV, INHIBITORY_MV)


def simulate(indptr: np.ndarray, channel: np.ndarray, n_channels: int, kind: str) -> tuple[np.ndarray, list]:
    """Soma voltage (N, D) in mV, and N arrays of the ms in which the neuron spikes.

    indptr   int64 (N, D + 1): the input spikes of simulation n in ms t are channel[indptr[n, t] : indptr[n, t + 1]]
    kind     "lif" or "alif"
    At a spike the voltage is the one that crossed the threshold; the reset is seen one ms later. Raises ValueError for
    another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {KINDS}")
    voltage = np.empty((len(indptr), indptr.shape[1] - 1), np.float32)
    spiked = np.zeros(voltage.shape, np.bool_)
    kappa_s, kappa_m, kappa_a = (math.exp(-1 / tau) for tau in (TAU_S_MS, TAU_M_MS, TAU_A_MS))
    rise = RISE_MV if kind == "alif" else 0.0
    weight = weights(n_channels)
    _run(indptr, channel, weight, kappa_s, kappa_m, kappa_a, rise, REST_MV, THRESHOLD_MV, voltage, spiked)
    return voltage, [np.flatnonzero(row) for row in spiked]


@njit_cached(nogil=True, error_model="numpy")
def _run(indptr, channel, weight, kappa_s, kappa_m, kappa_a, rise, rest, threshold, voltage, spiked):
    for n in range(len(voltage)):
        g, v, a = 0.0, rest, 0.0
        for t in range(voltage.shape[1]):
            g *= kappa_s
            for k in range(indptr[n, t], indptr[n, t + 1]):
                g += weight[channel[k]]
            v = rest + kappa_m * (v - rest) + (1.0 - kappa_m) * g
            voltage[n, t] = v
            a *= kappa_a
            if v > threshold + rise * a:
                spiked[n, t] = True
                v = rest
                a += 1.0
