"""Figure 2 a: what goes into the biophysical neuron and what comes out."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure, SubFigure

from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.paper.figures.style import COLORS


def sample(
    simulations: SimulationSet, n: int, start_ms: int, stop_ms: int, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """What goes into the biophysical neuron (spikes of 1278 synapses) and what comes out (soma voltage)."""
    figure = figure or plt.figure(figsize=(4.2, 2.8), constrained_layout=True)
    axes = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    raster(axes[0], simulations.dense(n, start_ms, stop_ms), start_ms)
    file, k = simulations[n]
    axes[1].plot(np.arange(start_ms, stop_ms), file.soma_voltage[k, start_ms:stop_ms], color=COLORS["target"], lw=0.7)
    axes[1].set(xlabel="time (ms)", ylabel="soma (mV)")
    return figure


def liveliest(simulations: SimulationSet, span_ms: int, least_ms: int = 500) -> tuple[int, int]:
    """Simulation and start (ms) of the span with the number of output spikes nearest to 8: neither silent nor a burst train."""
    best = (float("inf"), 0, least_ms)
    for n in range(len(simulations)):
        spike, _ = simulations.targets(n)
        counts = np.convolve(spike, np.ones(span_ms), "valid")[least_ms::50]
        if len(counts):
            k = int(np.argmin(np.abs(counts - 8)))
            best = min(best, (abs(float(counts[k]) - 8), n, least_ms + 50 * k))
    return best[1:]


def raster(axis, x: np.ndarray, start_ms: int) -> None:
    """Draw input spikes x (T, 1278): excitatory red, inhibitory blue."""
    time, channel = np.nonzero(x)
    excitatory = x[time, channel] > 0
    for chosen, name in ((excitatory, "excitatory"), (~excitatory, "inhibitory")):
        axis.scatter(time[chosen] + start_ms, channel[chosen], s=0.12, color=COLORS[name], lw=0, rasterized=True)
    axis.set(ylabel="input", ylim=(0, x.shape[1]))
