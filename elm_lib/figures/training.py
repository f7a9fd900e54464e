"""How training went."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure


def learning_curves(curves: dict[str, pd.DataFrame], score: str) -> Figure:
    """`score` over optimiser steps: an axes each experiment, a colour each size, a line each run."""
    figure, axes = plt.subplots(1, len(curves), figsize=(2.4 * len(curves), 2.2), squeeze=False, layout="constrained")
    for axis, (name, frame) in zip(axes[0], curves.items(), strict=True):
        for number, (size, runs) in enumerate(frame.groupby("size", sort=False)):
            for k, (_, curve) in enumerate(runs.groupby("seed")):
                axis.plot(curve.step, curve[score], f"C{number}.-", label=None if k else size)
        axis.set(title=name, xlabel="optimiser step")
        axis.legend()
    axes[0, 0].set(ylabel=score)
    return figure
