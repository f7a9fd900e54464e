"""Figure S8: the synapse timescale on Pathfinder-X."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from elm_lib.paper.figures.style import COLORS


def tau_s(table: pd.DataFrame, label: str) -> Figure:
    """Mean and maximum test accuracy (%) over tau_s. table: of `paper_lra.averages`; without a row only the axes are drawn."""
    figure, axis = plt.subplots(figsize=(3.6, 2.6), constrained_layout=True)
    table = table.sort_values("size")
    axis.plot(table["size"], table.test_mean, marker="s", color=COLORS["ELM"], label="mean")
    axis.plot(table["size"], table.test_max, marker="^", ls="--", color=COLORS["Branch-ELM"], label="maximum")
    axis.axhline(50, color="grey", lw=0.8, ls=":", label="chance")
    axis.set(
        xlabel=r"$\tau_s$ (ms)", ylabel="test accuracy (%)", xlim=(0, 210), ylim=(45, 100), title="ELM on Pathfinder-X"
    )
    axis.legend(loc="upper left")
    figure.suptitle(label, fontsize=6, color="grey")
    return figure
