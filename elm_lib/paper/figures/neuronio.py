"""Figures 2, 4, S1 and S9: models fitted to a biophysical neuron."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure, SubFigure

from elm_lib.datasets.neuronio.schema import SimulationSet, unscale_voltage
from elm_lib.paper.figures.simulations import raster, sample
from elm_lib.paper.figures.style import COLORS

THRESHOLD = 0.991  # AUC, "sufficiently good" spike prediction; a TCN of 10 M parameters reached it (Beniaguev et al. 2021, doi:10.1016/j.neuron.2021.07.002)


def data_and_results(
    simulations: SimulationSet,
    n: int,
    start_ms: int,
    stop_ms: int,
    ours: pd.DataFrame,
    published: pd.DataFrame,
    label: str,
) -> Figure:
    """Figure 2: a) input and output of the biophysical neuron, simulation n from start_ms to stop_ms; b, c) as `scores`."""
    figure = plt.figure(figsize=(9, 2.8), constrained_layout=True)
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.9])
    sample(simulations, n, start_ms, stop_ms, left)
    left.axes[0].set_title("a) biophysical neuron: input spikes, soma", loc="left")
    scores(ours, published, label, figure=right)
    for axis, letter in zip(right.axes, "bc", strict=True):
        axis.set_title(f"{letter})", loc="left")
    return figure


def scores(
    ours: pd.DataFrame,
    published: pd.DataFrame,
    label: str,
    x: str = "parameters",
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Figure 2 b, c (x = "parameters") or S1 (x = "flops"): voltage RMSE and spike AUC against the cost of a model.

    ours       model, parameters, flops, rmse_mean, rmse_std, auc_mean, auc_std, a row each model and size
    published  the same columns; drawn pale, with the published standard deviations
    label      where ours come from: profile, data, budget
    """
    figure = figure or plt.figure(figsize=(6.6, 2.8), constrained_layout=True)
    axes = figure.subplots(1, 2)
    for axis, score, name in zip(axes, ("rmse", "auc"), ("voltage RMSE (mV)", "spike AUC"), strict=True):
        for model in ("LSTM", "ELM", "Branch-ELM"):
            theirs, mine = published[published.model == model], ours[ours.model == model]
            style = {"color": COLORS[model], "capsize": 2}
            axis.errorbar(
                theirs[x], theirs[f"{score}_mean"], theirs[f"{score}_std"], alpha=0.35, marker="o", ls="-", **style
            )
            axis.errorbar(
                mine[x], mine[f"{score}_mean"], mine[f"{score}_std"], marker="s", ls="--", label=model, **style
            )
        axis.set(
            xscale="log",
            xlabel="trainable parameters" if x == "parameters" else "FLOPs for a 500 ms sample",
            ylabel=name,
        )
    _cut_off(axes[1], ours, x)
    axes[1].axhline(THRESHOLD, color=COLORS["TCN"], lw=0.8, ls=":", zorder=0)
    axes[1].set_title(
        "dotted: 0.991, which took a TCN of 10 M parameters", loc="right", fontsize=5.5, color=COLORS["TCN"]
    )
    marks = [
        axes[0].plot([], [], color="grey", marker=marker, ls=line, alpha=alpha, label=name)[0]
        for marker, line, alpha, name in (("s", "--", 1, "this run"), ("o", "-", 0.35, "published"))
    ]
    axes[0].legend(handles=marks, loc="upper right")
    axes[1].legend(loc="lower right")
    figure.suptitle(label, fontsize=7, color="grey")
    return figure


def branches(model, ours: pd.DataFrame, trace: dict, label: str) -> Figure:
    """Figure 4: a) the branch scheme, as this model has it; b) its prediction; c) true-positive rate at a low false-positive rate.

    model    a BranchELM;  trace  from `trace`
    ours     model, parameters, tp_mean, tp_std (the paper gives no numbers for c)
    """
    figure = plt.figure(figsize=(7.2, 4.2), constrained_layout=True)
    grid = figure.add_gridspec(2, 3, height_ratios=[1, 1])
    axis = figure.add_subplot(grid[0, :2])
    index, mask = (a.view(model.d_tree, -1).numpy() for a in (model.routing_index, model.routing_mask))
    for b in range(model.d_tree):
        inputs = index[b][mask[b]]
        axis.plot([inputs.min(), inputs.max()], [b, b], color=COLORS["Branch-ELM"], lw=1)
    axis.set(
        xlabel="input (excitatory and inhibitory synapses along the dendrite)",
        ylabel="branch",
        title=rf"a) $d_\mathrm{{tree}}$ = {model.d_tree} branches of $d_\mathrm{{brch}}$ = {model.d_brch} neighbouring synapses",
    )
    axis = figure.add_subplot(grid[0, 2])
    for name, group in ours.groupby("model"):
        axis.errorbar(
            group.parameters,
            group.tp_mean,
            group.tp_std,
            marker="s",
            ls="--",
            capsize=2,
            color=COLORS[name],
            label=name,
        )
    axis.set(xscale="log", xlabel="trainable parameters", ylabel="TP rate at FP rate 0.0025", title="c) spikes found")
    axis.legend()
    inner = grid[1, :].subgridspec(2, 1, height_ratios=[2, 1])
    _prediction(
        figure.add_subplot(inner[0]),
        figure.add_subplot(inner[1]),
        trace,
        "b) prediction of a simulation never trained on, in one go",
    )
    figure.suptitle(label, fontsize=7, color="grey")
    return figure


