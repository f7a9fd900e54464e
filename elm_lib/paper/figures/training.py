"""What a group of experiments trains, and its learning curves, in words that a reader knows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from elm_lib.paper.figures import style

GROUPS = {
    "neuronio": "ELM, Branch-ELM, LSTM and integrate-and-fire neurons of several sizes learn to predict the spikes and "
    "the voltage of a detailed cell (Figures 2, 4, S1, S9; Tables S4, S8 to S10).",
    "neuronio_ablations": "One property of the ELM or the Branch-ELM is varied at a time, on the same data as "
    "`neuronio` (Figures 3, S3, S4).",
    "neuronio_variants": "The Branch-ELM with a smaller update scale, with the improved update, and with its branches "
    "changed (Figures S2, S4d, S6).",
    "neuronio_teachers": "ELMs of few memory units learn to predict integrate-and-fire neurons, which are simpler than "
    "the detailed cell (Figure S7).",
    "shd": "ELM, Branch-ELM, LSTM and a spiking network (SNN) learn to tell spoken digits apart, at several bin sizes "
    "(Figure S5, Table S11).",
    "shd_adding": "The same models learn the sum of two spoken digits (Figure 5, Table S12).",
    "shd_adding_ablations": "The ELM learns these sums with fewer memory units and with shorter timescales "
    "(Figures 5e, 5f).",
    "elm_network": "Networks of ELM neurons learn these sums with 77 thousand parameters: few complex neurons or many "
    "simple ones (the authors' follow-up, arXiv 2605.12049).",
    "lra": "ELM and Chrono-LSTM learn six tasks with long sequences (Table 1).",
    "lra_pathfinder": "Whether a dashed line connects two discs: ELMs of several sizes, with input dropout, with other "
    "synapse timescales, and an S5 (Figure S8; Tables S5 to S7).",
}
# an argument of params.yaml -> as a reader knows it
NAMES = {
    "d_m": r"memory units $d_m$",
    "d_mlp": r"hidden units $d_\mathrm{mlp}$",
    "l_mlp": r"hidden layers $l_\mathrm{mlp}$",
    "d_tree": r"branches $d_\mathrm{tree}$",
    "d_brch": r"synapses per branch $d_\mathrm{brch}$",
    "lambda_": r"update scale $\lambda$",
    "tau_m_range": r"timescales $\tau_m$ (ms)",
    "tau_s": r"synapse timescale $\tau_s$ (ms)",
    "bin_ms": "bin size (ms)",
    "hidden_size": "LSTM units",
    "num_neurons": "neurons",
    "n_layers": "layers",
    "dropout": "input dropout",
    "adaptive": "adaptive threshold",
    "width": "TCN channels",
    "name": "task",
}
MODELS = {
    "teacher": "ELM",
    "branch_elm": "Branch-ELM",
    "elm": "ELM",
    "lstm": "LSTM",
    "snn": "SNN",
    "lif": "LIF",
    "chrono": "Chrono-LSTM",
    "tcn": "TCN",
    "s5": "S5",
}
# what else the names of experiments say
WHAT = {
    "lambda": "update scale",
    "tau_m": "timescales",
    "tau_m_max": "longest timescale",
    "tau_m_min": "shortest timescale",
    "tau_m_constant": "one timescale",
    "x_tau_s": "Pathfinder-X, synapse timescale",
    "lambda_5": r"$\lambda = 5$",
    "random": "random synapses",
    "fixed_w_s": "weights not learned",
    "relu": "ReLU branches",
    "sigmoid": "sigmoid branches",
    "lif": "fitted to LIF",
    "lif_linear": "fitted to LIF, no hidden layer",
    "alif": "fitted to adaptive LIF",
}
SCORES = {
    "rmse": "voltage error, validation (mV)",
    "auc": "spike AUC, validation",
    "error": "share of errors, validation",
}
COLUMNS = 3  # of panels


def title(experiment: str, group: str) -> str:
    """The name of an experiment in words: "improved_branch_elm_tau_m_max" -> "improved Branch-ELM, longest timescale".
    What the group's name says is left out."""
    rest = experiment.removeprefix(f"{group}_").removeprefix("neuronio_").removeprefix("shd_adding_")
    for name, shown in MODELS.items():
        before, found, after = f"_{rest}_".partition(f"_{name}_")
        if found:
            model = f"{before.strip('_').replace('_', ' ')} {shown}".strip()
            return ", ".join(part for part in (model, _what(after.strip("_"))) if part)
    return f"ELM, {_what(rest)}"


def _what(text: str) -> str:
    return WHAT.get(text) or re.sub(r" \$.*| \(.*", "", NAMES.get(text, text.replace("_", " ")))


def value(size: Any) -> str:
    """A varied value as a legend shows it: "[1, 50]" -> "1 to 50"; "pathfinder_x" -> "Pathfinder-X"."""
    if isinstance(size, str) and size.startswith("["):
        low, high = json.loads(size)
        return f"{low:g} to {high:g}" if low != high else f"{low:g}"
    if isinstance(size, bool):
        return "yes" if size else "no"
    if isinstance(size, str):
        return "ListOps" if size == "listops" else size.replace("_", "-").title()
    return f"{size:g}"


def learning_curves(curves: Mapping[str, pd.DataFrame], vary: Mapping[str, str], score: str, group: str) -> Figure:
    """A panel each experiment: its validation score over optimiser steps, a line each value that is varied.

    curves  of `Ledger.curves`: size, seed, step and the score, by experiment
    vary    by experiment, the argument that is varied
    score   without the prefix valid_: rmse, auc, error
    The legend stands beside its panel. Experiments without a finished run are left out.
    """
    column = f"valid_{score}"
    drawn = {n: table for n, table in curves.items() if table.reindex(columns=[column]).notna().any(axis=None)}
    if not drawn:
        figure, axis = plt.subplots(figsize=(3, 1), layout="constrained")
        style.not_run(axis, "no finished run under this profile")
        return figure
    rows, columns = math.ceil(len(drawn) / COLUMNS), min(COLUMNS, len(drawn))
    figure, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.4 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(drawn) :]:
        axis.set_visible(False)
    for axis, (name, table) in zip(axes.flat, drawn.items()):
        shown = table.assign(value=table["size"].map(value))
        order = list(dict.fromkeys(shown.value))
        colours = sns.color_palette("viridis", len(order)).as_hex()
        sns.lineplot(
            shown,
            x="step",
            y=column,
            hue="value",
            hue_order=order,
            palette=dict(zip(order, colours)),
            marker=".",
            errorbar=None,
            ax=axis,
        )
        axis.set(title=title(name, group), xlabel="optimiser steps", ylabel=SCORES.get(score, score))
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 4))
        heading = NAMES.get(vary[name], vary[name])
        axis.legend(title=heading, title_fontsize=style.SMALL, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return figure
