"""Pictures of the notebook `explore`, and the controls under which they are drawn again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from elm_lib.paper import explore
from elm_lib.paper.figures import style
from elm_lib.simulate.cell.morphology import Cell

MEMORY, SYNAPSE, UPDATE = style.COLORS["ELM"], style.GREEN, style.COLORS["LSTM"]  # as in Figure 1

# fixed: a layout that matplotlib finds itself takes as long as the picture
_MARGINS = {"left": 0.1, "right": 0.98, "bottom": 0.11, "top": 0.93}


@dataclass(frozen=True)
class Slider:
    """A number between two ends; whole where all three are."""

    label: str
    value: float
    low: float
    high: float
    step: float = 1


@dataclass(frozen=True)
class Choice:
    """One of several."""

    label: str
    value: Any
    options: tuple


def interact(draw: Callable[..., Any], controls: Mapping[str, Slider | Choice], live: bool = True, slow: bool = False):
    """Draw, and draw again when a control moves. Returns the controls, or None where they are not live.

    draw   of the controls' values by name; makes its figure with pyplot
    live   False, or ipywidgets not installed: drawn once, with the values that the controls start with
    slow   draw when a slider is let go, not while it moves, with a bar that says whether it is at work
    """
    if not live or importlib.util.find_spec("ipywidgets") is None:
        draw(**{name: control.value for name, control in controls.items()})
        return None
    import ipywidgets

    def widget(control: Slider | Choice):
        look: dict[str, Any] = {"description": control.label, "style": {"description_width": "11em"}}
        look |= {"layout": ipywidgets.Layout(width="32em"), "value": control.value}
        if isinstance(control, Choice):
            return ipywidgets.Dropdown(options=control.options, **look)
        kind = ipywidgets.IntSlider if isinstance(control.value, int) else ipywidgets.FloatSlider
        ends = {"min": control.low, "max": control.high, "step": control.step}
        return kind(**ends, continuous_update=not slow, **look)

    widgets = {name: widget(control) for name, control in controls.items()}

    bar = ipywidgets.IntProgress(value=0, max=2, layout=ipywidgets.Layout(width="32em"))

    def shown(**values):
        bar.value, bar.description = 1, "at work"
        draw(**values)
        plt.show()
        bar.value, bar.description = 2, "done"

    picture = ipywidgets.interactive_output(shown, widgets)
    return ipywidgets.VBox([*widgets.values(), *[bar] * slow, picture])


def steps(found: Mapping[str, np.ndarray], kappa_m: float, kappa_s: float) -> Figure:
    """Equation 1 line by line, from `elm_lib.paper.explore.one_synapse`."""
    figure, axes = plt.subplots(4, 1, figsize=(6, 4.4), sharex=True, gridspec_kw=_MARGINS | {"hspace": 0.6})
    lines = (
        ("x", "input $x$", style.TARGET),
        ("s", rf"synapse $s$, $\kappa_s$ = {kappa_s:.3f}", SYNAPSE),
        ("delta_m", r"update $\Delta m$ = tanh($s$)", UPDATE),
        ("m", rf"memory $m$, $\kappa_m$ = {kappa_m:.3f}", MEMORY),
    )
    for axis, (name, label, colour) in zip(axes, lines, strict=True):
        axis.step(found["t"], found[name], where="post", color=colour)
        axis.set_title(label, loc="left", color=colour)
        axis.set_ylim(bottom=0, top=max(1.0, 1.1 * float(found[name].max())) if name != "s" else None)
    axes[-1].set_xlabel("time (ms)")
    return figure


def learned(model: Any, cell: Cell, weights: np.ndarray, places: np.ndarray, inhibitory: bool, before: np.ndarray):
    """Weights of one kind of synapse along the dendrite; timescales before and after training.

    weights (1278,) of `weight_by_input`;  places (N, 2) of `layout`;  before (d_m,) ms
    """
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7, 3.2), width_ratios=[2, 1], gridspec_kw=_MARGINS | {"bottom": 0.14, "wspace": 0.25}
    )
    drawn, norm = weights[int(inhibitory) :: 2], Normalize(0, np.quantile(weights, 0.99))
    ends = np.stack([places[cell.parent[cell.synapse_node]], places[cell.synapse_node]], axis=1)
    nodes = np.arange(1, len(places))
    tree = np.stack([places[cell.parent[nodes]], places[nodes]], axis=1)
    left.add_collection(LineCollection(list(tree), colors="0.85", lw=0.7))
    lines = LineCollection(list(ends), cmap="viridis", norm=norm, array=drawn, lw=2)
    left.add_collection(lines)
    left.autoscale_view()
    left.set(xticks=[], ylabel="path to the soma (µm), basal downward")
    left.set_title(f"learned weight of {'inhibitory' if inhibitory else 'excitatory'} synapses", loc="left")
    figure.colorbar(lines, ax=left, label="$w_s$, summed over branches")
    after = np.sort(model.tau_m.detach().numpy())
    right.plot(np.sort(before), "o", color="0.6", label="before")
    right.plot(after, "o", color=MEMORY, label="after")
    right.set(xlabel="memory unit, sorted", ylabel=r"$\tau_m$ (ms)")
    right.legend()
    return figure


def memory(found: Mapping[str, Any], start_ms: int, span_ms: int) -> Figure:
    """Each memory unit's trace from `trace`, sorted by timescale, the fastest at the bottom."""
    order = np.argsort(found["tau_m"])
    part = slice(start_ms, start_ms + span_ms)
    figure, axis = plt.subplots(figsize=(7, 4), gridspec_kw=_MARGINS)
    for row, unit in enumerate(order):
        trace = found["m"][:, unit]
        shown = (trace[part] - trace.mean()) / max(1e-6, np.ptp(trace)) + row
        axis.plot(found["time_ms"][part], shown, color=plt.get_cmap("viridis")(row / len(order)), lw=0.8)
    axis.set(yticks=range(len(order)), yticklabels=[f"{tau:.1f}" for tau in found["tau_m"][order]])
    axis.set(xlabel="time (ms)", ylabel=r"$\tau_m$ (ms); each trace scaled to its range")
    axis.tick_params(axis="y", labelsize=5)
    return figure


