"""One look for every figure, and files that have the same bytes in every run."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from elm_lib.paper import PUBLISHED
from elm_lib.support.files import write_atomically, write_text

# The paper's colours are seaborn's colorblind palette. TCN and SNN are both red there: no figure shows both.
_BLUE, _ORANGE, GREEN, _RED, PURPLE, _BROWN, _PINK, _GREY, _YELLOW, _LIGHT_BLUE = sns.color_palette(
    "colorblind"
).as_hex()
COLORS = {"Branch-ELM": _LIGHT_BLUE, "ELM": _BLUE, "LSTM": _ORANGE, "SNN": _RED, "TCN": _RED}
EXCITATORY, INHIBITORY, TARGET, NOTE = _RED, _BLUE, "#222222", "#666666"

# what a mark looks like, by where its value comes from
LOOKS: dict[str, dict[str, Any]] = {
    "ours": {"marker": "s", "linestyle": "-", "zorder": 3},
    "ours, of fewer steps": {
        "marker": "s",
        "linestyle": "none",
        "markerfacecolor": "none",
        "markeredgecolor": "auto",
        "zorder": 3,
    },
    "published": {"marker": "o", "linestyle": "-", "alpha": 0.35, "zorder": 2},
    "chance": {"linestyle": ":", "linewidth": 0.8},
}
# AUC, "sufficiently good" spike prediction; a TCN of 10 M parameters reached it (Beniaguev et al. 2021,
# doi:10.1016/j.neuron.2021.07.002)
THRESHOLD = 0.991
THRESHOLD_LINE: dict[str, Any] = {"color": "grey", "linewidth": 0.8, "linestyle": "--", "zorder": 0}
FORMATS = ("pdf", "png", "svg")
SMALL = 6.5  # points: labels of origin, legends, notes
PAGE = 5.5  # inches: the paper's text width


def use() -> None:
    """Set seaborn and matplotlib up: sizes in inches and points as printed, fixed names inside of files.

    The font comes with matplotlib, so that figures look the same on every machine.
    """
    sns.set_theme(
        context="paper",
        style="ticks",
        palette="colorblind",
        font="DejaVu Sans",
        rc={
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "legend.fontsize": SMALL,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.8,
            "xtick.major.width": 0.8,
            "ytick.major.width": 0.8,
            "xtick.minor.width": 0.6,
            "ytick.minor.width": 0.6,
            "xtick.major.size": 3,
            "ytick.major.size": 3,
            "xtick.minor.size": 2,
            "ytick.minor.size": 2,
            "lines.linewidth": 1.2,
            "lines.markersize": 4.5,
            "legend.frameon": False,
            "figure.dpi": 110,
            "savefig.dpi": 200,
            "svg.hashsalt": "elm",
            "pdf.fonttype": 42,
        },
    )


def curves(
    axis: Axes,
    table: pd.DataFrame,
    x: str,
    score: str,
    look: str,
    palette: Mapping[str, str] = MappingProxyType(COLORS),
    **change,
) -> None:
    """Draw a score over a varied quantity, a colour each model, with error bars.

    table  a row each point: model, the column `x`, <score>_mean, <score>_std, and where there are some: seeds,
           <score>_error (the sampling error of a single run) and budget. Rows without a mean are left out.
    palette  colour of each model
    look   "ours" or "published". Ours with less than the largest budget of their model are hollow and not joined.
    change what differs from that look, as matplotlib's `Line2D` names it; hollow marks take the marker of it

    A bar is the standard deviation over seeds as given; of one seed it is the sampling error, where that is known.
    """
    table = table.dropna(subset=[x, f"{score}_mean"])
    whole = fullest(table)
    hollow = LOOKS["ours, of fewer steps"] | {k: v for k, v in change.items() if k == "marker"}
    for part, drawn in ((table[whole], LOOKS[look] | change), (table[~whole], hollow)):
        if part.empty:
            continue
        sns.lineplot(
            _ends(part, x, score),
            x=x,
            y="score",
            hue="model",
            palette=dict(palette),
            estimator="median",
            errorbar=("pi", 100),
            err_style="bars",
            err_kws={"capsize": 2, "elinewidth": 0.9},
            legend=False,
            ax=axis,
            **drawn,
        )


def _ends(table: pd.DataFrame, x: str, score: str) -> pd.DataFrame:
    """Three rows a point: its value and both ends of its error bar, whose median and range are what is drawn."""
    error = table.get(f"{score}_std", pd.Series(float("nan"), table.index))
    if "seeds" in table:
        sampling = table.get(f"{score}_error", pd.Series(float("nan"), table.index))
        error = error.where(table.seeds > 1, sampling)
    # two seeds of the same score would else give a bar of no height, of which only the caps are seen
    error = error.astype(float).where(error > 0)
    ends = [table[["model", x]].assign(score=table[f"{score}_mean"] + sign * error) for sign in (-1, 1)]
    middle = table[["model", x]].assign(score=table[f"{score}_mean"])
    return pd.concat([middle, *ends], ignore_index=True).dropna(subset=["score"])


def fullest(table: pd.DataFrame) -> pd.Series:
    """Whether each row has the largest budget of its model; all have where the table knows no budgets."""
    if "budget" not in table:
        return pd.Series(True, table.index)
    most = table.groupby("model").budget.transform("max")
    return table.budget.isna() | (table.budget >= most * (1 - 1e-6))  # budgets are quotients


def read_off(figure: str, panel: str = "") -> pd.DataFrame:
    """Points of a published figure, read off its picture: model, varied, x, score, value. E.g. ("Fig 4", "c")."""
    points = pd.read_csv(PUBLISHED / "published_figures.csv", keep_default_na=False)
    points = points[(points.figure == figure) & (points.panel == panel)]
    return points.rename(columns={"value_read_off_the_picture": "value"}).reset_index(drop=True)


def legend(
    figure: Figure | SubFigure,
    models: Iterable[str] = (),
    ours: pd.DataFrame | None = None,
    score: str = "",
    published: str = "published",
    more: Mapping[str, dict] = MappingProxyType({}),
    palette: Mapping[str, str] = MappingProxyType(COLORS),
) -> None:
    """One legend above a figure: a colour each model, then a mark each look, in grey.

    models     in any order; drawn in that of `palette`. A TCN is only cited
    ours       the table that was drawn: models without a value of `score` in it are said not to have run
    published  how the published points are named
    more       further marks by name, as matplotlib's `Line2D` takes them
    palette    colour of each model
    """
    looks, ran = dict(more), set()
    if ours is not None:
        kept = ours.dropna(subset=[f"{score}_mean"])
        names = ["ours", *["ours, of fewer steps"] * (not fullest(kept).all())]
        looks = {name: LOOKS[name] for name in names} | {published: LOOKS["published"]} | looks
        ran = set(kept.model)
    handles = []
    for model in (model for model in palette if model in set(models)):
        note = " (cited)" if model == "TCN" else "" if model in ran else " (not run)"
        handles.append(Line2D([], [], color=palette[model], linewidth=3, label=f"{model}{note}"))
    for name, look in looks.items():
        look = {"color": "grey", "markeredgecolor": "w", "markeredgewidth": 0.75} | look
        handles.append(Line2D([], [], label=name, **look))
    columns = _columns([str(handle.get_label()) for handle in handles], figure.bbox.width / figure.dpi)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, columnspacing=1.2, handlelength=2.0)


def _columns(labels: list[str], width: float) -> int:
    """As many columns of a legend as a width in inches has room for; matplotlib fills one column after the other."""
    letter, mark = (
        0.56 * SMALL / 72,
        4.0 * SMALL / 72,
    )  # inches: about a letter, and what stands before and after a label
    for n in range(len(labels), 1, -1):
        longest = [max(map(len, column)) for column in np.array_split(np.array(labels, object), n)]
        if sum(mark + letter * length for length in longest) < width:
            return n
    return 1


def origin(figure: Figure | SubFigure, text: str) -> None:
    """Say below a figure where its numbers come from: in one line, or more where the figure is narrow."""
    width = int(figure.bbox.width / figure.dpi * 72 / (0.52 * SMALL))
    figure.supxlabel(textwrap.fill(text.replace(" %", "\u00a0%"), width), fontsize=SMALL, color=NOTE)


def not_run(axis: Axes, text: str = "not run yet under this profile", at: tuple[float, float] = (0.5, 0.5)) -> None:
    """Write into a panel that ours is missing in it, at a point in parts of the panel; an empty one loses its ticks."""
    if not axis.has_data():
        axis.set(xticks=[], yticks=[])
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    axis.text(*at, text, transform=axis.transAxes, ha="center", color=NOTE, fontsize=SMALL, bbox=box, zorder=5)


def threshold(axis: Axes) -> None:
    """The AUC that counts as sufficient, dashed."""
    axis.axhline(THRESHOLD, **THRESHOLD_LINE)


def note(axis: Axes, text: str) -> None:
    """A remark at the lower right of a panel's title line, in grey."""
    axis.annotate(
        text,
        (1, 1),
        (0, -1),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="top",
        color=NOTE,
        fontsize=SMALL - 0.5,
    )


