"""Whether a model that came out worse had enough training to show what it can do.

A model trained for a quarter of the published steps may be worse only for want of steps. It is not where the better one
passes it within as many: then the better one, too, had no more. Learning curves of the ledger say when that was. They
are of a run whose learning rate was still high at that step, which is to the disadvantage of the better one.
"""

from __future__ import annotations

import math

from elm_lib.paper import FULL
from elm_lib.paper.points import Point

VALID = "valid_accuracy"  # of the curve, and of the run's selected weights


def needed(point: Point, accuracy: float) -> float:
    """The budget after which the validation accuracy of every seed is above `accuracy`; infinite where one never is.

    A run without a curve needed all that it had.
    """
    return max((_needed(run, accuracy) for _, run in point.kept.iterrows()), default=math.inf)


def _needed(run, accuracy: float) -> float:
    curve = run.get("curve")
    if not isinstance(curve, dict) or VALID not in curve:
        return float(run.budget) if run.get(VALID, math.nan) > accuracy else math.inf
    passed = [step for step, value in zip(curve["step"], curve[VALID], strict=True) if value > accuracy]
    return float(run.budget) * passed[0] / curve["step"][-1] if passed else math.inf


def passes(better: Point, worse: Point, chance: float) -> float:
    """The budget after which `better` is above `worse`, and above `chance`, in validation."""
    own = worse.value(VALID)
    return needed(better, max(chance, own) if own == own else chance)


def is_fair(better: Point, worse: Point, chance: float) -> bool:
    """Whether `worse` had as much training as `better`, or as much as `better` needed to pass it."""
    had = worse.origin.budget
    return had >= FULL or had >= better.origin.budget * FULL or passes(better, worse, chance) <= had * (1 + 1e-9)


def has_enough(better: Point, worse: Point, chance: float) -> bool:
    """Whether `worse`, which may be at chance, had as much training as `better` needed to pass it."""
    return passes(better, worse, chance) <= worse.origin.budget * (1 + 1e-9)
