"""Everything that the paper claims beside what we found: the verdict table and the numbers of metrics.json."""

from __future__ import annotations

from typing import Any

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import (
    crossing,
    follow_up,
    items,
    lra,
    lra_claims,
    neuronio,
    neuronio_claims,
    pictures,
    settings,
    shd,
    shd_claims,
)
from elm_lib.paper.points import Runs, table_of
from elm_lib.paper.verdict import TERMS, frame, kind


def report(runs: Runs, params: Params, profile: str | None = None) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The verdict table (columns `verdict.COLUMNS`, in the order of the paper), and `summary` of it.

    runs     experiment -> a row each finished run, as `elm_lib.experiments.ledger.read` gives them
    profile  named in the rows without a run; by default that of most runs, or of params
    """
    profile = profile or _profile(runs) or params.profile
    rows = [
        *neuronio.verdicts(runs, params, profile),
        *crossing.verdicts(runs, params, profile),
        *neuronio_claims.verdicts(runs, params, profile),
        *shd.verdicts(runs, params, profile),
        *shd_claims.verdicts(runs, params, profile),
        *follow_up.verdicts(runs, params, profile),
        *lra.verdicts(runs, params, profile),
        *lra_claims.verdicts(runs, profile),
        *pictures.verdicts(runs, params, profile),
        *settings.verdicts(params, profile),
        *items.verdicts(profile),
    ]
    found = frame(sorted(rows, key=lambda row: items.order(row.claim)))
    return found, summary(found, runs)


def _profile(runs: Runs) -> str:
    """That of most runs; empty without a run."""
    every = pd.concat([frame.profile for frame in runs.values() if len(frame)] or [pd.Series(dtype=str)])
    return str(every.mode().iloc[0]) if len(every) else ""


def summary(verdicts: pd.DataFrame, runs: Runs) -> dict[str, Any]:
    """What `dvc metrics` shows: the scores of each experiment and size, and how many verdicts of each kind."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for experiment, (_, model) in neuronio.MODELS.items():
        table = neuronio.neuronio_table(table_of(runs, experiment), model).dropna(subset=["auc_mean"])
        scores[experiment] = {
            str(size): {"auc": round(auc, 6), "rmse": round(rmse, 6)}
            for size, auc, rmse in zip(table["size"], table.auc_mean, table.rmse_mean, strict=True)
        }
    for name in shd.SETS:
        for experiment in shd.EXPERIMENTS[name]:
            scores[experiment] = _accuracies(table_of(runs, experiment))
    for experiment in (
        *lra.MODELS.values(),
        *lra_claims.SWEEPS.values(),
        *shd_claims.SWEEPS,
        *shd_claims.OURS.values(),
        follow_up.EXPERIMENTS[follow_up.NETWORK],
    ):
        scores[experiment] = _accuracies(table_of(runs, experiment))
    kinds = verdicts.verdict.map(kind).value_counts()
    return {"scores": scores, "verdicts": {name: int(kinds.get(name, 0)) for name in TERMS}}


def _accuracies(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    table = lra.averages(runs, unit=1).dropna(subset=["test_mean"])
    return {str(size): {"accuracy": round(mean, 6)} for size, mean in zip(table["size"], table.test_mean, strict=True)}
