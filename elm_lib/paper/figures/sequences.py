"""What a model of the Long Range Arena sees: a picture as a sequence, brackets, and the memory while it reads."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from elm_lib.kernels.spikes import Spikes
from elm_lib.neuron import ELM
from elm_lib.paper.figures import style
from elm_lib.simulate.symbols import listops

OPERATORS = dict(zip((listops.MIN, listops.MAX, listops.MED, listops.SM), ("MIN", "MAX", "MED", "SM"), strict=True))
_COLOURS = dict(zip(OPERATORS, (style.COLORS["ELM"], style.COLORS["LSTM"], style.GREEN, style.PURPLE), strict=True))
_COLUMNS = 1024  # of a picture of a long sequence: several steps share one


def picture_as_sequence(levels: np.ndarray, n_levels: int, title: str) -> Figure:
    """A picture, uint8 (side, side), and below it the sequence of its grey levels, row after row."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(style.PAGE, 2.2), height_ratios=[5, 1], layout="constrained", squeeze=True
    )
    grey = {"cmap": "gray", "vmin": 0, "vmax": n_levels - 1}
    above.imshow(levels, **grey)
    above.set(xticks=[], yticks=[], title=title)
    _strip(below, levels.ravel(), grey)
    below.set_xlabel(f"step: the {levels.size:,} pixels, row after row")
    return figure


def brackets(symbols: np.ndarray, value: int) -> Figure:
    """A sequence of ListOps and its value: a bar from each operator to its bracket, deeper ones lower."""
    opened: list[tuple[int, int]] = []
    figure, axis = plt.subplots(figsize=(style.PAGE, 1.9), layout="constrained")
    deepest = 0
    for step, symbol in enumerate(symbols.tolist()):
        if symbol in OPERATORS:
            opened.append((step, symbol))
            deepest = max(deepest, len(opened))
        elif symbol == listops.END:
            start, operator = opened.pop()
            axis.barh(len(opened), step - start, left=start, height=0.8, color=_COLOURS[operator], lw=0)
    axis.set(xlim=(0, len(symbols)), ylim=(deepest - 0.5, -0.5), xlabel=f"step, of {len(symbols):,}", ylabel="depth")
    axis.set_title(f"ListOps: the answer is {value}, the value of the outermost operator", loc="left")
    handles = [Patch(color=_COLOURS[symbol], label=name) for symbol, name in OPERATORS.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=4)
    return figure


@torch.no_grad()
def memory_over_picture(model: ELM, levels: np.ndarray, label: str) -> Figure:
    """Where in a sequence the memory is held: all memory units while an ELM reads a picture, uint8 (side, side).

    label  how far the model is trained
    Shown is what the picture changes: the memory less that of an empty picture, in parts of its largest value. Units
    stand in the order of their timescale tau_m.
    """
    figure, (above, axis) = plt.subplots(
        2, 1, figsize=(style.PAGE, 3.4), height_ratios=[1, 6], sharex=True, layout="constrained"
    )
    _strip(above, levels.ravel(), {"cmap": "gray", "vmin": 0, "vmax": model.input_size - 1})
    above.set_title(f"{len(levels)} x {len(levels)} pixels, one row of the picture after the other", loc="left")
    axis.set(xlabel="step", ylabel=r"memory unit, by $\tau_m$ (steps)")
    style.origin(figure, label)
    m = _memory(model, levels.ravel()) - _memory(model, np.zeros_like(levels.ravel()))
    tau_m = model.tau_m.detach().numpy()
    order = np.argsort(tau_m)
    shown = _pooled(m[:, order].T)
    shown /= np.maximum(np.abs(shown).max(1, keepdims=True), 1e-9)
    image = axis.imshow(
        shown,
        aspect="auto",
        cmap="RdBu_r",
        vmin=-1,
        vmax=1,
        interpolation="nearest",
        extent=(0, levels.size, len(order), 0),
        rasterized=True,
    )
    figure.colorbar(image, ax=axis, label="change of the memory, in parts of its largest", pad=0.01)
    places = np.linspace(0, len(order) - 1, 6).astype(int)
    axis.set_yticks(places + 0.5, [f"{tau_m[order[place]]:,.0f}" for place in places])
    return figure


def _memory(model: ELM, levels: np.ndarray) -> np.ndarray:
    """m_1 ... m_T of an ELM that reads these levels, (T, d_m): what its read-out receives."""
    assert model.w_y is not None
    kept: list[Tensor] = []
    steps = torch.arange(len(levels) + 1)
    x = Spikes(steps, torch.from_numpy(levels).long(), torch.ones(len(levels)), (1, len(levels), model.input_size))
    hook = model.w_y.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
    try:
        model(x)
    finally:
        hook.remove()
    return kept[0].reshape(len(levels), -1).numpy()


def _pooled(rows: np.ndarray) -> np.ndarray:
    """At most so many columns as a picture shows: of several steps the one of the largest magnitude."""
    n = -(-rows.shape[1] // _COLUMNS)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % n)), mode="edge").reshape(len(rows), -1, n)
    largest = np.abs(padded).argmax(-1)[..., None]
    return np.take_along_axis(padded, largest, -1)[..., 0]


def _strip(axis: Axes, levels: np.ndarray, look: dict) -> None:
    axis.imshow(levels[None], aspect="auto", interpolation="nearest", extent=(0, len(levels), 1, 0), **look)
    axis.set(yticks=[])
    axis.spines[:].set_visible(False)
