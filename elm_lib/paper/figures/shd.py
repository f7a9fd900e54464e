"""Figures 5 and S5: accuracy over bin size on SHD-Adding and SHD."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from elm_lib.datasets.shd.schema import Recordings
from elm_lib.paper.figures.digits import sum_of_two
from elm_lib.paper.figures.style import COLORS
from elm_lib.paper.shd import is_fullest

SPLITS = ("train", "valid", "test")


def sweeps(axes, table: pd.DataFrame, letters: Sequence[str], chance: float) -> None:
    """Train, validation and test accuracy over bin size: ours dark, published pale; hollow where a model had less than its largest
    budget, and not joined; dotted where one always gives the likeliest answer. table: of `paper_shd.table`."""
    table = table.assign(whole=is_fullest(table))
    for axis, split, letter in zip(axes, SPLITS, letters, strict=True):
        for model, rows in table.groupby("model"):
            for suffix, these, look in (
                ("_published", rows, {"alpha": 0.3, "marker": "o", "ls": "-"}),
                ("", rows[rows.whole], {"marker": "s", "ls": "--", "label": model}),
                ("", rows[~rows.whole], {"marker": "s", "ls": "none", "mfc": "none"}),
            ):
                kept = these.dropna(subset=[f"{split}_accuracy_mean{suffix}"])
                axis.errorbar(
                    kept.bin_ms,
                    kept[f"{split}_accuracy_mean{suffix}"],
                    kept[f"{split}_accuracy_std{suffix}"],
                    color=COLORS[model],
                    capsize=2,
                    **look,
                )
        axis.axhline(chance, color="grey", lw=0.8, ls=":")
        axis.set(xscale="log", xlabel="bin size (ms)", title=f"{letter}) {split}", ylim=(0, 1.03))
        axis.set_xticks([1, 2, 4, 10, 20, 50, 100], ["1", "2", "4", "10", "20", "50", "100"], minor=False)
        axis.minorticks_off()
        axis.label_outer()
    axes[0].set(ylabel="accuracy")


def _legend(axis, table: pd.DataFrame) -> None:
    handles, labels = axis.get_legend_handles_labels()
    looks = {
        "this run": {"marker": "s", "ls": "--"},
        "of fewer steps": {"marker": "s", "ls": "none", "mfc": "none"},
        "published": {"marker": "o", "ls": "-", "alpha": 0.3},
        "chance": {"lw": 0.8, "ls": ":"},
    }
    for name, look in looks.items():
        if name == "of fewer steps" and not (table.budget.notna() & ~is_fullest(table)).any():
            continue
        handles.append(axis.plot([], [], color="grey", **look)[0])
        labels.append(name)
    axis.figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=6)


def default(table: pd.DataFrame, label: str) -> Figure:
    """Figure S5: SHD itself."""
    figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.6), sharey=True, constrained_layout=True)
    sweeps(axes, table, "abc", chance=1 / 20)
    _legend(axes[0], table)
    figure.suptitle(label, fontsize=6, color="grey")
    return figure


def adding(
    recordings: Recordings,
    pair: Sequence[int],
    table: pd.DataFrame,
    by_d_m: pd.DataFrame,
    by_tau_m: pd.DataFrame,
    label: str,
) -> Figure:
    """Figure 5: a) a sample of SHD-Adding; b-d) accuracy over bin size; e, f) test accuracy of the ELM at 2 ms over d_m, and over
    the longest initial tau_m (both of `paper_shd.ablation`)."""
    figure, axes = plt.subplots(2, 3, figsize=(7.5, 4.8), constrained_layout=True)
    sum_of_two(axes[0, 0], recordings, pair, letter="a) ")
    sweeps([axes[0, 1], axes[0, 2], axes[1, 0]], table, "bcd", chance=0.1)
    for axis in (axes[0, 1], axes[0, 2], axes[1, 0]):
        axis.tick_params(labelbottom=True, labelleft=True)
        axis.set(xlabel="bin size (ms)")
    for axis, found, name, letter in (
        (axes[1, 1], by_d_m, "$d_m$", "e"),
        (axes[1, 2], by_tau_m, r"longest initial $\tau_m$ (ms)", "f"),
    ):
        axis.set(xlabel=name, ylabel="accuracy", title=f"{letter}) ELM, 2 ms, test", ylim=(0, 1.03))
        if len(found):
            axis.errorbar(
                found["size"], found["mean"], found["std"], color=COLORS["ELM"], marker="s", ls="--", capsize=2
            )
        else:
            axis.text(0.5, 0.5, "not run under this profile", transform=axis.transAxes, ha="center", color="grey")
            axis.set_xticks([])
    axes[1, 0].set(ylabel="accuracy")
    _legend(axes[1, 0], table)
    figure.suptitle(label, fontsize=6, color="grey")
    return figure
