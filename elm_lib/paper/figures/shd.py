"""Figures 5 and S5: accuracy over bin size on SHD-Adding and SHD, and what their samples look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elm_lib.datasets.shd.batches import BINS_MS
from elm_lib.datasets.shd.schema import N_CHANNELS, Recordings
from elm_lib.paper import FULL
from elm_lib.paper.figures import style
from elm_lib.simulate.speech.words import WORDS

SPLITS = ("train", "valid", "test")
SHORTENED: dict[str, Any] = {
    "marker": "s",
    "linestyle": "none",
    "markerfacecolor": "white",
    "markeredgecolor": "auto",
    "markeredgewidth": 0.9,
    "markersize": 4.0,
    "zorder": 4,
}


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
    _finish(figure, axes, table, [table.budget], label)
    return figure


def adding(
    recordings: Recordings, pair: Sequence[int], table: pd.DataFrame, ablations: pd.DataFrame, label: str
) -> Figure:
    """Figure 5: SHD-Adding. a) a sample; b-d) accuracy over bin size; e, f) test accuracy of the ELM at 2 ms.

    table      the form of `paper.shd.table`
    ablations  panels e and f, the form of `paper.pictures.curves`
    label      where ours come from
    """
    figure, axes = plt.subplots(2, 3, figsize=(style.PAGE, 4.8), layout="constrained")
    sum_of_two(axes[0, 0], recordings, pair, letter="a) ")
    sweeps([axes[0, 1], axes[0, 2], axes[1, 0]], table, "bcd", chance=0.1)
    ablation(axes[1, 1], ablations, "e", r"$d_m$", ticks=(1, 3, 10, 30, 100, 300))
    ablation(axes[1, 2], ablations, "f", r"longest $\tau_m$ (ms)", ticks=(15, 50, 150, 500))
    for axis in (axes[0, 2], axes[1, 1], axes[1, 2]):
        axis.set_ylabel("")
    _finish(figure, [axes[0, 1], axes[0, 2], *axes[1]], table, [table.budget, ablations.budget], label)
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
    labels = [int(recordings.label[i]) for i in pair]
    named = " + ".join(WORDS[label] for label in labels)
    axis.set(xlim=(0, 2), title=f"{letter}{named} = {sum(label % 10 for label in labels)}")


def sweeps(axes: Sequence[Axes], table: pd.DataFrame, letters: Sequence[str], chance: float) -> None:
    """Train, validation and test accuracy over bin size, one axis a split.

    table   the form of `paper.shd.table`
    chance  accuracy of always giving the likeliest answer
    """
    published = _published(table)
    for axis, split, letter in zip(axes, SPLITS, letters, strict=True):
        score = f"{split}_accuracy"
        for part, look in ((published, "published"), (table, "ours")):
            _curves(axis, part.assign(place=part.bin_ms.map(BINS_MS.index)), "place", score, look)
        axis.axhline(chance, color="grey", **style.LOOKS["chance"])
        axis.set_xticks(range(len(BINS_MS)), [str(bin_ms) for bin_ms in BINS_MS], fontsize=style.SMALL - 0.5)
        axis.set(xlabel="bin size (ms)", ylabel="accuracy", title=f"{letter}) {split}")
        if table[f"{score}_mean"].isna().all():
            style.not_run(axis)


def ablation(axis: Axes, found: pd.DataFrame, letter: str, name: str, ticks: Sequence[int]) -> None:
    """Figure 5 e or f: test accuracy of the ELM at 2 ms. Published points are read off the picture."""
    part = found[found.panel == letter].assign(model="ELM")
    names = {"mean": "test_mean", "std": "test_std", "error": "test_error"}
    published = part[["model", "x", "published"]].rename(columns={"published": "test_mean"})
    _curves(axis, published, "x", "test", "published")
    _curves(axis, part.rename(columns=names), "x", "test", "ours")
    axis.axhline(0.1, color="grey", **style.LOOKS["chance"])
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    axis.minorticks_off()
    axis.set(xlabel=name, ylabel="accuracy", title=f"{letter}) ELM, 2 ms, test")
    style.note(axis, "published: read off")
    if part["mean"].isna().all():
        style.not_run(axis)


def _curves(axis: Axes, table: pd.DataFrame, x: str, score: str, look: str) -> None:
    """`style.curves`, with one line through the points of all budgets. Those with less than the published training are
    hollow, whatever the others of their model had."""
    style.curves(axis, table.drop(columns="budget", errors="ignore"), x, score, look)
    if "budget" not in table:
        return
    for model, part in table[table.budget < FULL].dropna(subset=[f"{score}_mean"]).groupby("model"):
        axis.plot(part[x], part[f"{score}_mean"], color=style.COLORS[str(model)], **SHORTENED)


def _finish(figure: Figure, axes: Sequence[Axes], table: pd.DataFrame, budgets: list[pd.Series], label: str) -> None:
    """Limits that hold every error bar, the same in all panels; legend and caption."""
    low, high = np.array([axis.dataLim.intervaly for axis in axes]).T
    for axis in axes:
        axis.set_ylim(min(0.0, low.min()) - 0.05, max(1.0, high.max()) + 0.05)
        axis.set_yticks(np.arange(0, 1.01, 0.2))
    more = {"chance": style.LOOKS["chance"]}
    if (pd.concat(budgets).astype(float) < FULL).any():
        more = {"ours, less than the published training": SHORTENED} | more
    style.legend(figure, table.model, table.drop(columns="budget"), "test_accuracy", more=more)
    style.origin(figure, label)


def _published(table: pd.DataFrame) -> pd.DataFrame:
    keys = table[["model", "bin_ms"]]
    scores = table.filter(regex="_published$").rename(columns=lambda name: name.removesuffix("_published"))
    return keys.join(scores).drop_duplicates(["model", "bin_ms"])
