"""The random input of NeuronIO: spikes for 639 excitatory and 639 inhibitory synapses (Beniaguev et al. 2021,
10.1016/j.neuron.2021.07.002, and its published script).

Rates are drawn for each tree (basal, apical) and interval of time, spread over the segments, smoothed in
time, and turned into spikes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve

from elm_lib.simulate.cell.densities import BASAL
from elm_lib.simulate.cell.morphology import Cell

INTERVALS_MS = (
    25,
    30,
    35,
    40,
    45,
    55,
    60,
    65,
    70,
    75,
    80,
    85,
    90,
    100,
    150,
    200,
    300,
    450,
)  # a rate holds for one of these
SMOOTHING_SIGMAS_MS = (25, 30, 35, 40, 50, 60, 80, 100, 150, 200, 300, 400, 500, 600)
JITTER_MS = 20  # of both
EXTRA_LENGTH_UM = 10.0  # a segment's share of its tree's spikes grows with its length plus this


@dataclass(frozen=True)
class TreeRange:
    """Spikes per 100 ms in one tree: excitatory uniform in `excitatory`, inhibitory uniform in excitatory +
    `inhibitory_offset`."""

    excitatory: tuple[float, float]
    inhibitory_offset: tuple[float, float]


RANGES = {  # name -> (basal, apical)
    "script": (TreeRange((0, 800), (-600, 200)), TreeRange((0, 800), (-600, 200))),  # as in the published script
    "narrow": (
        TreeRange((0, 750), (-550, 200)),
        TreeRange((0, 800), (-550, 200)),
    ),  # the firing rate of the published test set
}


def draw_input(cell: Cell, *, seed: int, index: int, ranges: str, duration_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """Input number `index` of the stream `seed`: channel (uint16) and time_ms (int32) of each spike, by
    time, then channel.

    ranges: a key of `RANGES`. The same for the same arguments, whatever else was drawn before.
    """
    if ranges not in RANGES:
        raise ValueError(f"ranges = {ranges!r}: must be one of {sorted(RANGES)}")
    rng = np.random.default_rng([seed, index])
    interval = int(rng.choice(INTERVALS_MS)) + int(rng.uniform(-JITTER_MS, JITTER_MS))
    sigma = int(rng.choice(SMOOTHING_SIGMAS_MS)) + int(rng.uniform(-JITTER_MS, JITTER_MS))

    rates = _interval_rates(rng, cell, RANGES[ranges], n_intervals=-(-duration_ms // interval))  # (intervals, channels)
    rates = np.repeat(rates, interval, axis=0)[:duration_ms]
    window = np.exp(-0.5 * (np.arange(-3.5 * sigma, 3.5 * sigma + 0.5) / sigma) ** 2)  # 1 + 7 sigma ms
    rates = fftconvolve(rates, (window / window.sum()).astype(np.float32)[:, None], mode="same", axes=0)

    # The script draws a probability p ~ Exp(mean = rate) for each ms, then a spike if U(0, 1) < p: on average
    # rate (1 - e^(-1/rate)).
    rates = np.maximum(rates, np.float32(1e-9))
    probability = rates * (1 - np.exp(-1 / rates))
    time_ms, channel = np.nonzero(rng.random(rates.shape, np.float32) < probability)
    return channel.astype(np.uint16), time_ms.astype(np.int32)


def _interval_rates(
    rng: np.random.Generator, cell: Cell, ranges: tuple[TreeRange, TreeRange], n_intervals: int
) -> np.ndarray:
    """Spikes per ms of each channel in each interval, float32 (n_intervals, 1278)."""
    segments = cell.synapse_node
    basal = cell.kind[segments] == BASAL
    rates = np.empty((n_intervals, len(segments), 2))
    for tree, tree_range in ((basal, ranges[0]), (~basal, ranges[1])):
        share = cell.length[segments[tree]] + EXTRA_LENGTH_UM
        share = share / share.sum()
        excitatory = rng.uniform(*tree_range.excitatory, n_intervals)  # spikes per 100 ms in the whole tree
        low, high = tree_range.inhibitory_offset
        inhibitory = rng.uniform(np.maximum(0.0, excitatory + low), excitatory + high)
        rates[:, tree] = np.stack([excitatory, inhibitory], axis=-1)[:, None] * share[:, None] / 100.0
    rates *= rng.uniform(0.5, 1.5, rates.shape)
    return rates.reshape(n_intervals, -1).astype(np.float32)


def to_indptr(time_ms: np.ndarray, duration_ms: int) -> np.ndarray:
    """Offsets (int64, duration_ms + 1) of each ms into spikes sorted by time."""
    return np.searchsorted(time_ms, np.arange(duration_ms + 1)).astype(np.int64)
