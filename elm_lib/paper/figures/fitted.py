"""Pictures of the notebook `fit_your_neuron`: a recording, a learning curve, a prediction of held-out trials."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from elm_lib.fitting.fitted import Fitted
from elm_lib.paper.figures import style


def recording(
    inputs: Sequence[np.ndarray], voltage: np.ndarray, dt_ms: float, signs: Sequence[float], title: str
) -> Figure:
    """One trial: spikes at each synapse, excitatory and inhibitory, above the soma voltage (mV)."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 3.2), sharex=True, layout="constrained")
    for sign, colour, name in ((1, style.EXCITATORY, "excitatory"), (-1, style.INHIBITORY, "inhibitory")):
        rows = [k for k, one in enumerate(signs) if one == sign]
        for row in rows:
            upper.plot(inputs[row], np.full(len(inputs[row]), row), "|", color=colour, ms=3)
        upper.plot([], [], "|", color=colour, label=name)
    upper.set(ylabel="synapse", title=title)
    upper.legend(loc="upper left", bbox_to_anchor=(1, 1))
    lower.plot(np.arange(len(voltage)) * dt_ms, voltage, color=style.TARGET, lw=0.7)
    lower.set(xlabel="time (ms)", ylabel="soma (mV)")
    return figure


def learning_curves(fits: dict[str, Fitted]) -> Figure:
    """Validation error of the voltage and AUC of the spikes over optimiser steps, a line each fit."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.2), layout="constrained")
    for axis, score, label in zip(axes, ("valid_rmse", "valid_auc"), ("voltage error (mV)", "spike AUC"), strict=True):
        for name, fit in fits.items():
            axis.plot([row["step"] for row in fit.curve], [row[score] for row in fit.curve], marker=".", label=name)
        axis.set(xlabel="optimiser steps", ylabel=f"{label}, validation")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def prediction(fit: Fitted, title: str, trial: int | None = None) -> Figure:
    """A held-out trial: recorded and predicted voltage (mV, capped), recorded spikes and predicted probability.

    trial  its place among the held-out ones; None: the one with most output spikes
    """
    found, delta_t = fit.held_out, fit.settings["delta_t"]
    first = found["first"]
    if trial is None:
        trial = int(np.argmax([found["spike"][a:b].sum() for a, b in zip(first[:-1], first[1:], strict=True)]))
    rows = slice(first[trial], first[trial + 1])
    p, v, spike, voltage = (found[name][rows] for name in ("p", "v", "spike", "voltage"))
    time_ms, colour = np.arange(len(p)) * delta_t, style.COLORS["ELM"]
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(7, 3.4), sharex=True, height_ratios=[2, 1], layout="constrained"
    )
    upper.plot(time_ms, voltage, color=style.TARGET, lw=0.8, label="recorded")
    upper.plot(time_ms, v, color=colour, lw=0.8, label="fitted neuron")
    upper.set(ylabel="soma (mV)", title=title)
    upper.legend(loc="upper left", bbox_to_anchor=(1, 1))
    lower.plot(time_ms, p, color=colour, lw=0.8)
    lower.vlines(time_ms[spike > 0.5], 1.02, 1.15, color=style.TARGET, lw=0.8)
    lower.set(xlabel="time (ms)", ylabel="p(spike)", ylim=(0, 1.2))
    return figure
