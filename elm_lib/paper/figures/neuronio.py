"""Figures 2, 4, S1 and S9: models fitted to a biophysical neuron.

Figures 2a, 4b and S9 show one stretch of one simulation. It is kept in a small file, a dict of arrays called `shown`,
so that no figure reads the data set. See `elm_lib.datasets.neuronio.example` for them.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, SubFigure

from elm_lib.datasets.neuronio.example import Shown, stretch
from elm_lib.datasets.neuronio.metrics import START_MS
from elm_lib.datasets.neuronio.schema import N_CHANNELS, SOMA_CAP_MV, SimulationSet, channel_sign, unscale_voltage
from elm_lib.neuron import elm_step
from elm_lib.paper import PUBLISHED
from elm_lib.paper.figures import neuron, style
from elm_lib.simulate.cell.sketch import Sketch

BRANCH_COLORS = (style.COLORS["LSTM"], style.GREEN, style.PURPLE)  # of the branches picked out in Figure 4a
MODELS = ("Branch-ELM", "ELM", "LSTM")
COSTS = {"parameters": "trainable parameters", "flops": "FLOPs for a 500 ms sample"}
# score -> axis, and the worst value on it, a little beyond the published ones
SCORES = {"rmse": ("voltage RMSE (mV)", 0.75), "auc": ("spike AUC", 0.984)}


def data_and_results(
    sketch: Sketch | None, shown: Shown | None, ours: pd.DataFrame, published: pd.DataFrame, label: str
) -> Figure:
    """Figure 2: a) the biophysical neuron, its input and output; b, c) as `scores`.

    sketch  the reconstruction; None where there is none at hand: then the panel has no cell
    """
    figure = plt.figure(figsize=(style.PAGE, 3.0), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1, 1.75])[0]
    if sketch is not None:
        cell, left = left.subfigures(1, 2, squeeze=False, width_ratios=[0.3, 1])[0]
        neuron.draw(cell.subplots(), sketch)
    _input_and_soma(left, shown, "a) input, soma")
    scores(ours, published, "", figure=right, letters="bc")
    style.origin(figure, label)
    return figure


def scores(
    ours: pd.DataFrame,
    published: pd.DataFrame,
    label: str,
    x: str = "parameters",
    figure: Figure | SubFigure | None = None,
    letters: str = "ab",
) -> Figure | SubFigure:
    """Figure 2 b, c (x = "parameters") or S1 (x = "flops"): voltage RMSE and spike AUC against the cost of a model.

    ours       model, parameters, flops, rmse_mean, rmse_std, auc_mean, auc_std, seeds, a row each model and size; where
               there are some, rmse_error and auc_error (of a single run) and budget
    published  the same columns but seeds; drawn pale. The TCN's points are read off the picture, which gives no FLOPs
    label      where ours come from; "" where the figure around says it
    """
    figure = figure or plt.figure(figsize=(6.4, 2.9), layout="constrained")
    cited = x == "parameters"
    for axis, letter, (score, (name, worst)) in zip(figure.subplots(1, 2), letters, SCORES.items(), strict=True):
        if cited:
            style.curves(axis, _cited_tcn(score), "parameters", score, "published", linestyle="none")
        style.curves(axis, published, x, score, "published")
        style.curves(axis, ours, x, score, "ours")
        axis.set(xscale="log", xlabel=COSTS[x], ylabel=name)
        axis.set_title(f"{letter})", loc="left")
        _told_apart(axis, ours, x, score, worst)
        if ours[f"{score}_mean"].isna().all():
            style.not_run(axis)
        if score == "auc":
            style.threshold(axis)
    more = {f"AUC {style.THRESHOLD}, good enough": style.THRESHOLD_LINE}
    style.legend(figure.get_figure(root=True), [*MODELS, *["TCN"] * cited], ours, "auc", more=more)
    if label:
        style.origin(figure, label)
    return figure


def branches(model, sketch: Sketch | None, ours: pd.DataFrame, shown: Shown | None, label: str) -> Figure:
    """Figure 4: a) branches of this model; b) its prediction; c) true-positive rate at a low false-positive rate.

    model    a BranchELM
    sketch   the reconstruction, on which three of the branches are shown; None where there is none at hand
    ours     model, parameters, tp_mean, tp_std, seeds; where there are some, tp_error and budget
    shown    with a prediction; None where no model was trained
    label    where ours come from; the published points of c are read off the picture
    """
    figure = plt.figure(figsize=(style.PAGE, 4.6), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.35, 1])[:, 0]
    scheme, right = above.subfigures(1, 2, squeeze=False, width_ratios=[1.35, 1])[0]
    _scheme(scheme, model, sketch)
    right = right.subplots()
    published = _published_tp()
    style.curves(right, published, "parameters", "tp", "published")
    style.curves(right, ours, "parameters", "tp", "ours")
    right.set(xscale="log", xlabel=COSTS["parameters"], ylabel="TP rate at 0.0025 FP")
    right.set_title("c) spikes found", loc="left")
    _told_apart(right, ours, "parameters", "tp", 0.2)
    if ours.tp_mean.isna().all():
        style.not_run(right, at=(0.75, 0.1))
    style.legend(above, published.model, ours, "tp", published="published, read off the picture")
    rows = below.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    whole = _whole(shown)
    _prediction(rows[0], rows[1], whole, "b) a simulation never trained on, predicted in one go")
    if whole is not None:
        for axis in rows:
            axis.axvspan(0, START_MS, color=style.NOTE, alpha=0.15, linewidth=0)
    rows[1].set_xlabel(f"time (ms); the first {START_MS}, shaded, are not scored")
    style.origin(figure, label)
    return figure


def _scheme(figure: Figure | SubFigure, model, sketch: Sketch | None) -> None:
    """Which synapses each branch of a model sums; three branches in colour, on the cell too, where there is one."""
    index, mask = (a.view(model.d_tree, -1).cpu().numpy() for a in (model.routing_index, model.routing_mask))
    inputs = [i[m] for i, m in zip(index, mask, strict=True)]
    chosen = dict(zip(np.linspace(0.1, 0.75, 3) * model.d_tree, BRANCH_COLORS, strict=True))
    colours = {int(b): colour for b, colour in chosen.items()}
    axis = figure.subplots(1, 2, width_ratios=[0.3, 1])[1] if sketch is not None else figure.subplots()
    for b, own in enumerate(inputs):
        if len(own):
            colour, width = colours.get(b, style.COLORS["Branch-ELM"]), 2.0 if b in colours else 1.2
            axis.plot([own.min(), own.max()], [b, b], color=colour, lw=width)
    axis.set(xlabel="synapse along the dendrite", ylabel="branch", xlim=(0, model.input_size))
    axis.set_title(rf"a) {model.d_tree} branches of {model.d_brch} synapses", loc="left")
    if sketch is None:
        return
    cell = figure.axes[0]
    neuron.draw(cell, sketch)
    for b, colour in colours.items():
        pieces = sketch.segments[np.unique(inputs[b] // 2)]  # an excitatory and an inhibitory synapse each
        cell.add_collection(LineCollection(list(pieces), colors=colour, linewidths=1.6, zorder=5))


def dynamics(model, shown: Shown | None, label: str, n_synapse: int = 20) -> Figure:
    """Figure S9: a) input, b) prediction, c) some synapses or branches, d) all memory units.

    model  the neuron that made the prediction, run over the stored input; None where none was trained
    """
    figure, axes = plt.subplots(
        5, 1, figsize=(style.PAGE, 7.0), sharex=True, height_ratios=[2, 1.4, 0.7, 1.6, 1.6], layout="constrained"
    )
    raster(axes[0], shown)
    axes[0].set_title("a) synaptic input: excitatory red, inhibitory blue", loc="left")
    _prediction(axes[1], axes[2], shown, "b) prediction and target")
    axes[3].set_title("c) synapse traces", loc="left")
    axes[4].set_title("d) memory units", loc="left")
    axes[4].set_xlabel("time (ms)")
    style.origin(figure, label)
    if model is None or shown is None:
        for axis in axes[3:]:
            style.not_run(axis)
        return figure
    inner = trace(model, shown, n_synapse)
    time, s, m = inner["time_ms"], inner["s"], inner["m"]
    for colour, trace_ms in zip(sns.color_palette("husl", s.shape[1]), s.T, strict=True):
        axes[3].plot(time, trace_ms, lw=0.5, alpha=0.9, color=colour, rasterized=True)
    axes[3].set(ylabel=r"$s$")
    axes[3].set_title(f"c) {s.shape[1]} of {model.n_synapse} synapses", loc="left")
    tau_m = inner["tau_m"]
    scale = plt.Normalize(np.log(tau_m.min()), np.log(tau_m.max()) + 1e-3)
    for k in np.argsort(tau_m, kind="stable"):  # slow ones on top of fast ones
        colour = plt.cm.viridis(0.9 * (1 - scale(np.log(tau_m[k]))))
        axes[4].plot(time, m[:, k], lw=0.7, color=colour, rasterized=True)
    axes[4].set(ylabel=r"$m$")
    span = rf"$\tau_m$ from {tau_m.min():.2g} ms (light) to {tau_m.max():.3g} ms (dark)"
    axes[4].set_title(f"d) all {m.shape[1]} memory units, {span}", loc="left")
    return figure


def sample(simulations: SimulationSet, n: int, start_ms: int, stop_ms: int) -> Figure:
    """What goes into the biophysical neuron (spikes of 1278 synapses) and what comes out (soma voltage)."""
    figure = plt.figure(figsize=(4.2, 2.8), layout="constrained")
    _input_and_soma(figure, stretch(simulations, n, start_ms, stop_ms), "")
    return figure


# ---- the stretch of a simulation that is shown ---------------------------------------------------------------------


@torch.no_grad()
def trace(model, shown: Shown, n_synapse: int = 20) -> dict[str, Any]:
    """Run a neuron over the stored input from its zero state, in one go, and keep its inner life from start_ms on.

    model    an ELM or BranchELM whose y is the spike logit and the scaled voltage
    Returns  time_ms (T,), p (T,) spike probability, voltage (T,) mV, m (T, d_m), tau_m (d_m,) ms,
             s (T, n_synapse) traces of so many of its synapses, drawn at random from those that have an input
    """
    start, stop, lead = (int(shown[name]) for name in ("start_ms", "stop_ms", "lead_ms"))
    x = np.zeros((lead + stop - start, 1, N_CHANNELS), np.float32)
    x[shown["time"], 0, shown["channel"]] = channel_sign(shown["channel"])
    source = getattr(model, "routing_index", torch.arange(N_CHANNELS))
    there = torch.nonzero(getattr(model, "routing_mask", torch.ones(N_CHANNELS, dtype=torch.bool))).flatten().numpy()
    chosen = np.sort(np.random.default_rng(0).choice(there, min(n_synapse, len(there)), replace=False))
    parameters, w_s = model.step_parameters(), model.w_s[chosen]
    state = model.zero_state(torch.from_numpy(x[0]))
    s, kept = torch.zeros(len(chosen)), {name: list[np.ndarray]() for name in ("p", "voltage", "s", "m")}
    for x_t in torch.from_numpy(x):
        y, state = elm_step(model._trace_input(x_t), state, parameters)
        s = parameters.kappa_s * s + w_s * x_t[0, source[chosen]]
        values = torch.sigmoid(y[0, 0]), y[0, 1], s, state[1][0]
        for name, value in zip(kept, values, strict=True):
            kept[name].append(value.numpy())
    result = {name: np.stack(values)[lead:] for name, values in kept.items()}
    result["voltage"] = unscale_voltage(result["voltage"])
    return result | {"time_ms": np.arange(start, stop), "tau_m": model.tau_m.numpy()}


def raster(axis: Axes, shown: Shown | None, size: float = 0.25) -> None:
    """Input spikes from start_ms on, a dot each, of this size (points^2): excitatory red, inhibitory blue."""
    axis.set(ylabel="synapse", ylim=(0, N_CHANNELS))
    if shown is None:
        style.not_run(axis)
        return
    time = shown["time"].astype(int) - int(shown["lead_ms"])
    now = time >= 0
    time, channel = time[now] + int(shown["start_ms"]), shown["channel"][now]
    excitatory = channel_sign(channel) > 0
    for chosen, colour in ((excitatory, style.EXCITATORY), (~excitatory, style.INHIBITORY)):
        axis.scatter(time[chosen], channel[chosen], s=size, color=colour, lw=0, rasterized=True)
    axis.set_xlim(int(shown["start_ms"]), int(shown["stop_ms"]))


def _input_and_soma(figure: Figure | SubFigure, shown: Shown | None, title: str) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.set_title(title, loc="left")
    below.set(xlabel="time (ms)", ylabel="soma (mV)")
    raster(above, shown, size=0.12)
    if shown is not None:
        below.plot(np.arange(int(shown["start_ms"]), int(shown["stop_ms"])), shown["soma"], color=style.TARGET, lw=0.7)


def _whole(shown: Shown | None) -> Shown | None:
    """The whole simulation in the form of a stretch of it."""
    if shown is None or "whole_p" not in shown:
        return None
    names = ("spike", "soma", "p", "v")
    found = {name: shown[f"whole_{name}"] for name in names}
    return found | {"start_ms": np.array(0), "stop_ms": np.array(len(found["soma"]))}


def _prediction(above: Axes, below: Axes, shown: Shown | None, title: str) -> None:
    above.set_title(title, loc="left")
    above.set(ylabel="soma (mV)")
    below.set(ylabel="p(spike)")
    if shown is None or "p" not in shown:
        style.not_run(above)
        return
    start, stop = int(shown["start_ms"]), int(shown["stop_ms"])
    time, soma = np.arange(start, stop), np.minimum(shown["soma"].astype(float), SOMA_CAP_MV)
    above.plot(time, soma, color=style.TARGET, lw=0.9, label="biophysical neuron")
    above.plot(time, shown["v"], color=style.COLORS["Branch-ELM"], lw=0.9, label="model")
    above.set_xlim(start, stop)
    above.legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=2, borderpad=0)
    below.plot(time, shown["p"], color=style.COLORS["Branch-ELM"], lw=0.9)
    most = max(0.01, 1.25 * float(shown["p"].max()))  # the axis ends where the prediction does
    below.vlines(start + shown["spike"].astype(int), 0.9 * most, most, color=style.TARGET, lw=0.6)
    below.set(ylim=(0, most))


def _cited_tcn(score: str) -> pd.DataFrame:
    points = style.read_off("Fig 2", {"rmse": "b", "auc": "c"}[score])
    return points.rename(columns={"x": "parameters", "value": f"{score}_mean"})


def _published_tp() -> pd.DataFrame:
    """Figure 4 c: model, parameters, tp_mean. Its points are named by size; Tables S8 to S10 say their parameters."""
    points = style.read_off("Fig 4", "c").rename(columns={"x": "size", "value": "tp_mean"})
    sizes = pd.read_csv(PUBLISHED / "neuronio_models.csv").set_index(["model", "size"]).trainable_parameters
    named = pd.MultiIndex.from_frame(points[["model", "size"]])
    return points.assign(parameters=np.where(points.varied == "parameters", points["size"], sizes.reindex(named)))


def _told_apart(axis: Axes, ours: pd.DataFrame, x: str, score: str, worst: float) -> None:
    """Keep an axis where models are told apart; one of ours outside is marked at the edge with its value."""
    values = ours[f"{score}_mean"]
    upward = score == "rmse"  # what is worse lies above
    outside = ours[values > worst if upward else values < worst]
    if outside.empty or len(outside) == values.notna().sum():
        return
    axis.set_ylim(bottom=None if upward else worst, top=worst if upward else None)
    axis.margins(x=0.12)
    for i, (where, value, model) in enumerate(zip(outside[x], outside[f"{score}_mean"], outside.model, strict=True)):
        away = 11 + 9 * (i % 2)  # points: neighbours do not write over each other
        axis.annotate(
            f"{value:.3g}",
            (where, worst),
            (3, -away - 3 if upward else away),
            textcoords="offset points",
            ha="right",
            fontsize=style.SMALL,
            color=style.COLORS[model],
            arrowprops={"arrowstyle": "->", "color": style.COLORS[model]},
        )