def prediction(
    time_ms: np.ndarray, soma: np.ndarray, spike: np.ndarray, found: Mapping[str, np.ndarray], title: str,
    whole: Mapping[str, np.ndarray] | None = None,
) -> Figure:  # fmt: skip
    """Voltage of cell and model above each other, spike probability, and the difference of the voltages.

    whole  the prediction of the model before a lesion, in grey
    """
    figure, axes = plt.subplots(3, 1, figsize=(7, 4), sharex=True, height_ratios=[2, 1, 1], gridspec_kw=_MARGINS)
    capped = np.minimum(soma.astype(float), -55)
    colour = style.COLORS["Branch-ELM"]
    axes[0].plot(time_ms, capped, color=style.TARGET, lw=0.9, label="biophysical neuron")
    axes[0].plot(time_ms, found["v"], color=colour, lw=0.9, label="model")
    if whole is not None:
        axes[0].plot(time_ms, whole["v"], color="0.6", lw=0.6, label="model, whole")
    axes[0].set(ylabel="soma (mV)", ylim=(-85, -45))
    axes[0].set_title(title, loc="left")
    axes[0].legend(loc="lower right", ncols=3, bbox_to_anchor=(1, 1), borderpad=0)
    most = max(0.02, 1.25 * float(found["p"].max()))
    axes[1].plot(time_ms, found["p"], color=colour, lw=0.9)
    axes[1].vlines(time_ms[0] + spike.astype(int), 0.85 * most, most, color=style.TARGET, lw=0.8)
    axes[1].set(ylabel="p(spike)", ylim=(0, most))
    axes[2].plot(time_ms, found["v"] - capped, color=style.NOTE, lw=0.8)
    axes[2].set(xlabel="time (ms)", ylabel="difference (mV)")
    return figure


