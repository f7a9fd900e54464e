"""Scores that can be: what a file or a table of runs says is held to the range of each score before it is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from elm_lib.support.errors import DataError

# part of a score's name -> the least and the most that it can be
RANGES = {
    "auc": (0.0, 1.0),
    "accuracy": (0.0, 1.0),
    "tp_at": (0.0, 1.0),
    "rmse": (0.0, math.inf),  # mV
    "mae": (0.0, math.inf),  # mV
    "explained_variance": (-math.inf, 100.0),  # %
}
ROUNDING = 1e-9


def check_scores(where: str, scores: Mapping[str, Any]) -> None:
    """Raise DataError for the first score that is no number, infinite, or out of its range. NaN: it is not defined."""
    for name, value in scores.items():
        low, high = next((limits for part, limits in RANGES.items() if part in name), (-math.inf, math.inf))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{where}: {name} = {value!r} is no number: take the file from git again, or train again")
        if math.isinf(value) or value < low - ROUNDING or value > high + ROUNDING:
            raise DataError(
                f"{where}: {name} = {value!r} is not between {low:g} and {high:g}: take the file from git "
                "again, or delete it and train the run again"
            )


def check_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The same table. Raises DataError for a score as above, or for a run that it lists twice."""
    scored = [name for name in runs.columns if any(part in name for part in RANGES)]
    for row in runs.to_dict("records"):
        where = f"run of {row['experiment']}, size {row['size']}, seed {row['seed']}"
        check_scores(where, {name: float(row[name]) for name in scored if row[name] is not None})
    same = pd.Series([str((r["size"], r["seed"], f"{r['budget']:.6g}")) for r in runs.to_dict("records")], dtype=object)
    if same.duplicated().any():
        row = runs[same.duplicated().to_numpy()].iloc[0]
        raise DataError(
            f"run of {row.experiment}, size {row['size']}, seed {row.seed} is listed twice: keep one of them"
        )
    return runs
