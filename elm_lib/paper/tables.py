"""Tables as the paper prints them, ours under published, and in the long form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from elm_lib.support.files import write_text

NOT_RUN = "ours, not run"


@dataclass(frozen=True)
class Table:
    """long: a row each point, all digits; shown: the paper's rows and columns, as text. Unpacks as (long, shown)."""

    long: pd.DataFrame
    shown: pd.DataFrame

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return iter((self.long, self.shown))


def save(long: pd.DataFrame, shown: pd.DataFrame, folder: str | Path, name: str) -> None:
    """folder/<name>.csv, .md and .tex of the table as shown; folder/<name>_long.csv of the long form, all digits."""
    folder, cells = Path(folder), shown.astype(str)
    plain = cells.map(_latex).rename(columns=_latex)
    write_text(folder / f"{name}_long.csv", long.to_csv(index=False))
    write_text(folder / f"{name}.csv", shown.to_csv(index=False))
    write_text(folder / f"{name}.md", cells.to_markdown(index=False, disable_numparse=True) + "\n")
    write_text(folder / f"{name}.tex", plain.style.hide(axis="index").to_latex(hrules=True))


def _latex(text: str) -> str:
    """Text in which LaTeX finds no commands."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: rf"\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)


def ours(line: dict) -> str:
    """How a row of ours is headed: "ours, 17 % of the budget"."""
    budget = line.get("budget", math.nan)
    if budget != budget:
        return NOT_RUN
    return "ours" if budget >= 1 - 1e-9 else f"ours, {100 * budget:.2g} % of the budget"


def number(value: float, digits: int) -> str:
    """Rounded, as the paper's tables are; empty for NaN."""
    return "" if math.isnan(value) else f"{round(float(value), digits)}"


def spread(values: pd.Series) -> float:
    """Population standard deviation over runs; NaN for a single run, which has none."""
    return float(values.std(ddof=0)) if values.notna().sum() > 1 else math.nan


def mean_std(mean: float, std: float, digits: int) -> str:
    """ "0.989 ± 0.0001"; the mean alone without a spread; empty without a mean."""
    return (
        number(mean, digits)
        if math.isnan(mean) or math.isnan(std)
        else f"{number(mean, digits)} ± {number(std, digits)}"
    )


def thousands(value: float) -> str:
    """8022 -> "8.02K"."""
    return "" if math.isnan(value) else f"{round(float(value) / 1e3, 2):.10g}K"


def millions(value: float) -> str:
    """17111000 -> "17.11M"."""
    return "" if math.isnan(value) else f"{round(float(value) / 1e6, 2):.10g}M"
