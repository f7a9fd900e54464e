"""The runs behind a point of a table or figure: one experiment, one size, one budget, every seed."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from elm_lib.experiments.ledger import RUN_COLUMNS
from elm_lib.experiments.scores import check_runs
from elm_lib.paper import bootstrap
from elm_lib.paper.tables import spread
from elm_lib.paper.verdict import Origin
from elm_lib.support.errors import DataError

Runs = Mapping[str, pd.DataFrame]  # experiment -> a row each finished run; see elm_lib.experiments.ledger


@dataclass(frozen=True)
class Point:
    """Runs of one size at one budget, a row each seed."""

    runs: pd.DataFrame

    @cached_property
    def kept(self) -> pd.DataFrame:
        """Those that did not diverge."""
        return self.runs[~self.runs.diverged.astype(bool)]

    @cached_property
    def origin(self) -> Origin:
        return origin(self.runs)

    def value(self, column: str, seeds: str = "mean") -> float:
        """Mean (or max) of a score over the seeds; NaN where all diverged or none has it."""
        values = self._values(column)
        return float(values.agg(seeds)) if len(values) else math.nan

    def std(self, column: str) -> float:
        """Standard deviation over the seeds (population, so that one seed has 0)."""
        values = self._values(column)
        return spread(values)

    def replicates(self, column: str, seeds: str = "mean") -> np.ndarray | None:
        """The same over test sets drawn again, (`bootstrap.RESAMPLES`,); None where a run kept no statistics."""
        paths = [Path(path) if isinstance(path, str | Path) else None for path in self.kept.get("statistics", [])]
        if not paths or None in paths:
            return None
        each = [bootstrap.replicates(path, column) for path in paths if path is not None]
        if any(values is None for values in each):
            return None
        return getattr(np, seeds)(np.stack([values for values in each if values is not None]), axis=0)

    def error(self, column: str, seeds: str = "mean") -> float | None:
        """Sampling error of `value`; None where it is not known."""
        return bootstrap.error(self.replicates(column, seeds))

    def _values(self, column: str) -> pd.Series:
        return self.kept[column].astype(float).dropna() if column in self.kept else pd.Series(dtype=float)


def origin(runs: pd.DataFrame) -> Origin:
    """Where runs come from. Raises DataError when they differ in their data: a table never mixes them."""
    data = sorted(set(_data(runs)))
    if len(data) > 1:
        raise DataError(f"runs of {runs.experiment.iloc[0]} differ in their data: {data}: plan one kind in a profile")
    joined = {name: "; ".join(dict.fromkeys(map(str, runs[name]))) for name in ("profile", "device")}
    return Origin(budget=float(min(runs.budget)), data=data[0], **joined)


def _data(runs: pd.DataFrame) -> list[str]:
    """Of each run: real, generated (exact), stand-in, ..."""
    return [
        f"{source} ({morphology})" if source != "real" and isinstance(morphology, str) and morphology else str(source)
        for source, morphology in zip(runs.source, runs.morphology, strict=True)
    ]


def table_of(runs: Runs, experiment: str) -> pd.DataFrame:
    """The runs of an experiment, checked; an empty table for one that the profile does not plan.

    Raises DataError for a score that cannot be, or a run that is listed twice.
    """
    types = {name: bool if name == "diverged" else object for name in RUN_COLUMNS}
    if experiment in runs:
        return _once_checked(runs[experiment])
    return pd.DataFrame({k: pd.Series(dtype=v) for k, v in types.items()})


_checked: dict[int, weakref.ref[pd.DataFrame]] = {}


def _once_checked(runs: pd.DataFrame) -> pd.DataFrame:
    """The same table. It is checked at its first use: a report asks for each table hundreds of times."""
    known = _checked.get(id(runs))
    if known is None or known() is not runs:
        check_runs(runs)
        _checked[id(runs)] = weakref.ref(runs)
    return runs


def points(runs: Runs, experiment: str, size) -> dict[float, Point]:
    """By budget, the largest first; empty where nothing of that size was run."""
    frame = table_of(runs, experiment)
    if not len(frame):
        return {}
    frame = frame[frame["size"].map(lambda value: value == size)]
    budgets = frame.budget.map(lambda budget: float(f"{budget:.6g}"))  # a quotient, which may differ in its last bit
    return {budget: Point(frame[budgets == budget]) for budget in sorted(set(budgets), reverse=True)}


def largest(runs: Runs, experiment: str, size) -> Point | None:
    """The point of the largest budget, None where nothing of that size was run."""
    return next(iter(points(runs, experiment, size).values()), None)


def fullest(frame: pd.DataFrame) -> pd.DataFrame:
    """Of a table of runs, those of each size's largest budget."""
    return frame[frame.budget >= frame.groupby("size").budget.transform("max") * (1 - 1e-6)] if len(frame) else frame


def describe(*runs: pd.DataFrame) -> str:
    """Where the numbers of a figure come from, in one line. Experiments without runs are left out."""
    where = [origin(part) for frame in runs if len(frame) for _, part in frame.groupby([_data(frame), frame.budget])]
    if not where:
        return "not run yet under this profile"
    joined, budgets = Origin.join(where), [found.budget for found in where]
    share = " to ".join(dict.fromkeys(f"{100 * budget:.3g}" for budget in (min(budgets), max(budgets))))
    return f"profile {joined.profile}, {joined.data} data, {joined.device}, {share} % of the published optimiser budget"
