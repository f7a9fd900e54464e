"""What a row of the verdict table is, and the one rule by which its verdict is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pandas as pd

from elm_lib.paper import FULL

VERDICTS = "verdicts.csv"
NOT_KNOWN = "not known"  # the sampling error of a run that kept no statistics
READ_OFF = "published value read off the picture"

TERMS = {
    "reproduced": "As good as published or better, within the tolerance. The runs had all of the published training "
    "budget, with as many seeds as the row says, and the published data or data made by the published recipe. "
    "A count (parameters, FLOPs, hyper-parameters) needs no training: it is within the tolerance.",
    "not reproduced": "The same, and outside the tolerance.",
    "consistent at N %": "Within the tolerance after N % of the published training budget. Or, at 100 %, our models "
    "compare with each other as published, on data that are only like the published (other speakers, another cell).",
    "short at N %": "The same, and outside the tolerance. With all of it, it might or might not come out as published.",
    "inconclusive": "The runs cannot tell. The distance to the limit is smaller than its sampling error; or the model "
    "that another is said to beat learned nothing, or less training than the other; or the paper reports a failure, "
    "and our runs were too short to fail.",
    "not comparable": "The data are of another kind than those of the published number: a stand-in, other lengths, "
    "generated words against accuracies on human speech, the default cell against scores on the published cell.",
    "drawn": "A drawing without a number.",
    "not run": "No finished run of this point in this profile.",
}


class Likeness(IntEnum):
    """How near our data are to those of a published number."""

    OTHER = 0  # a stand-in, or other lengths: nothing on them is comparable
    SIMILAR = 1  # the same task with other speakers or another cell: models can be compared among themselves
    SAME = 2  # the published data, or made by the published recipe


LIKENESS = {
    "neuronio": {
        "real": Likeness.SAME,
        "generated (exact)": Likeness.SAME,
        "generated (default)": Likeness.SIMILAR,
        "generated (point neuron)": Likeness.SIMILAR,  # its constants are ours
    },
    "shd": {"real": Likeness.SAME, "generated": Likeness.SIMILAR},
    "lra": {"real": Likeness.SAME, "generated": Likeness.SAME, "scikit-learn": Likeness.SIMILAR},
}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where numbers come from. budget: fraction of the published training, in samples seen; NaN: none is needed."""

    budget: float = math.nan
    profile: str = ""
    data: str = ""
    device: str = ""

    @staticmethod
    def join(origins: Sequence[Origin]) -> Origin:
        """Of several runs: the smallest budget, and every profile, kind of data and device that they had."""
        every = {
            name: "; ".join(dict.fromkeys(getattr(origin, name) for origin in origins))
            for name in ("profile", "data", "device")
        }
        return Origin(budget=min(origin.budget for origin in origins), **every)

    def likeness(self, dataset: str) -> Likeness:
        """How near the data are to the published; of several kinds, the farthest."""
        kinds = LIKENESS[dataset]
        return min(kinds.get(kind, Likeness.OTHER) for kind in self.data.split("; "))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row of the verdict table. NaN: nothing to show.

    claim           Fig 3, Tab S8, headline; its panel, model, size and score stand in `item`
    published, ours, std    ours: mean over the seeds that did not diverge, std: their standard deviation (population)
    tolerance       how much worse than published (or than the limit of a comparison) still counts as good
    sampling_error  standard deviation of ours over test sets drawn again (`elm_lib.paper.bootstrap`), paired for
                    comparisons; None: not known
    budget_ours, budget_theirs   of a comparison: of the model said to be better, and of the other
    """

    claim: str
    item: str
    verdict: str
    origin: Origin
    published: float = math.nan
    ours: float = math.nan
    std: float = math.nan
    sampling_error: float | None = math.nan
    seeds: int | None = None
    tolerance: float = math.nan
    budget_ours: float = math.nan
    budget_theirs: float = math.nan
    note: str = ""

    def row(self) -> dict[str, Any]:
        """By column of the table; an empty text where there is nothing to show."""
        values = {name: _shown(getattr(self, name)) for name in ("published", "ours", "std", "tolerance")}
        error = NOT_KNOWN if self.sampling_error is None else _shown(self.sampling_error)
        budgets = {name: _shown(getattr(self, name), 3) for name in ("budget_ours", "budget_theirs")}
        origin = {name: getattr(self.origin, name) for name in ("profile", "data", "device")}
        found = {
            "claim": self.claim,
            "item": self.item,
            "verdict": self.verdict,
            "note": self.note,
            **values,
            **budgets,
        }
        found |= {"sampling_error": error, "seeds": "" if self.seeds is None else self.seeds}
        found |= {"budget": _shown(self.origin.budget, 3), **origin}
        return {name: found[name] for name in COLUMNS}


COLUMNS = [
    *(
        "claim",
        "item",
        "published",
        "ours",
        "std",
        "seeds",
        "tolerance",
        "verdict",
        "budget",
        "profile",
        "data",
        "device",
    ),
    *("budget_ours", "budget_theirs", "sampling_error", "note"),
]


def _shown(value: float, digits: int = 6) -> float | str:
    """Rounded to digits; what is 0 but for rounding is 0, without a sign."""
    return "" if math.isnan(value) else float(f"{round(value, 12):.{digits}g}") + 0.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement in words about several points, as a margin that one rule computes of published values and of ours.

    models      the model of each side; the first is the one that is said to do well
    bins        the sizes of each side; its value is the mean over them (`over`: or the maximum)
    margin      of the sides' values -> by how much the claim holds; the published one is shown, and ours is judged
    tolerance   how far below 0 the margin may lie
    learned     sides that must have learned something, or the claim says nothing
    seeds       mean or max: what is taken over the seeds of a point
    whole       every one of its sizes is needed
    says_failure   the first side is said to have failed: it need not have learned
    by_steps    the two sides may differ in their training: each size is taken at its largest budget. A size of the side
                that comes out worse counts where it learned, or where it had as much training as the other side needed
                to pass it (`elm_lib.paper.training`)
    Sides of the same bins use those bins that all of them ran.
    """

    models: tuple[str, ...]
    text: str
    margin: Callable[..., Any]
    bins: tuple[tuple, ...]
    tolerance: float = 0.0
    over: str = "mean"
    learned: tuple[int, ...] = (1,)
    seeds: str = "mean"
    says_failure: bool = False
    note: str = ""
    whole: bool = False
    by_steps: bool = False


