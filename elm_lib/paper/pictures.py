"""Points of the paper's figures. It prints no numbers: `published_figures.csv` has them, read off the pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import PUBLISHED
from elm_lib.paper.claims import Score, cell, not_run
from elm_lib.paper.neuronio import AUC, RMSE, TP, published_neuronio
from elm_lib.paper.points import Point, Runs, largest
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
CURVE_COLUMNS = [
    *("panel", "model", "varied", "score", "x", "published"),
    *("mean", "std", "error", "seeds", "diverged", "budget"),  # of ours
]
PATHFINDER_X = Score("test_accuracy", limit=lambda model, size: 0.55)
ADDING = Score("test_accuracy", limit=lambda model, size: 0.2)


def _same(params: Params, x: float) -> object:
    return x


@dataclass(frozen=True)
class Sweep:
    """Which experiment has the points of a curve.

    size    from the x that was read off to the size in params.yaml; None: the experiment has no such point
    seeds   mean or max: what the curve shows of its seeds
    """

    dataset: str
    experiment: str
    score: Score
    size: Callable[[Params, float], object] = _same
    seeds: str = "mean"
    failed_below: float | None = None  # a published score below it is at chance


def _range(low: Callable[[int], int], high: Callable[[int], int]) -> Callable[[Params, float], object]:
    """The range of timescales that a figure names by one of its ends, T."""
    return lambda params, x: json.dumps([low(int(x)), high(int(x))])


LONGEST, CONSTANT, SHORTEST = _range(lambda t: 1, int), _range(int, int), _range(int, lambda t: 150)


def _smallest_tcn(params: Params, x: float) -> object:
    """The width of the TCN that has so many parameters: the paper says only how the smallest one is built."""
    return 128 if x == 9.2e6 else None


# panels of Figure 3 and S3 -> what the experiment's name ends in, and its sizes
ABLATIONS: dict[tuple[str, str], tuple[str, Callable[[Params, float], object]]] = {
    ("a", "d_m (d_mlp=40)"): ("d_m", _same),
    ("b", "d_mlp (d_m=20)"): ("d_mlp", _same),
    ("b", "l_mlp=0"): ("l_mlp", _same),
    ("c", "lambda"): ("lambda", _same),
    ("d", "maximal tau_m"): ("tau_m_max", LONGEST),
    ("e", "constant tau_m"): ("tau_m_constant", CONSTANT),
    ("f", "minimal tau_m"): ("tau_m_min", SHORTEST),
    ("g", "d_tree"): ("d_tree", _same),
    ("h", "d_brch"): ("d_brch", _same),
}
PREFIX = {"ELM": "elm", "Branch-ELM": "branch_elm"}
# Figure S6 -> its experiments
BRANCHES = {
    "random synapse assignment": "branch_elm_random",
    "w_s not learnable": "branch_elm_fixed_w_s",
    "ReLU branch activation": "branch_elm_relu",
    "sigmoid branch activation": "branch_elm_sigmoid",
}


# (figure, panel, model) -> where ours comes from; what is not here has no experiment yet
SWEEPS = {
    ("Fig 2", "b", "TCN"): Sweep("neuronio", "neuronio_tcn", RMSE, _smallest_tcn),
    ("Fig 2", "c", "TCN"): Sweep("neuronio", "neuronio_tcn", AUC, _smallest_tcn),
    ("Fig 4", "c", "TCN"): Sweep("neuronio", "neuronio_tcn", TP, _smallest_tcn),
    ("Fig S2", "a", "Branch-ELM lambda=5"): Sweep("neuronio", "branch_elm_lambda_5", RMSE),
    ("Fig S2", "b", "Branch-ELM lambda=5"): Sweep("neuronio", "branch_elm_lambda_5", AUC),
    ("Fig S2", "c", "Branch-ELM lambda=5"): Sweep("neuronio", "branch_elm_lambda_5", TP),
    ("Fig S4", "a", "Branch-ELM"): Sweep("neuronio", "improved_branch_elm_tau_m_max", AUC, LONGEST),
    ("Fig S4", "b", "ELM"): Sweep("neuronio", "improved_elm_tau_m_constant", AUC, CONSTANT),
    ("Fig S4", "c", "Branch-ELM"): Sweep("neuronio", "improved_branch_elm_lambda", AUC),
    ("Fig S4", "d", "Branch-ELM"): Sweep("neuronio", "improved_branch_elm_d_m", AUC),
    ("Fig S7", "", "LIF"): Sweep("neuronio", "teacher_lif", AUC, seeds="max"),
    ("Fig S7", "", "ALIF"): Sweep("neuronio", "teacher_alif", AUC, seeds="max"),
    ("Fig S7", "", "BioPhys"): Sweep("neuronio", "neuronio_elm", AUC, seeds="max"),
    **{("Fig S6", "", model): Sweep("neuronio", experiment, AUC) for model, experiment in BRANCHES.items()},
    ("Fig 4", "c", "Branch-ELM"): Sweep("neuronio", "neuronio_branch_elm", TP),
    ("Fig 4", "c", "ELM"): Sweep("neuronio", "neuronio_elm", TP),
    ("Fig 4", "c", "LSTM"): Sweep("neuronio", "neuronio_lstm", TP),
    ("Fig 5", "e", "ELM 2 ms"): Sweep("shd", "shd_adding_d_m", ADDING, failed_below=0.2),
    ("Fig 5", "f", "ELM 2 ms"): Sweep("shd", "shd_adding_tau_m", ADDING, LONGEST, failed_below=0.2),
    ("Fig S8", "", "ELM mean"): Sweep("lra", "lra_pathfinder_x_tau_s", PATHFINDER_X),
    ("Fig S8", "", "ELM max"): Sweep("lra", "lra_pathfinder_x_tau_s", PATHFINDER_X, seeds="max"),
}


def sweep_of(figure: str, panel: str, model: str, varied: str) -> Sweep | None:
    """Where ours of a curve comes from; None where there is no experiment for it."""
    if figure in ("Fig 3", "Fig S3"):
        name, size = ABLATIONS[panel, varied]
        return Sweep("neuronio", f"{PREFIX[model]}_{name}", AUC, size)
    return SWEEPS.get((figure, panel, model))


def published_points() -> pd.DataFrame:
    """figure, panel, model, varied, x, score, value_read_off_the_picture: a row each point."""
    return pd.read_csv(PUBLISHED / "published_figures.csv").fillna({"panel": ""})


def read_off(params: Params, lines: pd.DataFrame) -> dict[tuple[str, Any], float]:
    """Published values by (our experiment, size). lines: of `published_points`; those without an experiment are left
    out."""
    found: dict[tuple[str, Any], float] = {}
    for line in lines.to_dict("records"):
        sweep = sweep_of(line["figure"], line["panel"], line["model"], line["varied"])
        if sweep is not None:
            found[sweep.experiment, sweep.size(params, line["x"])] = line["value_read_off_the_picture"]
    return found


def curves(runs: Runs, params: Params, figure: str) -> pd.DataFrame:
    """A published figure's points with ours beside them.

    panel, model, varied, score, x, published; and of ours mean, std (over seeds), error (sampling error), seeds,
    diverged, budget: NaN where nothing was run
    """
    rows = []
    for line in published_points().query("figure == @figure").to_dict("records"):
        sweep = sweep_of(figure, line["panel"], line["model"], line["varied"])
        row = {name: line[name] for name in ("panel", "model", "varied", "score", "x")}
        row |= {"published": line["value_read_off_the_picture"]}
        size = None if sweep is None else sweep.size(params, line["x"])
        point = None if sweep is None or size is None else largest(runs, sweep.experiment, size)
        if sweep is not None and point is not None:
            row |= summary(point, sweep.score, sweep.seeds)
        rows.append(row)
    return pd.DataFrame(rows, columns=CURVE_COLUMNS)


def default_branch_elm(runs: Runs, model: str) -> pd.DataFrame:
    """The Branch-ELM of Table S8 in the columns of `curves`, under the name `model`: what Figures S2 and S6 compare
    with. Its true-positive rates are those of Figure 4c."""
    table = published_neuronio().query("model == 'Branch-ELM'").set_index("size")
    drawn = published_points().query("figure == 'Fig 4' and model == 'Branch-ELM'").set_index("x")
    published = {
        "rmse": (RMSE, table.voltage_rmse_mean),
        "auc": (AUC, table.spike_auc_mean),
        "tp@0.0025": (TP, drawn.value_read_off_the_picture),
    }
    rows = []
    for name, (score, values) in published.items():
        for x, value in values.items():
            point = largest(runs, "neuronio_branch_elm", x)
            row = {"panel": "", "model": model, "varied": "d_m", "score": name, "x": x, "published": value}
            rows.append(row | (summary(point, score) if point else {}))
    return pd.DataFrame(rows, columns=CURVE_COLUMNS)


def summary(point: Point, score: Score, seeds: str = "mean") -> dict[str, float]:
    """What a figure shows of a point: mean, std, error, seeds, diverged, budget."""
    error = point.error(score.column, seeds)
    return {
        "mean": score.unit * point.value(score.column, seeds),
        "std": score.unit * point.std(score.column),
        "error": math.nan if error is None else score.unit * error,
        "seeds": len(point.kept),
        "diverged": len(point.runs) - len(point.kept),
        "budget": point.origin.budget,
    }


def best_auc(runs: Runs, experiment: str, size: object) -> float:
    """AUC of a point that the paper mentions without a picture, the best of its seeds; NaN where it was not run."""
    point = largest(runs, experiment, size)
    return point.value(AUC.column, "max") if point else math.nan


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row for each point that was read off a picture."""
    rows = []
    keys = ["figure", "panel", "model", "varied", "score"]
    for (figure, panel, model, varied, score), lines in published_points().groupby(keys, sort=False):
        values = lines.set_index("x").value_read_off_the_picture
        tolerances = separation(values, READING_ERROR.get(score, 0.001))
        sweep = sweep_of(figure, panel, model, varied)
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