def save(figure: Figure, folder: str | Path, name: str, points: pd.DataFrame | None = None) -> list[Path]:
    """Write figure as pdf, png and svg; no dates, no versions inside; and the points it shows as csv, if given.

    Returns the paths of the pictures.
    """
    figure.draw_without_rendering()  # one layout for every format
    figure.set_layout_engine("none")
    paths = []
    for form in FORMATS:
        metadata = {
            "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
            "png": {"Software": None},
            "svg": {"Date": None, "Creator": None},
        }[form]
        image = io.BytesIO()
        figure.savefig(image, format=form, metadata=metadata)
        content = number_ids(image.getvalue().decode()).encode() if form == "svg" else image.getvalue()
        paths.append(Path(folder) / f"{name}.{form}")
        write_atomically(paths[-1], content)
    if points is not None:
        write_text(Path(folder) / f"{name}.csv", points.to_csv(index=False))
    return paths


def number_ids(svg: str) -> str:
    """Name clip paths and markers by their order.

    matplotlib names them by a hash of coordinates. The last bit of a layout, which no printed digit shows, can differ
    between two runs.
    """
    found: dict[str, str] = {}

    def numbered(match: re.Match) -> str:
        return match["before"] + found.setdefault(match["id"], f"{match['kind']}_{len(found) + 1}")

    return re.sub(r'(?P<before>\bid="|#)(?P<id>(?P<kind>image|[mp])[0-9a-f]{10})\b', numbered, svg)
