"""From a `Claim`, a published score or a count to its row of the verdict table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elm_lib.paper import FULL, bootstrap, training
from elm_lib.paper.points import Point, Runs, points
from elm_lib.paper.verdict import Claim, Origin, Verdict, judge, percent

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
    score: Score | Mapping[str, Score],
    *,
    dataset: str,
    profile: str,
) -> Verdict:
    """The row of a claim.

    label        Fig 2, Tab 1, ...
    experiments  model -> experiment; published: (model, size) -> published score
    score        of every side, or by model
    The sides are taken at the largest budget that all of them have; without one, at those whose smallest is largest.
    """
    scores = [score if isinstance(score, Score) else score[model] for model in claim.models]
    theirs = [{size: published.get((model, size), math.nan) for size in bins} for model, bins in _sides(claim)]
    expected = claim.margin(*(_over(claim, list(values.values())) for values in theirs))
    available = [{size: points(runs, experiments[model], size) for size in bins} for model, bins in _sides(claim)]
    sides, said = _by_steps(available, claim, scores) if claim.by_steps else (choose(available, claim), "")
    if sides is None:
        row = not_run(label, claim.text, expected, profile=profile, tolerance=claim.tolerance)
        ran = [next(iter(found.values())) for side in available for found in side.values() if found]
        if not said:
            return replace(row, note=claim.note)
        origin = Origin.join([point.origin for point in ran])
        return replace(row, verdict="inconclusive", origin=origin, note=_join(claim.note, said))
    every = [point for side in sides for point in side.values()]
    origin = Origin.join([point.origin for point in every])
    values = [_over(claim, _values(own, side, claim)) for own, side in zip(scores, sides, strict=True)]
    margin = float(claim.margin(*values))
    error = _paired_error(claim, sides, scores)
    distance = margin + claim.tolerance
    if not claim.says_failure and not scores[0].learned(claim.models[0], sides[0]):
        distance = math.nan  # to be better than another, it must be something
    budgets = [min(point.origin.budget for point in side.values()) for side in sides]
    other = min((b for model, b in zip(claim.models, budgets, strict=True) if model != claim.models[0]), default=None)
    reasons = _learned_nothing(claim, sides, theirs, scores, origin)
    unfair = not _all_fair(claim, sides, scores) if claim.by_steps else _unfair(claim, budgets[0], other)
    if distance >= 0 and unfair:
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
        note=_join(claim.note, _bins_note(claim, sides), said, _diverged(every), *reasons),
    )


def better(text: str, better: tuple[str, tuple], worse: tuple[str, tuple], **changes: Any) -> Claim:
    """That one side scores more than the other. better, worse: model and sizes; changes: further parts of `Claim`."""
    return Claim(
        models=(better[0], worse[0]),
        bins=(better[1], worse[1]),
        text=text,
        margin=lambda ours, theirs: ours - theirs,
        **changes,
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


def _by_steps(
    available: list[dict[Any, dict[float, Point]]], claim: Claim, scores: list[Score]
) -> tuple[list[Side] | None, str]:
    """Of each side the points at their largest budgets, as far as they count (see `Claim`), and what training the worse
    side had and needed, where that decides. None: none counts."""
    sides = [{size: next(iter(found.values())) for size, found in side.items() if found} for side in available]
    if not all(sides):
        return None, ""
    strong, weak = _strong_and_weak(claim)
    if claim.bins[0] == claim.bins[1]:
        common = set(sides[0]) & set(sides[1])
        sides = [{size: point for size, point in side.items() if size in common} for side in sides]
    kept, said = {}, []
    for size, point in sides[weak].items():
        better, chance = _rival(sides[strong], size, claim), scores[weak].limit(claim.models[weak], size)
        learned = scores[weak].learned(claim.models[weak], {size: point})
        enough = better is not None and training.has_enough(better, point, chance)
        if learned or enough:
            kept[size] = point
        if better is not None and (not learned or point.origin.budget < better.origin.budget * FULL):
            said.append(f"{size}: {_percent(point.origin.budget)}, {_percent(training.passes(better, point, chance))}")
    names = [claim.models[index] for index in (weak, strong)]
    note = f"training that {names[0]} had, and {names[1]} needed to pass it: " + "; ".join(said) if said else ""
    if claim.bins[0] == claim.bins[1]:
        sides[strong] = {size: point for size, point in sides[strong].items() if size in kept}
    sides[weak] = kept
    return (sides if all(sides) else None), note


def _strong_and_weak(claim: Claim) -> tuple[int, int]:
    """Which side is said to be better, which worse."""
    return (1, 0) if claim.says_failure else (0, 1)


def _rival(side: Side, size: Any, claim: Claim) -> Point | None:
    """The point of the better side that a point of the worse side is held against: that of its size; where the sides
    have other sizes, the one with the most training."""
    if claim.bins[0] == claim.bins[1]:
        return side.get(size)
    return max(side.values(), key=lambda point: point.origin.budget, default=None)


def _all_fair(claim: Claim, sides: list[Side], scores: list[Score]) -> bool:
    strong, weak = _strong_and_weak(claim)
    pairs = [(_rival(sides[strong], size, claim), size, point) for size, point in sides[weak].items()]
    limit = scores[weak].limit
    return all(
        better is not None and training.is_fair(better, point, limit(claim.models[weak], size))
        for better, size, point in pairs
    )


def _percent(budget: float) -> str:
    return "more" if math.isinf(budget) else percent(budget)


def _learned_nothing(
    claim: Claim, sides: list[Side], theirs: list[dict], scores: list[Score], origin: Origin
) -> list[str]:
    """Which sides learned nothing, though the claim says something only if they did.

    With the full budget, a model that learned nothing in the paper either is no surprise. Of a claim that counts by
    steps, sizes that learned nothing had enough training.
    """
    found = []
    for index in claim.learned:
        model, score = claim.models[index], scores[index]
        failed_too = origin.budget >= FULL and not score.learned_published(model, theirs[index])
        failed_too |= claim.by_steps and index == _strong_and_weak(claim)[1]
        if not score.learned(model, sides[index]) and not failed_too:
            found.append(f"{model} learned nothing")
    return found


def _paired_error(claim: Claim, sides: list[Side], scores: list[Score]) -> float | None:
    """Of the margin, over test sets drawn again, the same for all sides; None when a run kept no statistics."""
    values = []
    for score, side in zip(scores, sides, strict=True):
        each = [point.replicates(score.column, claim.seeds) for point in side.values()]
        if any(one is None for one in each):
            return None
        values.append(_over(claim, [score.unit * one for one in each if one is not None]))
    return bootstrap.error(claim.margin(*values))


def _unfair(claim: Claim, first: float, other: float | None) -> bool:
    """Whether the side that comes out as claimed owes it, perhaps, to its training. other: None without another side"""
    if other is None:
        return False
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
