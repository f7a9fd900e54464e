"""Figure 1: the ELM neuron beside the cell that it models. A cell's shape, for Figures 2a and 4a too."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from elm_lib.datasets.neuronio.example import Shown
from elm_lib.paper.figures import style
from elm_lib.simulate.cell.densities import AXON
from elm_lib.simulate.cell.sketch import Sketch

# the paper's colour of each part of the neuron
SYNAPSE, INTEGRATION, MEMORY, OUTPUT = style.GREEN, style.COLORS["LSTM"], style.COLORS["ELM"], style.PURPLE
PARTS = {
    "synapse currents": SYNAPSE,
    "integration": INTEGRATION,
    "leaky memory": MEMORY,
    "output": OUTPUT,
}
_BLACK = style.TARGET
# equation 1, a line each, in pieces of one colour
EQUATIONS: tuple[tuple[tuple[str, str], ...], ...] = (
    ((r"$\kappa_m$", MEMORY), (r"$=\exp(-\Delta t\,/\,$", _BLACK), (r"$\tau_m$", MEMORY), ("$)$", _BLACK)),
    ((r"$\kappa_s$", SYNAPSE), (r"$=\exp(-\Delta t\,/\,$", _BLACK), (r"$\tau_s$", SYNAPSE), ("$)$", _BLACK)),
    (
        (r"$s_t$", SYNAPSE),
        ("$=$", _BLACK),
        (r"$\kappa_s \odot s_{t-1}$", SYNAPSE),
        ("$+$", _BLACK),
        (r"$w_s$", SYNAPSE),
        (r"$\odot\, x_t$", _BLACK),
    ),
    (
        (r"$\Delta m_t$", INTEGRATION),
        (r"$=\tanh(\mathrm{MLP}$", _BLACK),
        (r"$_{w_p}$", INTEGRATION),
        ("$([$", _BLACK),
        (r"$s_t$", SYNAPSE),
        ("$,$", _BLACK),
        (r"$\kappa_m \odot m_{t-1}$", MEMORY),
        ("$]))$", _BLACK),
    ),
    (
        (r"$m_t$", MEMORY),
        ("$=$", _BLACK),
        (r"$\kappa_m \odot m_{t-1}$", MEMORY),
        ("$+$", _BLACK),
        (r"$\lambda$", INTEGRATION),
        (r"$(1 -$", _BLACK),
        (r"$\kappa_m$", MEMORY),
        (r"$)\,\odot$", _BLACK),
        (r"$\Delta m_t$", INTEGRATION),
    ),
    ((r"$y_t$", OUTPUT), ("$=$", _BLACK), (r"$w_y$", OUTPUT), (r"$\cdot$", _BLACK), (r"$m_t$", MEMORY)),
)


def neuron(sketch: Sketch | None, shown: Shown | None, label: str) -> Figure:
    """Figure 1: a) a cortical neuron, its parts coloured as those of the model; b) the model; c) its equations.

    sketch  the reconstruction; None where there is none at hand
    shown   a stretch of a simulation: the soma's voltage is drawn below the cell
    """
    figure = plt.figure(figsize=(style.PAGE, 3.5), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1, 2.2])[0]
    cell, trace = left.subplots(2, 1, height_ratios=[5, 1])
    cell.set_title("a) a cortical neuron", loc="left")
    if sketch is None:
        style.not_run(cell, "no reconstruction at hand")
    else:
        draw(cell, sketch, dendrite=INTEGRATION, soma=MEMORY, axon=OUTPUT)
        cell.scatter(*sketch.segments[::4, 2].T, s=2.5, color=SYNAPSE, lw=0, zorder=3)
        _scale_bar(cell)
    trace.axis("off")
    if shown is not None:
        trace.plot(shown["soma"], color=OUTPUT, lw=0.6)
        duration = int(shown["stop_ms"]) - int(shown["start_ms"])
        trace.set_title(f"voltage of the soma, {duration / 1000:g} s", fontsize=style.SMALL, color=OUTPUT, pad=1)
    model, equations = right.subplots(2, 1, height_ratios=[1.15, 1])
    model.set_title("b) the ELM neuron", loc="left")
    equations.set_title("c) its equations", loc="left")
    _diagram(model)
    _equations(equations)
    style.origin(figure, label)
    return figure


def draw(
    axis: Axes, sketch: Sketch, dendrite: str = style.NOTE, soma: str = style.TARGET, axon: str | None = None
) -> None:
    """A cell in its plane, as thick as it was traced; the frame holds its dendrites, an axon may leave it."""
    for part, colour in ((False, dendrite), (True, axon)):
        lines = [(points, diameters) for kind, points, diameters in sketch.neurites if (kind == AXON) == part]
        if colour is None or not lines:
            continue
        pieces = np.concatenate([np.stack([points[:-1], points[1:]], axis=1) for points, _ in lines])
        width = np.concatenate([(diameters[:-1] + diameters[1:]) / 2 for _, diameters in lines])
        axis.add_collection(LineCollection(list(pieces), linewidths=0.35 + 0.3 * width, colors=colour, zorder=2))
    axis.fill(*sketch.soma.T, color=soma, lw=1.5, zorder=4)
    low, high = (getattr(sketch.segments, end)(axis=(0, 1)) for end in ("min", "max"))
    margin = 0.03 * (high[1] - low[1])
    axis.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - 3 * margin, high[1] + margin), aspect="equal")
    axis.axis("off")


def _scale_bar(axis: Axes, length: float = 200.0) -> None:
    """A bar of so many µm at the upper right."""
    right, top = axis.get_xlim()[1], axis.get_ylim()[1]
    axis.plot([right, right], [top - length, top], color=_BLACK, lw=1)
    axis.text(
        right, top - length / 2, f"{length:g} µm ", ha="right", va="center", fontsize=style.SMALL, rotation="vertical"
    )


def _diagram(axis: Axes) -> None:
    """Boxes of the four parts, and what runs between them."""
    axis.set(xlim=(0, 10), ylim=(0, 4.2))
    axis.axis("off")
    boxes = (
        (1.1, 2.0, "synapse\ncurrents $s_t$", r"$w_s,\ \tau_s$", SYNAPSE),
        (3.9, 1.5, "MLP", r"$w_p$", INTEGRATION),
        (6.2, 2.0, "memory\nunits $m_t$", r"$\tau_m$", MEMORY),
        (8.9, 0.7, r"$\cdot$", r"$w_y$", OUTPUT),
    )
    for x, width, text, parameters, colour in boxes:
        shape = FancyBboxPatch((x, 1.5), width, 1.3, "round,pad=0.08", fc=_pale(colour), ec=colour, lw=1.2)
        axis.add_patch(shape)
        axis.text(x + width / 2, 2.15, text, ha="center", va="center")
        axis.text(x + width / 2, 1.05, parameters, ha="center", va="top", color=colour)
    for start, stop, text, colour in (
        (0.1, 1.0, "$x_t$", _BLACK),
        (3.2, 3.8, "$s_t$", SYNAPSE),
        (5.5, 6.1, r"$\Delta m_t$", INTEGRATION),
        (8.3, 8.8, "$m_t$", MEMORY),
        (9.7, 10.1, "$y_t$", OUTPUT),
    ):
        _arrow(axis, [(start, 2.15), (stop, 2.15)], colour)
        axis.text((start + stop) / 2, 2.4, text, ha="center", color=colour)
    _arrow(axis, [(7.2, 2.9), (4.65, 2.9)], MEMORY, bent=0.45)
    axis.text(5.9, 4.05, r"$\kappa_m \odot m_{t-1}$", ha="center", va="top", color=MEMORY)


def _arrow(axis: Axes, ends: Sequence[tuple[float, float]], colour: str, bent: float = 0.0) -> None:
    bend = f"arc3,rad={bent}"
    axis.add_patch(
        FancyArrowPatch(
            *ends,
            arrowstyle="-|>",
            mutation_scale=7,
            color=colour,
            connectionstyle=bend,
            shrinkA=0,
            shrinkB=0,
            lw=1.0,
            clip_on=False,
        )
    )


def _pale(colour: str) -> tuple[float, ...]:
    return tuple(1 - 0.2 * (1 - part) for part in to_rgb(colour))


def _equations(axis: Axes) -> None:
    axis.axis("off")
    properties = {"size": 9}
    lines: list[Artist] = [
        HPacker(
            children=[TextArea(text, textprops={"color": colour, **properties}) for text, colour in line],
            align="baseline",
            pad=0,
            sep=1.5,
        )
        for line in EQUATIONS
    ]
    block = VPacker(children=lines, align="left", pad=0, sep=4)
    axis.add_artist(AnchoredOffsetbox("center left", child=block, frameon=False, borderpad=0, pad=0))
    for i, (text, colour) in enumerate(PARTS.items()):
        axis.text(1.0, 0.9 - 0.15 * i, text, color=colour, ha="right", va="center", transform=axis.transAxes)
