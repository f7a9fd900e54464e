"""Figures 3, S2, S3, S4, S6 and S7: one property of the ELM or the Branch-ELM is varied on NeuronIO.

Every function takes the table of `elm_lib.paper.pictures.curves`: the published points, read off the pictures, with
ours beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elm_lib.paper.figures import style

AUC_RANGE = (0.982, 0.994)  # of the published axes
# what is varied, as `published_figures.csv` names it -> name of the axis, and the default
AXES: dict[str, tuple[str, float | None]] = {
    "d_m (d_mlp=40)": (r"memory units $d_m$", 20),
    "d_m (d_mlp=2d_m)": (r"memory units $d_m$", 20),
    "d_m": (r"memory units $d_m$", 20),
    "d_mlp (d_m=20)": (r"hidden units $d_\mathrm{mlp}$", 40),
    "lambda": (r"update scale $\lambda$", 10),
    "maximal tau_m": (r"longest $\tau_m$ (ms)", 150),
    "constant tau_m": (r"every $\tau_m$ (ms)", None),
    "minimal tau_m": (r"shortest $\tau_m$ (ms)", 1),
    "d_tree": (r"branches $d_\mathrm{tree}$", 45),
    "d_brch": (r"synapses $d_\mathrm{brch}$", 100),
}
SCORES = {
    "auc": "spike AUC",
    "auc best of 3": "spike AUC",
    "rmse": "voltage RMSE (mV)",
    "tp@0.0025": "TP rate at 0.0025 FP",
}
LINEAR, GREY = "l_mlp=0", "#808080"  # the model without a hidden layer, in the paper's grey
# Figure S6
BRANCHES = {
    "Branch-ELM": style.COLORS["Branch-ELM"],
    "sigmoid branch activation": style.COLORS["LSTM"],
    "ReLU branch activation": style.COLORS["TCN"],
    "random synapse assignment": style.GREEN,
    "w_s not learnable": style.PURPLE,
}
# Figure S7: the neuron that the ELM is fitted to
TEACHERS = {"LIF": style.GREEN, "ALIF": style.PURPLE, "BioPhys": style.COLORS["ELM"]}
LAMBDAS = {"Branch-ELM lambda=5": style.COLORS["Branch-ELM"], "Branch-ELM lambda=10": GREY}
_DEFAULT: dict[str, Any] = {"color": "black", "marker": "^", "linestyle": "none", "markersize": 5, "markeredgewidth": 0}


def ablations(table: pd.DataFrame, label: str) -> Figure:
    """Figures 3 and S3: eight panels, one property each."""
    figure, axes = plt.subplots(2, 4, figsize=(style.PAGE, 3.6), sharey=True, layout="constrained")
    return _panels(figure, axes.flat, table, label)


def improved(table: pd.DataFrame, label: str) -> Figure:
    """Figure S4: four panels rerun with the improved memory update."""
    figure, axes = plt.subplots(1, 4, figsize=(style.PAGE, 2.1), sharey=True, layout="constrained")
    return _panels(figure, axes.flat, table, label)


def smaller_lambda(table: pd.DataFrame, beside: pd.DataFrame, label: str) -> Figure:
    """Figure S2: RMSE, AUC and true-positive rate over memory units with lambda = 5.

    beside  the same columns for lambda = 10, as in Table S8
    """
    figure, axes = plt.subplots(1, 3, figsize=(style.PAGE, 2.2), layout="constrained")
    for axis, letter, score in zip(axes, "abc", ("rmse", "auc", "tp@0.0025"), strict=True):
        for part in (beside, table):
            _curve(axis, part[part.score == score], palette=LAMBDAS)
        _finish(axis, letter, "d_m", SCORES[score])
    _legend(figure, pd.concat([table, beside]), LAMBDAS)
    style.origin(figure, label)
    return figure


def branch_architecture(table: pd.DataFrame, beside: pd.DataFrame, label: str) -> Figure:
    """Figure S6: the branches changed in four ways. beside: the same columns for the Branch-ELM of Table S8."""
    figure, axis = plt.subplots(figsize=(3.6, 2.8), layout="constrained")
    for part in (beside, table):
        _curve(axis, part, palette=BRANCHES)
    style.threshold(axis)
    _finish(axis, "", "d_m", SCORES["auc"])
    _legend(figure, pd.concat([table, beside]), BRANCHES)
    style.origin(figure, label)
    return figure


def simple_neurons(table: pd.DataFrame, linear: float, label: str) -> Figure:
    """Figure S7: the ELM fitted to a LIF neuron, an adaptive one, and the biophysical one.

    linear  AUC of ours for the LIF neuron with one memory unit and no hidden layer; NaN where it was not run
    """
    figure, axis = plt.subplots(figsize=(3.6, 2.8), layout="constrained")
    _curve(axis, table, palette=TEACHERS)
    if linear == linear:
        axis.plot([1], [linear], **_LINEAR_POINT)
    axis.set(xscale="log")
    axis.xaxis.set_major_formatter("{x:g}")
    _finish(axis, "", "d_m", SCORES["auc"], marked=False)
    _legend(figure, table, TEACHERS, {"LIF, no hidden layer": _LINEAR_POINT} if linear == linear else {})
    style.origin(figure, label)
    return figure


_LINEAR_POINT: dict[str, Any] = {"color": TEACHERS["LIF"], "marker": "*", "markersize": 8, "linestyle": "none"}


def _panels(figure: Figure, axes, table: pd.DataFrame, label: str) -> Figure:
    """A panel each letter, all with the published range of AUC."""
    for axis, (letter, part) in zip(axes, table.groupby("panel"), strict=True):
        linear = part.varied == LINEAR
        _curve(axis, part[~linear])
        for look, column in (("published", "published"), ("ours", "mean")):
            for _, line in part[linear].dropna(subset=[column]).iterrows():
                axis.axhline(line[column], **_LINEAR[look])
        axis.set_ylim(*AUC_RANGE)
        style.threshold(axis)
        varied = part[~linear].varied.iloc[0]
        _finish(axis, letter, varied, SCORES["auc"] if axis.get_subplotspec().is_first_col() else "")
        if varied in ("maximal tau_m", "constant tau_m"):
            _inset(axis, part)
    more = {"no hidden layer": _LINEAR["ours"]} if (table.varied == LINEAR).any() else {}
    _legend(figure, table, {model: style.COLORS[model] for model in dict.fromkeys(table.model)}, more)
    style.origin(figure, label)
    return figure


_LINEAR: dict[str, dict[str, Any]] = {
    "published": {"color": GREY, "linewidth": 1.0, "alpha": 0.4},
    "ours": {"color": GREY, "linewidth": 1.0, "linestyle": "-"},
}


def _curve(axis: Axes, part: pd.DataFrame, palette: Mapping[str, str] = style.COLORS) -> None:
    """Published points pale, ours dark; the number of divergent runs that are left out stands at its point, as 1*."""
    names = {"mean": "y_mean", "std": "y_std", "error": "y_error"}
    style.curves(
        axis, part.rename(columns={"published": "y_mean"})[["model", "x", "y_mean"]], "x", "y", "published", palette
    )
    ours = part.rename(columns=names).dropna(subset=["y_mean"])
    style.curves(axis, ours, "x", "y", "ours", palette)
    for _, line in ours[ours.diverged > 0].iterrows():
        axis.annotate(
            f"{int(line.diverged)}*",
            (line.x, line.y_mean),
            (0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=style.SMALL,
        )


def _inset(axis: Axes, part: pd.DataFrame) -> None:
    """T = 1 ms lies below the axis: its points in a corner of their own."""
    one = part[part.x == 1]
    inset = axis.inset_axes((0.62, 0.12, 0.34, 0.34))
    _curve(inset, one)
    values = pd.concat([one.published, one["mean"]]).dropna()
    inset.set(xlim=(0, 2), xticks=[1], ylim=(values.min() - 0.002, values.max() + 0.002), xlabel="", ylabel="")
    inset.tick_params(labelsize=6, pad=1)
    inset.locator_params(axis="y", nbins=2)


def _finish(axis: Axes, letter: str, varied: str, name: str, marked: bool = True) -> None:
    """Names, the letter, and the default as a black triangle on the axis."""
    title, default = AXES[varied]
    axis.set(xlabel=title, ylabel=name)
    axis.set_title(f"{letter})" if letter else "", loc="left")
    if default is not None and marked:
        axis.plot([default], [0.02], transform=axis.get_xaxis_transform(), clip_on=False, zorder=6, **_DEFAULT)


def _legend(
    figure: Figure, table: pd.DataFrame, palette: Mapping[str, str], more: Mapping[str, dict] | None = None
) -> None:
    ours = table.rename(columns={"mean": "y_mean"})
    extra = dict(more or {})
    if palette is not TEACHERS:
        extra["default"] = _DEFAULT
    if set(table.score) & {"auc"}:
        extra[f"AUC {style.THRESHOLD}"] = style.THRESHOLD_LINE
    style.legend(figure, palette, ours, "y", "published", extra, palette)