def dynamics(simulations: SimulationSet, n: int, trace: dict, label: str, n_synapse: int = 20) -> Figure:
    """Figure S9: a) input, b) prediction, c) some synapses or branches, d) all memory units, over the traced time."""
    figure, axes = plt.subplots(
        5, 1, figsize=(6.6, 7.4), sharex=True, height_ratios=[2, 1.4, 0.7, 1.6, 1.6], constrained_layout=True
    )
    time = trace["time_ms"]
    raster(axes[0], simulations.dense(n, int(time[0]), int(time[-1]) + 1), int(time[0]))
    axes[0].set_title("a) synaptic input: excitatory red, inhibitory blue", loc="left")
    _prediction(axes[1], axes[2], trace, "b) prediction and target")
    s = trace["s"]
    chosen = np.sort(np.random.default_rng(0).choice(s.shape[1], min(n_synapse, s.shape[1]), replace=False))
    axes[3].plot(time, s[:, chosen], lw=0.6)
    axes[3].set_title(f"c) {len(chosen)} of {s.shape[1]} {trace['s_name']}", loc="left")
    axes[4].plot(time, trace["m"], lw=0.6)
    axes[4].set_title(f"d) all {trace['m'].shape[1]} memory units", loc="left")
    axes[4].set_xlabel("time (ms)")
    figure.suptitle(label, fontsize=7, color="grey")
    return figure


@torch.no_grad()
def trace(model, simulations: SimulationSet, n: int, start_ms: int, stop_ms: int) -> dict[str, np.ndarray]:
    """Run a neuron over simulation n from start_ms - 500 in one go and keep its inner life from start_ms to stop_ms.

    Returns time_ms (T,), p (T,) spike probability, voltage (T,) mV, s (T, n_trace), m (T, d_m), and the targets
    spike (T,), soma (T,) mV, capped; s_name says what s holds.
    """
    begin = max(0, start_ms - 500)
    x = torch.from_numpy(simulations.dense(n, begin, stop_ms)).unsqueeze(1)
    state, kept = None, {"p": [], "voltage": [], "s": [], "m": []}
    for t in range(x.shape[0]):
        y, state = model.step(x[t], state)
        for key, value in zip(
            kept, (torch.sigmoid(y[0, 0]), unscale_voltage(y[0, 1]), state[0][0], state[1][0]), strict=True
        ):
            kept[key].append(value.numpy())
    spike, voltage = simulations.targets(n, start_ms, stop_ms)
    result = {key: np.stack(value)[start_ms - begin :] for key, value in kept.items()}
    name = "synapse traces" if result["s"].shape[1] == model.input_size else "branch traces"
    return result | {
        "time_ms": np.arange(start_ms, stop_ms),
        "spike": spike,
        "soma": unscale_voltage(voltage),
        "s_name": name,
    }


def _prediction(above, below, trace: dict, title: str) -> None:
    time = trace["time_ms"]
    above.plot(time, trace["soma"], color=COLORS["target"], lw=0.9, label="biophysical neuron")
    above.plot(time, trace["voltage"], color=COLORS["ELM"], lw=0.9, label="model")
    above.set(ylabel="soma (mV)")
    above.set_title(title, loc="left")
    above.legend(loc="upper left", ncols=2)
    below.plot(time, trace["p"], color=COLORS["ELM"], lw=0.9)
    below.vlines(time[trace["spike"] > 0.5], 0, 1, color=COLORS["target"], lw=0.6, alpha=0.6)
    below.set(ylabel="p(spike)", ylim=(0, 1))


def _cut_off(axis, ours: pd.DataFrame, x: str, least: float = 0.93) -> None:
    """Keep the AUC axis where models are told apart; a point below is marked at the edge with its value."""
    below = ours[ours.auc_mean < least]
    if ours.auc_mean.max() < least or below.empty:
        return
    axis.set_ylim(least, 0.998)
    for row in below.itertuples():
        axis.annotate(
            f"{row.auc_mean:.2f}",
            (getattr(row, x), least),
            (0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=6,
            color=COLORS[row.model],
            arrowprops={"arrowstyle": "->", "color": COLORS[row.model]},
        )
