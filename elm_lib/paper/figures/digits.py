"""Figure 5 a: spoken digits as the spikes of 700 channels."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from elm_lib.datasets.shd.schema import N_CHANNELS, Recordings
from elm_lib.paper.figures.style import COLORS


def raster(axis, time_s: np.ndarray, channel: np.ndarray) -> None:
    """A dot for each spike: time (n,) in s, channel (n,)."""
    axis.scatter(time_s, channel, s=0.3, color=COLORS["target"], lw=0, rasterized=True)
    axis.set(xlabel="time (s)", ylabel="channel", ylim=(0, N_CHANNELS))


def words(recordings: Recordings, which: Sequence[int], titles: Sequence[str]) -> Figure:
    """Some recordings side by side."""
    figure, axes = plt.subplots(1, len(which), figsize=(2.2 * len(which), 2.2), sharey=True, constrained_layout=True)
    for axis, i, title in zip(np.atleast_1d(axes), which, titles, strict=True):
        raster(axis, *recordings.spikes(i))
        axis.set(xlim=(0, 1.2), title=title)
        axis.label_outer()
    return figure


def adding(recordings: Recordings, pair: Sequence[int]) -> Figure:
    """Two digits of one second each, one after the other."""
    figure, axis = plt.subplots(figsize=(4.2, 2.2), constrained_layout=True)
    sum_of_two(axis, recordings, pair)
    return figure


def sum_of_two(axis, recordings: Recordings, pair: Sequence[int], letter: str = "") -> None:
    """A sample of SHD-Adding; the line between its digits is not part of the input."""
    parts = [recordings.spikes(i) for i in pair]
    raster(
        axis,
        np.concatenate([time_s[time_s < 1].astype(np.float64) + k for k, (time_s, _) in enumerate(parts)]),
        np.concatenate([channel[time_s < 1] for time_s, channel in parts]),
    )
    axis.axvline(1, color=COLORS["LSTM"], ls="--", lw=0.8)
    digits = [int(recordings.label[i]) % 10 for i in pair]
    axis.set(xlim=(0, 2), title=f"{letter}{digits[0]} + {digits[1]} = {sum(digits)}")
