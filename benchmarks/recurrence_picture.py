"""The picture of the benchmark of the recurrence: a row each model, a column each machine, a bar each contender."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from elm_lib.paper.figures import style

MODELS = {
    "neuronio_branch_elm": "Branch-ELM\nNeuronIO",
    "neuronio_elm": "ELM\nNeuronIO",
    "shd": "Branch-ELM\nSHD",
    "pathfinder": "ELM\nPathfinder",
    "pathfinder_x": "ELM\nPathfinder-X",
}
OURS, OTHERS = style.COLORS["ELM"], "#999999"
# engine, input -> how a reader calls it; the compiled engine is `cpu` or `cuda`
BARS = {
    ("compiled", "spikes"): ("ours, spikes", OURS),
    ("compiled", "dense"): ("ours, dense", OURS),
    ("torch", "dense"): ("ours, plain torch", style.COLORS["Branch-ELM"]),
    ("lstm_paper", "dense"): ("nn.LSTM", OTHERS),
    ("step_loop", "dense"): ("loop over steps", OTHERS),
    ("released", "dense"): ("released code", OTHERS),
}


def picture(table: pd.DataFrame, machine_name) -> Figure:
    """Milliseconds of a training step by contender, on a logarithmic axis.

    table         rows of recurrence.csv at the sizes of the paper
    machine_name  a machine's name -> that over its column
    """
    table = table.assign(bar=list(zip(table.engine.replace({"cpu": "compiled", "cuda": "compiled"}), table.input)))
    machines = list(dict.fromkeys(table.machine))
    models = [name for name in MODELS if name in set(table.configuration)]
    figure, axes = plt.subplots(
        len(models), len(machines), figsize=(7.2, 1.15 * len(models) + 0.4), squeeze=False, layout="constrained"
    )
    for row, model in zip(axes, models, strict=True):
        bars = {bar: look for bar, look in BARS.items() if (table[table.configuration == model].bar == bar).any()}
        for axis, machine in zip(row, machines, strict=True):
            mine = table[(table.configuration == model) & (table.machine == machine)].set_index("bar").ms_median
            axis.set(yticks=range(len(bars)), ylim=(len(bars) - 0.5, -0.5), xscale="log", xticks=[])
            axis.set_yticklabels([label for label, _ in bars.values()] if axis is row[0] else [])
            axis.tick_params(axis="y", length=0)
            axis.minorticks_off()
            axis.spines[["bottom", "left"]].set_visible(False)
            low, high = mine.min() / 3, mine.max() * 6
            axis.set_xlim(low, high)
            for place, (bar, (_, colour)) in enumerate(bars.items()):
                value = mine.get(bar, float("nan"))
                shown = "not measured" if value != value else f"{value:,.3g} ms" if value < 1000 else f"{value:,.0f} ms"
                axis.barh(place, 0 if value != value else value - low, left=low, color=colour, height=0.75, lw=0)
                axis.annotate(
                    shown,
                    (low if value != value else value, place),
                    (2, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=style.SMALL,
                )
        row[0].set_ylabel(MODELS[model], rotation=0, ha="right", va="center", labelpad=8)
    for axis, machine in zip(axes[0], machines, strict=True):
        axis.set_title(machine_name(machine))
    style.origin(figure, "a training step, forward and backward; nn.LSTM of the paper's size; bars are logarithmic")
    return figure
