"""Random input for a neuron: Poisson spikes at a rate that wanders."""

from __future__ import annotations

import numpy as np

KNOT_MS = 200.0  # the rate is drawn anew this often, and changes linearly in between


def wandering(rng: np.random.Generator, n: int, duration_ms: float, low_hz: float, high_hz: float) -> list[np.ndarray]:
    """Spike times (ms, ascending) of n synapses: one rate for all, between low and high; the spikes are their own."""
    knots = np.arange(0, duration_ms + 2 * KNOT_MS, KNOT_MS)
    rates = rng.uniform(low_hz, high_hz, len(knots))
    found = []
    for _ in range(n):
        times = np.sort(rng.uniform(0, duration_ms, rng.poisson(high_hz * duration_ms / 1000)))
        kept = rng.uniform(0, high_hz, len(times)) < np.interp(times, knots, rates)
        found.append(times[kept])
    return found