def judge(
    *,
    distance: float,
    error: float | None,
    budget: float,
    likeness: Likeness,
    comparison: bool = False,
    silent: bool = False,
) -> str:
    """The verdict on what was run. The first rule that applies decides:

    | rule | verdict |
    |---|---|
    | the data are of another kind (`OTHER`) | not comparable |
    | the data are like the published (`SIMILAR`), and ours is held against a published number | not comparable |
    | `silent`: what had to be learned was not, or had less training (see `TERMS`) | inconclusive |
    | the distance to the limit is smaller than its sampling error | inconclusive |
    | full budget, `SAME` data | reproduced if the distance is not negative, else not reproduced |
    | anything else | consistent at N % if the distance is not negative, else short at N % |

    distance    how far ours lies on the good side of its limit: ours - published (the reverse where lower is better)
                + tolerance; of a comparison: margin + tolerance. NaN, where every run diverged, counts as negative
    error       sampling error of the distance; None where it is not known: the fourth rule is left out, the row says so
    budget      fraction of the published training, the smallest of all runs behind the row
    comparison  of models of ours among themselves
    """
    if likeness is Likeness.OTHER or (likeness is Likeness.SIMILAR and not comparison):
        return "not comparable"
    if silent or (error is not None and abs(distance) < error):
        return "inconclusive"
    good = distance >= -1e-12  # a value on the limit is within it
    if budget >= FULL and likeness is Likeness.SAME:
        return "reproduced" if good else "not reproduced"
    return f"{'consistent' if good else 'short'} at {percent(budget)}"


def percent(budget: float) -> str:
    """A fraction of the published training as read: 0.1667 -> "16.7 %"."""
    return f"{100 * budget:.3g} %"


def steps(row: Mapping[str, Any]) -> str:
    """The training behind a row as its CSV file reads: of both sides of a comparison; empty where none is needed."""
    sides = ["budget"] if pd.isna(row["budget_theirs"]) else ["budget_ours", "budget_theirs"]
    return " and ".join(dict.fromkeys(percent(row[side]) for side in sides if not pd.isna(row[side])))


def kind(verdict: str) -> str:
    """The key of `TERMS`: "short at 17 %" -> "short at N %"."""
    word, at, _ = verdict.partition(" at ")
    return f"{word} at N %" if at else verdict


def frame(rows: Sequence[Verdict]) -> pd.DataFrame:
    """The verdict table, columns `COLUMNS`."""
    return pd.DataFrame([row.row() for row in rows], columns=COLUMNS)


def separation(values: pd.Series, digit: float) -> pd.Series:
    """The tolerance of each published value: what separates it from the nearer of its neighbours, at least `digit`.

    values  published scores in the order of the sizes
    digit   one unit of their last digit, or the error of reading them off
    """
    steps = values.diff().abs()
    nearer = pd.concat([steps, steps.shift(-1)], axis=1).min(axis=1)
    return nearer.fillna(digit).clip(lower=digit).round(10)
