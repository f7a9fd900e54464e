"""From a `Claim`, a published score or a count to its row of the verdict table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from elm_lib.paper import bootstrap
from elm_lib.paper.points import Point, Runs, points
from elm_lib.paper.verdict import FULL, Claim, Origin, Verdict, judge

Side = dict[Any, Point]  # by size
Limit = Callable[[str, Any], float]  # (model, size) -> the score above which something was learned


@dataclass(frozen=True)
class Score:
    """A score as it stands in a table of runs.

    column   of the runs; unit: what it is multiplied by to be the published number (100: percent)
    limit    of `skill` (a column; by default the score itself), above which a model has learned something
    """

    column: str
    limit: Limit
    unit: float = 1.0
    lower_is_better: bool = False
    skill: str | None = None

    def learned(self, model: str, side: Side) -> bool:
        """Whether the points of a side, on average, lie above chance."""
        if self.skill and not any(self.skill in point.runs for point in side.values()):
            return True
        unit = 1.0 if self.skill else self.unit
        skills = [unit * p.value(self.skill or self.column) - self.limit(model, size) for size, p in side.items()]
        return float(np.mean(skills)) > 0

    def learned_published(self, model: str, values: Mapping[Any, float]) -> bool:
        """The same of published scores by size; what is not published counts as learned."""
        known = [value - self.limit(model, size) for size, value in values.items() if value == value]
        return bool(self.skill) or not known or float(np.mean(known)) > 0


def cell(
    claim: str,
    item: str,
    published: float,
    point: Point | None,
    score: Score,
    tolerance: float,
    *,
    dataset: str,
    profile: str,
    seeds: str = "mean",
    failed_below: float | None = None,
    note: str = "",
) -> Verdict:
    """The row of one published score.

    point          the runs behind ours, None when there are none
    seeds          mean or max: what the published number is over its seeds
    failed_below   where the published model learned nothing: the score below which ours has learned nothing either.
                   Then that is judged, and only with the full budget, as everything that has not been trained fails
    """
    if point is None:
        return not_run(claim, item, published, profile=profile, tolerance=tolerance, note=note)
    ours, origin = score.unit * point.value(score.column, seeds), point.origin
    error = point.error(score.column, seeds)
    error = None if error is None else score.unit * error
    if failed_below is None:
        distance = (published - ours if score.lower_is_better else ours - published) + tolerance
    else:
        distance, tolerance = failed_below - ours, failed_below - published
        note = _join(note, "published at chance: ours is judged on whether it is at chance too")
    scored = not (math.isnan(ours) and len(point.kept))  # a test set without a spike, say, has no AUC
    untrained = failed_below is not None and distance >= 0 and origin.budget < FULL
    verdict = judge(
        distance=distance,
        error=error,
        budget=origin.budget,
        likeness=origin.likeness(dataset),
        silent=untrained or not scored,
    )
    return Verdict(
        claim=claim,
        item=item,
        verdict=verdict,
        origin=origin,
        published=published,
        ours=ours,
        std=score.unit * point.std(score.column),
        sampling_error=error,
        seeds=len(point.kept),
        tolerance=tolerance,
        note=_join(note, _diverged([point]), "" if scored else "no score on this test set"),
    )


def not_run(claim: str, item: str, published: float, *, profile: str, tolerance=math.nan, note: str = "") -> Verdict:
    """The row of what has no finished run."""
    return Verdict(
        claim=claim,
        item=item,
        verdict="not run",
        origin=Origin(profile=profile),
        published=published,
        tolerance=tolerance,
        seeds=0,
        note=note,
    )


def count(
    claim: str, item: str, published: float, ours: float, relative: float, *, profile: str, note: str = ""
) -> Verdict:
    """The row of a count, which needs no training. relative: tolerance as a fraction of the published count."""
    good = abs(ours - published) <= relative * published
    return Verdict(
        claim=claim,
        item=item,
        verdict="reproduced" if good else "not reproduced",
        origin=Origin(profile=profile),
        published=published,
        ours=ours,
        tolerance=relative * published,
        note=note,
    )


def claim_row(
    label: str,
    claim: Claim,
    runs: Runs,
    experiments: Mapping[str, str],
    published: Mapping[tuple[str, Any], float],
    score: Score,
    *,
    dataset: str,
    profile: str,
) -> Verdict:
    """The row of a claim.

    label        Fig 2, Tab 1, ...
    experiments  model -> experiment; published: (model, size) -> published score
    The sides are taken at the largest budget that all of them have; without one, at those whose smallest is largest.
    """
    theirs = [{size: published.get((model, size), math.nan) for size in bins} for model, bins in _sides(claim)]
    expected = claim.margin(*(_over(claim, list(values.values())) for values in theirs))
    available = [{size: points(runs, experiments[model], size) for size in bins} for model, bins in _sides(claim)]
    sides = choose(available, claim)
    if sides is None:
        return not_run(label, claim.text, expected, profile=profile, tolerance=claim.tolerance, note=claim.note)
    every = [point for side in sides for point in side.values()]
    origin = Origin.join([point.origin for point in every])
    margin = float(claim.margin(*(_over(claim, _values(score, side, claim)) for side in sides)))
    error = _paired_error(claim, sides, score)
    distance = margin + claim.tolerance
    if not claim.says_failure and not score.learned(claim.models[0], sides[0]):
        distance = math.nan  # to be better than another, it must be something
    budgets = [min(point.origin.budget for point in side.values()) for side in sides]
    other = min((b for model, b in zip(claim.models, budgets, strict=True) if model != claim.models[0]), default=None)
    reasons = _learned_nothing(claim, sides, theirs, score, origin)
    if other is not None and distance >= 0 and _unfair(claim, budgets[0], other):
        reasons.append(f"{claim.models[not claim.says_failure]} had less training")
    return Verdict(
        claim=label,
        item=claim.text,
        verdict=judge(
            distance=distance,
            error=error,
            budget=origin.budget,
            likeness=origin.likeness(dataset),
            comparison=True,
            silent=bool(reasons),
        ),
        origin=origin,
        published=expected,
        ours=margin,
        tolerance=claim.tolerance,
        seeds=min(len(point.kept) for point in every),
        sampling_error=error,
        budget_ours=math.nan if other is None else budgets[0],
        budget_theirs=math.nan if other is None else other,
        note=_join(claim.note, _bins_note(claim, sides), _diverged(every), *reasons),
    )


def choose(available: list[dict[Any, dict[float, Point]]], claim: Claim) -> list[Side] | None:
    """Of each side the points at one budget: the largest that all sides have, else those whose smallest is largest."""
    every = [sorted({b for budgets in side.values() for b in budgets}, reverse=True) for side in available]
    equal = [(budget,) * len(every) for budget in sorted(set().union(*every), reverse=True)]
    unequal = sorted(itertools.product(*every), key=lambda budgets: (min(budgets), sum(budgets)), reverse=True)
    for budgets in (*equal, *unequal):
        sides = [
            {size: found[budget] for size, found in side.items() if budget in found}
            for side, budget in zip(available, budgets, strict=True)
        ]
        for bins in set(claim.bins):  # sides of the same bins: those that all ran
            alike = [side for side, own in zip(sides, claim.bins, strict=True) if own == bins]
            common = set.intersection(*(set(side) for side in alike))
            for side in alike:
                for size in set(side) - common:
                    del side[size]
        complete = all(len(side) == len(bins) for side, bins in zip(sides, claim.bins, strict=True))
        if all(sides) and (complete or not claim.whole):
            return sides
    return None


def _sides(claim: Claim):
    return zip(claim.models, claim.bins, strict=True)


def _over(claim: Claim, values: list) -> Any:
    return getattr(np, claim.over)(np.stack([np.asarray(value, float) for value in values]), axis=0)


def _values(score: Score, side: Side, claim: Claim) -> list[float]:
    return [score.unit * point.value(score.column, claim.seeds) for point in side.values()]


def _learned_nothing(claim: Claim, sides: list[Side], theirs: list[dict], score: Score, origin: Origin) -> list[str]:
    """Which sides learned nothing, though the claim says something only if they did.

    With the full budget, a model that learned nothing in the paper either is no surprise.
    """
    found = []
    for index in claim.learned:
        model = claim.models[index]
        failed_too = origin.budget >= FULL and not score.learned_published(model, theirs[index])
        if not score.learned(model, sides[index]) and not failed_too:
            found.append(f"{model} learned nothing")
    return found


def _paired_error(claim: Claim, sides: list[Side], score: Score) -> float | None:
    """Of the margin, over test sets drawn again, the same for all sides; None when a run kept no statistics."""
    values = []
    for side in sides:
        each = [point.replicates(score.column, claim.seeds) for point in side.values()]
        if any(one is None for one in each):
            return None
        values.append(_over(claim, [score.unit * one for one in each if one is not None]))
    return bootstrap.error(claim.margin(*values))


def _unfair(claim: Claim, first: float, other: float) -> bool:
    """Whether the side that comes out as claimed owes it, perhaps, to its training."""
    less, more = (first, other) if claim.says_failure else (other, first)
    return less < FULL and less < more * (1 - 1e-6)


def _bins_note(claim: Claim, sides: list[Side]) -> str:
    used = list(dict.fromkeys(size for side in sides for size in side))
    named = list(dict.fromkeys(size for bins in claim.bins for size in bins))
    return "" if len(used) == len(named) else f"at {', '.join(map(str, used))} alone"


def _diverged(every: list[Point]) -> str:
    number = sum(len(point.runs) - len(point.kept) for point in every)
    return f"{number} diverged, left out" if number else ""


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
