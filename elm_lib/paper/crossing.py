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
        ours = _parameters(side)
        if not math.isnan(ours):
            distance = (1 + RELATIVE) * expected - ours
            return _row(item, profile, [side], expected, ours, distance, _error(side))
    return _open(item, profile, expected, budgets)


def _factor(runs: Runs, params: Params, profile: str, more: str, fewer: str, said: int) -> Verdict:
    item = f"c) {fewer} needs fewer parameters than {more} for AUC {SUFFICIENT_AUC}, by a factor of about {said}"
    expected, few = published(more) / published(fewer), _sides(runs, params, fewer)
    many = {budget: {} for budget in few} if more == "TCN" else _sides(runs, params, more)
    for budget in (budget for budget in few if budget in many):
        side, other = few[budget], many[budget]
        ours = (published(more) if more == "TCN" else _parameters(other)) / _parameters(side)
        if not math.isnan(ours):
            distance = ours - (1 - RELATIVE) * expected
            note = "parameters of the TCN as published" if more == "TCN" else ""
            sides = [side, other] if other else [side]
            return _row(item, profile, sides, expected, ours, distance, _error(side, other), note)
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


def _parameters(side: Side) -> float:
    """`reached` of the scores of a side."""
    sizes, every = _by_parameters(side)
    return float(reached(sizes, np.array([point.value(AUC.column) for point in every])))


def _replicates(side: Side) -> np.ndarray | None:
    """The same over test sets drawn again; the largest size where none reaches it. None: a run kept no statistics."""
    sizes, every = _by_parameters(side)
    each = [values for point in every if (values := point.replicates(AUC.column)) is not None]
    if len(each) < len(every):
        return None
    found = reached(sizes, np.stack(each))
    return np.where(np.isnan(found), sizes[-1], found)


def _by_parameters(side: Side) -> tuple[np.ndarray, list[Point]]:
    """Numbers of parameters, rising, and the points that have them."""
    every = sorted(side.values(), key=lambda point: point.runs.parameters.iloc[0])
    return np.array([float(point.runs.parameters.iloc[0]) for point in every]), every


def _error(side: Side, other: Side | None = None) -> float | None:
    """Sampling error of the parameters of a side, or of the factor between two."""
    own, theirs = _replicates(side), _replicates(other) if other else None
    if own is None or (other and theirs is None):
        return None
    return bootstrap.error(own if theirs is None else theirs / own)


def _row(item, profile, sides: list[Side], expected, ours, distance, error, note: str = "") -> Verdict:
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
        tolerance=RELATIVE * expected,
        sampling_error=error,
        seeds=min(len(point.kept) for point in every),
        note=note,
    )


def _open(item: str, profile: str, expected: float, *sides: dict[float, Side]) -> Verdict:
    ran = all(sides) and any(any(side.values()) for side in sides)
    note = f"no size that ran reaches {SUFFICIENT_AUC}" if ran else "needs two sizes of equal training"
    return not_run("Fig 2", item, expected, profile=profile, tolerance=RELATIVE * expected, note=note)