def receptive_field(gradient: np.ndarray, title: str, pool: int = 9, bins_ms: int = 2) -> Figure:
    """Synapse over time before the spike, red where a spike raises the spike probability, blue where it lowers it.

    gradient (T, 1278) to the input. An inhibitory spike enters as -1, so the sign of its rows is turned.
    """
    figure, axes = plt.subplots(
        1, 2, figsize=(7, 3), sharey=True, gridspec_kw=_MARGINS | {"bottom": 0.15, "top": 0.85, "wspace": 0.08}
    )
    length = len(gradient) // bins_ms * bins_ms
    effect = {"excitatory": gradient[-length:, ::2], "inhibitory": -gradient[-length:, 1::2]}
    pooled = {k: v.reshape(length // bins_ms, bins_ms, -1, pool).mean(axis=(1, 3)).T for k, v in effect.items()}
    most = max(float(np.quantile(np.abs(value), 0.995)) for value in pooled.values()) or 1.0
    for axis, (name, value) in zip(axes, pooled.items(), strict=True):
        picture = axis.imshow(
            value, aspect="auto", origin="lower", cmap="RdBu_r", vmin=-most, vmax=most, extent=(-length, 0, 0, 639)
        )
        axis.set(title=f"{name} synapses", xlabel="time before the spike (ms)")
    axes[0].set_ylabel("segment, basal then apical")
    figure.colorbar(picture, ax=axes, label="effect on the spike's logit")
    figure.suptitle(title, fontsize=8)
    return figure


def beside(found: Mapping[str, np.ndarray]) -> Figure:
    """Cell and model under the same input, from `elm_lib.paper.explore.beside_the_cell`."""
    n = len(found["spike"])
    title = f"{n} output spike{'' if n == 1 else 's'} of the cell"
    return prediction(np.arange(len(found["soma"])), found["soma"], found["spike"], found, title)


def lesioned(tests: explore.Tests, found: Mapping[str, Any], whole: Mapping[str, Any], start_ms: int = 500) -> Figure:
    """The liveliest of a few simulations after a lesion; scores over all of them, and those of the whole model."""
    after, before, k = explore.scores(dict(found), tests), explore.scores(dict(whole), tests), tests.liveliest
    title = (
        f"AUC {after['auc']:.3f} (whole {before['auc']:.3f}), RMSE {after['rmse']:.2f} mV (whole {before['rmse']:.2f})"
    )
    time_ms, spikes = np.arange(start_ms, tests.soma.shape[1]), np.flatnonzero(tests.spike[k, start_ms:])
    one, intact = ({name: values[k, start_ms:] for name, values in part.items()} for part in (found, whole))
    return prediction(time_ms, tests.soma[k, start_ms:], spikes, one, title, intact)


def digit_memory(
    tau_m: np.ndarray,
    time_ms: np.ndarray,
    accuracy: np.ndarray,
    thirds: tuple[np.ndarray, Mapping[str, np.ndarray]],
    at_ms: float,
    digit: str,
) -> Figure:
    """How well memory units tell a digit, from `elm_lib.paper.digit_memory`: each unit over time; each over its
    timescale at one moment; groups of units over time.

    tau_m (d_m,) ms;  accuracy (T, d_m);  thirds: times and accuracy of `probe_thirds`
    """
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(7.5, 2.6), width_ratios=[1.5, 1, 1.2], gridspec_kw=_MARGINS | {"bottom": 0.18, "wspace": 0.45}
    )
    order, at = np.argsort(tau_m), int(np.argmin(np.abs(time_ms - at_ms)))
    edges = np.append(time_ms - np.diff(time_ms).min(), time_ms[-1])
    shown = left.pcolormesh(edges, np.arange(len(order) + 1), accuracy[:, order].T, cmap="viridis", vmin=0.1)
    figure.colorbar(shown, ax=left, label="accuracy")
    left.axvline(time_ms[at], color="w", lw=1)
    ticks = np.linspace(0, len(order) - 1, 5).astype(int)
    left.set(xlabel="time (ms)", ylabel=r"$\tau_m$ (ms), sorted", title=f"the {digit} digit, unit by unit")
    left.set(yticks=ticks + 0.5, yticklabels=[f"{tau_m[order[k]]:.0f}" for k in ticks])
    middle.semilogx(np.maximum(tau_m, 1), accuracy[at], ".", color=MEMORY)
    middle.set(xlabel=r"$\tau_m$ (ms)", title=f"at {time_ms[at]:.0f} ms")
    for colour, (name, values) in zip((UPDATE, MEMORY, style.TARGET), thirds[1].items(), strict=True):
        right.plot(thirds[0], values, ".-", color=colour, label=name)
    right.legend(loc="upper right")
    right.set(xlabel="time (ms)", title="units together", ylim=(0, None))
    for axis in (middle, right):
        axis.axhline(0.1, color=style.NOTE, lw=0.8, ls=":")
    for axis in (left, right):
        axis.axvline(time_ms[-1] / 2, color=style.NOTE, lw=0.8, ls="--")
    return figure
