"""Figure 2c in numbers: with how many parameters a model predicts spikes well enough, and by what factor models differ.

A model's AUC reaches 0.991 between two of its sizes. The number of parameters there is interpolated between these two,
linearly in AUC and in the logarithm of the number. The same rule on the published AUCs gives the factors of the paper's
text: 6, 7 and 200.
"""

from __future__ import annotations

import math

import numpy as np

from elm_lib.experiments.config import Params
from elm_lib.paper import bootstrap
from elm_lib.paper.claims import not_run
from elm_lib.paper.neuronio import AUC, EXPERIMENTS, SUFFICIENT_AUC, published_neuronio
from elm_lib.paper.pictures import published_points
from elm_lib.paper.points import Point, Runs, points
from elm_lib.paper.verdict import Origin, Verdict, judge

RELATIVE = 0.15  # tolerance: neighbouring Branch-ELMs, the densest sizes, differ by 17 % in parameters
# who needs more parameters, who fewer, and the factor in the paper's text
FACTORS = (("LSTM", "ELM", 6), ("ELM", "Branch-ELM", 7), ("TCN", "ELM", 200))
Side = dict[int, Point]  # by size


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row each model with sizes on both sides of the limit, and a row each factor."""
    return [
        *(_size(runs, params, profile, model) for model in EXPERIMENTS),
        *(_factor(runs, params, profile, *factor) for factor in FACTORS),
    ]


def reached(parameters: np.ndarray, auc: np.ndarray) -> np.ndarray:
    """Parameters at which the AUC first reaches 0.991.

    parameters  (sizes,), rising
    auc         (sizes, ..)
    Returns     (..): the smallest size where all reach it, NaN where none does
    """
    enough = auc >= SUFFICIENT_AUC
    first = enough.argmax(axis=0)
    last = np.maximum(first - 1, 0)
    low, high = (np.take_along_axis(auc, index[None], axis=0)[0] for index in (last, first))
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(first == last, 0.0, (SUFFICIENT_AUC - low) / (high - low))
    log = np.log(parameters)
    found = np.exp(log[last] + part * (log[first] - log[last]))
    return np.where(enough.any(axis=0), found, math.nan)


def published(model: str) -> float:
    """The same of the published AUCs. The TCN has no size below: its smallest counts."""
    if model == "TCN":
        drawn = published_points().query("figure == 'Fig 2' and panel == 'c' and model == 'TCN'")
        return float(drawn[drawn.value_read_off_the_picture >= SUFFICIENT_AUC].x.min())
    table = published_neuronio().query("model == @model").sort_values("trainable_parameters")
    return float(reached(table.trainable_parameters.to_numpy(), table.spike_auc_mean.to_numpy()))


def _size(runs: Runs, params: Params, profile: str, model: str) -> Verdict:
    item, expected = f"c) {model}: parameters at which AUC reaches {SUFFICIENT_AUC}", published(model)
    budgets = _sides(runs, params, model)
    for side in budgets.values():
        values, error = _parameters(side), _error(side)
        if not math.isnan(values):
            distance = (1 + RELATIVE) * expected - values
            return _row(item, profile, [side], expected, values, distance, error, RELATIVE * expected)
    return _open(item, profile, expected, budgets)


def _factor(runs: Runs, params: Params, profile: str, more: str, fewer: str, said: int) -> Verdict:
    item = f"c) {fewer} needs fewer parameters than {more} for AUC {SUFFICIENT_AUC}, by a factor of about {said}"
    expected, few = published(more) / published(fewer), _sides(runs, params, fewer)
    many = {budget: {} for budget in few} if more == "TCN" else _sides(runs, params, more)
    for budget in (budget for budget in few if budget in many):
        side, other = few[budget], many[budget]
        ours = (published(more) if more == "TCN" else _parameters(other)) / _parameters(side)
        if not math.isnan(ours):
            error = _error(side, *([other] if other else []))
            distance = ours - (1 - RELATIVE) * expected
            note = "parameters of the TCN as published" if more == "TCN" else ""
            sides = [side, other] if other else [side]
            return _row(item, profile, sides, expected, ours, distance, error, RELATIVE * expected, note)
    return _open(item, profile, expected, few, many)


def _sides(runs: Runs, params: Params, model: str) -> dict[float, Side]:
    """A model's points by budget, the largest first; budgets at which a single size ran say nothing."""
    experiment = EXPERIMENTS[model]
    found: dict[float, Side] = {}
    for size in params.experiments[experiment].values:
        for budget, point in points(runs, experiment, size).items():
            if len(point.kept):
                found.setdefault(budget, {})[size] = point
    return {budget: found[budget] for budget in sorted(found, reverse=True) if len(found[budget]) > 1}


def _parameters(side: Side, draws: bool = False) -> float | np.ndarray:
    """`reached` of the scores of a side, or of their replicates."""
    every = sorted(side.values(), key=lambda point: point.runs.parameters.iloc[0])
    parameters = np.array([float(point.runs.parameters.iloc[0]) for point in every])
    if not draws:
        return float(reached(parameters, np.array([point.value(AUC.column) for point in every])))
    replicates = [point.replicates(AUC.column) for point in every]
    if any(one is None for one in replicates):
        return np.array([])
    found = reached(parameters, np.stack([one for one in replicates if one is not None]))
    return np.where(np.isnan(found), parameters[-1], found)  # test sets on which no size reaches it


def _error(side: Side, other: Side | None = None) -> float | None:
    """Sampling error of the parameters of a side, or of the factor between two."""
    each = [np.asarray(_parameters(one, draws=True)) for one in (side, other) if one is not None]
    if any(not one.size for one in each):
        return None
    return bootstrap.error(each[0] if other is None else each[1] / each[0])


def _row(item, profile, sides: list[Side], expected, ours, distance, error, tolerance, note: str = "") -> Verdict:
    every = [point for side in sides for point in side.values()]
    origin = Origin.join([point.origin for point in every])
    verdict = judge(
        distance=distance,
        error=error,
        budget=origin.budget,
        likeness=origin.likeness("neuronio"),
        comparison=len(sides) > 1,
    )
    return Verdict(
        claim="Fig 2",
        item=item,
        verdict=verdict,
        origin=origin,
        published=expected,
        ours=ours,
        tolerance=tolerance,
        sampling_error=error,
        seeds=min(len(point.kept) for point in every),
        note=note,
    )


def _open(item: str, profile: str, expected: float, *sides: dict[float, Side]) -> Verdict:
    ran = all(sides) and any(any(side.values()) for side in sides)
    note = f"no size that ran reaches {SUFFICIENT_AUC}" if ran else "needs two sizes of equal training"
    return not_run("Fig 2", item, expected, profile=profile, tolerance=RELATIVE * expected, note=note)
