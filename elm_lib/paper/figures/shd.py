"""Figures 5 and S5: accuracy over bin size on SHD-Adding and SHD, and what their samples look like."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elm_lib.datasets.shd.schema import N_CHANNELS, Recordings
from elm_lib.paper.figures import style

SPLITS = ("train", "valid", "test")
ACCURACY = {"ylabel": "accuracy", "ylim": (0, 1.05)}


def words(recordings: Recordings, which: Sequence[int], titles: Sequence[str]) -> Figure:
    """Some recordings side by side."""
    figure, axes = plt.subplots(1, len(which), figsize=(1.8 * len(which), 2.2), sharey=True, layout="constrained")
    for axis, i, title in zip(np.atleast_1d(axes), which, titles, strict=True):
        raster(axis, *recordings.spikes(i))
        axis.set(xlim=(0, 1.2), title=title)
        axis.label_outer()
    return figure


def pair_of_words(recordings: Recordings, pair: Sequence[int]) -> Figure:
    """A sample of SHD-Adding: two digits of one second each, one after the other."""
    figure, axis = plt.subplots(figsize=(4.2, 2.2), layout="constrained")
    sum_of_two(axis, recordings, pair)
    return figure


def default(table: pd.DataFrame, label: str) -> Figure:
    """Figure S5: SHD itself. table: the form of `paper.shd.table`; label: where ours come from."""
    figure, axes = plt.subplots(1, 3, figsize=(style.PAGE, 2.7), sharey=True, layout="constrained")
    sweeps(axes, table, "abc", chance=1 / 20)
    for axis in axes:
        axis.label_outer()
    style.legend(figure, table.model, table, "test_accuracy", more={"chance": style.LOOKS["chance"]})
    style.origin(figure, label)
    return figure


def adding(
    recordings: Recordings,
    pair: Sequence[int],
    table: pd.DataFrame,
    by_d_m: pd.DataFrame,
    by_tau_m: pd.DataFrame,
    label: str,
) -> Figure:
    """Figure 5: SHD-Adding. a) a sample; b-d) accuracy over bin size; e, f) test accuracy of the ELM at 2 ms.

    table     the form of `paper.shd.table`
    by_d_m, by_tau_m  size (d_m, or the longest tau_m in ms), mean, std, seeds: the form of `paper.shd.ablation`
    label     where ours come from
    """
    figure, axes = plt.subplots(2, 3, figsize=(style.PAGE, 4.8), layout="constrained")
    sum_of_two(axes[0, 0], recordings, pair, letter="a) ")
    sweeps([axes[0, 1], axes[0, 2], axes[1, 0]], table, "bcd", chance=0.1)
    ablation(axes[1, 1], by_d_m, "e", r"$d_m$", ticks=(1, 3, 10, 30, 100, 300))
    ablation(axes[1, 2], by_tau_m, "f", r"longest $\tau_m$ (ms)", ticks=(10, 30, 100, 300, 1000))
    style.legend(figure, table.model, table, "test_accuracy", more={"chance": style.LOOKS["chance"]})
    style.origin(figure, label)
    return figure


def raster(axis: Axes, time_s: np.ndarray, channel: np.ndarray) -> None:
    """A dot for each spike: time (n,) in s, channel (n,)."""
    axis.scatter(time_s, channel, s=0.4, color=style.TARGET, lw=0, rasterized=True)
    axis.set(xlabel="time (s)", ylabel="channel", ylim=(0, N_CHANNELS))


def sum_of_two(axis: Axes, recordings: Recordings, pair: Sequence[int], letter: str = "") -> None:
    """A sample of SHD-Adding; the line between its digits is not part of the input."""
    parts = [recordings.spikes(i) for i in pair]
    raster(
        axis,
        np.concatenate([time_s[time_s < 1].astype(np.float64) + k for k, (time_s, _) in enumerate(parts)]),
        np.concatenate([channel[time_s < 1] for time_s, channel in parts]),
    )
    axis.axvline(1, color=style.COLORS["LSTM"], ls="--", lw=1)
    digits = [int(recordings.label[i]) % 10 for i in pair]
    axis.set(xlim=(0, 2), title=f"{letter}{digits[0]} + {digits[1]} = {sum(digits)}")


def sweeps(axes: Sequence[Axes], table: pd.DataFrame, letters: Sequence[str], chance: float) -> None:
    """Train, validation and test accuracy over bin size, one axis a split.

    table   the form of `paper.shd.table`
    chance  accuracy of always giving the likeliest answer
    """
    published = _published(table)
    for axis, split, letter in zip(axes, SPLITS, letters, strict=True):
        score = f"{split}_accuracy"
        style.curves(axis, published, "bin_ms", score, "published")
        style.curves(axis, table, "bin_ms", score, "ours")
        axis.axhline(chance, color="grey", **style.LOOKS["chance"])
        _log_ticks(axis, (1, 2, 4, 10, 20, 50, 100))
        axis.set(xlabel="bin size (ms)", title=f"{letter}) {split}", **ACCURACY)
        if table[f"{score}_mean"].isna().all():
            style.not_run(axis)


def ablation(axis: Axes, found: pd.DataFrame, letter: str, name: str, ticks: Sequence[int]) -> None:
    """Figure 5 e or f: test accuracy of the ELM at 2 ms. Published points are read off the picture."""
    published = style.read_off("Fig 5", letter).rename(columns={"x": "size", "value": "test_mean"})
    style.curves(axis, published.assign(model="ELM"), "size", "test", "published")
    ours = found.rename(columns={"mean": "test_mean", "std": "test_std", "error": "test_error"})
    style.curves(axis, ours.assign(model="ELM"), "size", "test", "ours")
    axis.axhline(0.1, color="grey", **style.LOOKS["chance"])
    _log_ticks(axis, ticks)
    axis.set(xlabel=name, title=f"{letter}) ELM, 2 ms, test", **ACCURACY)
    style.note(axis, "published: read off")
    if found["mean"].isna().all():
        style.not_run(axis)


def _published(table: pd.DataFrame) -> pd.DataFrame:
    keys = table[["model", "bin_ms"]]
    scores = table.filter(regex="_published$").rename(columns=lambda name: name.removesuffix("_published"))
    return keys.join(scores).drop_duplicates(["model", "bin_ms"])


def _log_ticks(axis: Axes, ticks: Sequence[int]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    axis.minorticks_off()
