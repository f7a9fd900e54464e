"""The Long Range Arena: samples, learning curves, and Figure S8, the synapse timescale on Pathfinder-X."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from elm_lib.datasets.lra.schema import FIRST_SYMBOL, Split
from elm_lib.datasets.lra.text import decode
from elm_lib.paper.figures import style
from elm_lib.simulate.symbols import listops

# colour of a model's learning curves
LEARNERS = {"ELM": style.COLORS["ELM"], "Chrono-LSTM": style.PURPLE, "LSTM": style.COLORS["LSTM"], "S5": style.GREEN}


def pictures(splits: dict[str, Split], n: int = 4) -> Figure:
    """The first n pictures of each split given, {title: split}, one split a row; the class above each."""
    figure, axes = plt.subplots(
        len(splits), n, figsize=(1.5 * n, 1.65 * len(splits)), squeeze=False, layout="constrained"
    )
    for row, (title, split) in zip(axes, splits.items(), strict=True):
        for i, axis in enumerate(row):
            axis.set(xticks=[], yticks=[])
            if i < len(split):
                (levels,) = split.sequences(i)
                side = int(np.sqrt(len(levels)))
                axis.imshow(levels.reshape(side, side), cmap="gray", vmin=0, vmax=split.n_tokens - 1)
                axis.set_title(f"class {split.label[i]}")
        row[0].set_ylabel(title)
    return figure


def written(split: Split, i: int, width: int = 110) -> str:
    """Sample i of a task of texts, as people write it, cut to `width` characters a sequence, and its class."""
    if split.task == "listops":
        texts = [listops.text(symbols - FIRST_SYMBOL) for symbols in split.sequences(i)]
    else:
        texts = [decode(symbols, split.provenance["byte_values"]) for symbols in split.sequences(i)]
    short = [text if len(text) <= width else text[: width - 2] + " …" for text in texts]
    return "\n".join([*short, f"    class {split.label[i]}"])


def summary(splits: dict[str, Split]) -> list[str]:
    """One line a split: samples, symbols a sequence (median and most), part of the most frequent class."""
    lines = []
    for name, split in splits.items():
        lengths, largest = split.lengths, np.bincount(split.label).max() / len(split)
        lines.append(
            f"{split.task:12s} {name:5s} {len(split):6d} samples, {np.median(lengths):7.0f} symbols, "
            f"at most {lengths.max():5d}; most frequent class {100 * largest:5.1f} %"
        )
    return lines


def learning(curves: pd.DataFrame, label: str) -> Figure:
    """Validation accuracy (%) over the share of the published training, a panel each task.

    curves  model, task (its title), run, share (%), accuracy (%); chance and published (%), or NaN
    label   where they come from
    """
    tasks = list(dict.fromkeys(curves.task))
    rows = max(1, -(-len(tasks) // 4))
    figure, axes = plt.subplots(rows, 4, figsize=(style.PAGE, 1.6 * rows + 0.5), squeeze=False, layout="constrained")
    for axis, task in zip(axes.flat, tasks, strict=False):
        mine = curves[curves.task == task]
        axis.set_title(task)
        axis.axhline(mine.chance.iloc[0], color="grey", **style.LOOKS["chance"])
        for (model, _), line in mine.groupby(["model", "run"], sort=False):
            axis.plot(line.share, line.accuracy, color=LEARNERS[model], lw=1)
            axis.axhline(line.published.iloc[0], color=LEARNERS[model], lw=1, alpha=0.35)
        axis.set_ylim(0, 100)
    for axis in axes.flat[len(tasks) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("validation accuracy (%)")
    for axis in axes.flat[max(0, len(tasks) - 4) : len(tasks)]:
        axis.set_xlabel("training (%)")
    lines = {model: {"color": colour, "linewidth": 2.5} for model, colour in LEARNERS.items()}
    style.legend(figure, more=lines | {"published test accuracy": {"alpha": 0.35}, "chance": style.LOOKS["chance"]})
    style.origin(figure, label)
    return figure


def tau_s(table: pd.DataFrame, label: str) -> Figure:
    """Figure S8: mean and maximum test accuracy (%) of the ELM over tau_s (ms).

    table  size, test_mean, test_std, test_max, seeds (the form of `paper.lra.averages`); empty where nothing was run
    label  where ours come from
    """
    figure, axis = plt.subplots(figsize=(4.2, 3.1), layout="constrained")
    published = style.read_off("Fig S8").assign(percent=lambda points: 100 * points.value)
    ours = table.assign(model="ELM")
    shapes: dict[str, dict[str, Any]] = {
        "mean": {"marker": "s", "linestyle": "-"},
        "maximum": {"marker": "^", "linestyle": "--"},
    }
    for (name, shape), short in zip(shapes.items(), ("mean", "max"), strict=True):
        theirs = published[published.model == f"ELM {short}"].assign(model="ELM")
        style.curves(
            axis, theirs.rename(columns={"x": "size", "percent": "test_mean"}), "size", "test", "published", **shape
        )
        # a maximum has no error bar
        mine = ours if name == "mean" else ours.assign(test_mean=ours.test_max, test_std=np.nan)
        style.curves(axis, mine, "size", "test", "ours", **shape)
    axis.axhline(50, color="grey", **style.LOOKS["chance"])
    axis.set(xlabel=r"$\tau_s$ (ms)", ylabel="test accuracy (%)", xlim=(0, 310), ylim=(45, 100))
    axis.set_title("ELM on Pathfinder-X")
    if table.test_mean.notna().sum() == 0:
        style.not_run(axis, at=(0.5, 0.9))
    lines = {"ours": {}, "published, read off the picture": {"alpha": 0.35}, "chance": style.LOOKS["chance"]}
    if not style.fullest(ours.dropna(subset=["test_mean"])).all():
        lines["ours, of fewer steps"] = style.LOOKS["ours, of fewer steps"]
    style.legend(figure, more=shapes | lines)
    style.origin(figure, label)
    return figure
