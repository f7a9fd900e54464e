"""Points of the paper's figures. It prints no numbers: `published_figures.csv` has them, read off the pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import PUBLISHED
from elm_lib.paper.claims import Score, cell, not_run
from elm_lib.paper.neuronio import TP
from elm_lib.paper.points import Runs, largest
from elm_lib.paper.verdict import READ_OFF, Verdict, separation

SHOWN = {
    "auc": "AUC",
    "rmse": "RMSE (mV)",
    "tp@0.0025": "true-positive rate at false-positive rate 0.0025",
    "auc best of 3": "AUC, best of 3",
    "accuracy": "accuracy",
    "test accuracy": "test accuracy",
}
READING_ERROR = {"auc": 0.0001, "auc best of 3": 0.0001}  # of the other scores 0.001
PATHFINDER_X = Score("test_accuracy", limit=lambda model, size: 0.55)
ADDING = Score("test_accuracy", limit=lambda model, size: 0.2)


@dataclass(frozen=True)
class Sweep:
    """Which experiment has the points of a curve.

    size    from the x that was read off to the size in params.yaml; None: the experiment has no such point
    seeds   mean or max: what the curve shows of its seeds
    """

    dataset: str
    experiment: str
    score: Score
    size: Callable[[Params, float], object] = lambda params, x: x
    seeds: str = "mean"
    failed_below: float | None = None  # a published score below it is at chance


def _tau_m_range(params: Params, longest: float) -> object:
    """The range of initial timescales that ends, as the bound does, at `longest` (ms)."""
    experiment = params.experiment("shd_adding_tau_m")
    for value in experiment.values:
        model = experiment.model_at(value)
        if model["tau_m_range"][-1] == model["tau_m_bounds"][-1] == longest:
            return json.dumps(value) if isinstance(value, list) else value
    return None


# (figure, panel, model) -> where ours comes from; what is not here has no experiment yet
SWEEPS = {
    ("Fig 4", "c", "Branch-ELM"): Sweep("neuronio", "neuronio_branch_elm", TP),
    ("Fig 4", "c", "ELM"): Sweep("neuronio", "neuronio_elm", TP),
    ("Fig 4", "c", "LSTM"): Sweep("neuronio", "neuronio_lstm", TP),
    ("Fig 5", "e", "ELM 2 ms"): Sweep("shd", "shd_adding_d_m", ADDING, failed_below=0.2),
    ("Fig 5", "f", "ELM 2 ms"): Sweep("shd", "shd_adding_tau_m", ADDING, _tau_m_range, failed_below=0.2),
    ("Fig S8", "", "ELM mean"): Sweep("lra", "lra_pathfinder_x_tau_s", PATHFINDER_X),
    ("Fig S8", "", "ELM max"): Sweep("lra", "lra_pathfinder_x_tau_s", PATHFINDER_X, seeds="max"),
}


def published_points() -> pd.DataFrame:
    """figure, panel, model, varied, x, score, value_read_off_the_picture: a row each point."""
    return pd.read_csv(PUBLISHED / "published_figures.csv").fillna({"panel": ""})


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row for each point that was read off a picture."""
    rows = []
    keys = ["figure", "panel", "model", "varied", "score"]
    for (figure, panel, model, varied, score), lines in published_points().groupby(keys, sort=False):
        values = lines.set_index("x").value_read_off_the_picture
        tolerances = separation(values, READING_ERROR.get(score, 0.001))
        sweep = SWEEPS.get((figure, panel, model))
        for x, published in values.items():
            item = f"{panel + ') ' if panel else ''}{model}, {_varied(varied, x)}: {SHOWN[score]}"
            where = {"profile": profile, "tolerance": tolerances[x], "note": READ_OFF}
            size = sweep and sweep.size(params, x)
            if sweep is None or size is None:
                rows.append(not_run(figure, item, published, **where))
                continue
            failed = sweep.failed_below if sweep.failed_below and published < sweep.failed_below else None
            point = largest(runs, sweep.experiment, size)
            where |= {"dataset": sweep.dataset, "seeds": sweep.seeds, "failed_below": failed}
            rows.append(cell(figure, item, published, point, sweep.score, **where))
    return rows


def _varied(varied: str, x: float) -> str:
    """ "d_m (d_mlp=40)" at 5 -> "d_m=5 (d_mlp=40)"; "l_mlp=0" says its value itself."""
    name, _, rest = varied.partition(" (")
    return name if "=" in name else f"{name}={x:.10g}" + (f" ({rest}" if rest else "")
