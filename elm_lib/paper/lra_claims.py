"""What the paper says in words about the Long Range Arena, with Tables 1 and S5 to S7 and Figure S8.

One more question is ours: whether the models learn a small real task to the end.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from elm_lib.paper import PUBLISHED
from elm_lib.paper.claims import claim_row, not_run
from elm_lib.paper.lra import (
    ABLATIONS,
    CHANCE,
    DIGITS,
    LEARNED,
    MODELS,
    SMALL,
    SOLVED_DIGITS,
    TASKS,
    TAU_S,
    TITLES,
    published,
    published_ablation,
    score_of,
)
from elm_lib.paper.points import Runs, largest
from elm_lib.paper.verdict import Claim, Origin, Verdict, judge

SOLVED = 70.0  # "over 70 % accuracy" on Pathfinder-X


def _difference(better, worse):
    return better - worse


# models of claims, beyond those of Table 1 -> experiment
SWEEPS = {"d_m": "lra_pathfinder_d_m", "S5": "lra_pathfinder_s5", "dropout": "lra_pathfinder_dropout", "tau_s": TAU_S}
SHORT, LONG = (5.0, 25.0, 50.0), (150.0, 300.0)  # ms, tau_s of Figure S8
WORDS = (
    Claim(
        models=("d_m", "d_m"),
        bins=((150,), (10,)),
        text="Tab S5: accuracy rises from d_m=10 to 150, by (points)",
        margin=_difference,
        learned=(0,),
    ),
    Claim(
        models=("d_m", "d_m"),
        bins=((150, 200), (300,)),
        text="Tab S5: accuracy levels out: mean of d_m=150 and 200 less that of 300 (points)",
        margin=_difference,
        tolerance=1.0,  # 150, 200 and 300 differ by 1.1 to 1.4
        learned=(0,),
        whole=True,
    ),
    Claim(
        models=("d_m", "S5"),
        bins=((25,), (1,)),
        text="Tab S6: ELM with d_m=25 above S5 with one layer, by (points)",
        margin=_difference,
    ),
    Claim(
        models=("S5", "S5"),
        bins=((2,), (1,)),
        text="Tab S6: S5 with two layers above S5 with one by 10 points, and by (points)",
        margin=lambda two, one: two - one - 10,
        learned=(0,),
    ),
    Claim(
        models=("dropout", "dropout"),
        bins=((0.3,), (0.0, 0.1, 0.2, 0.4, 0.5)),
        text="Tab S7: dropout 0.3 best, by (points)",
        margin=_difference,
        over="max",
        learned=(0,),
        whole=True,
    ),
    Claim(
        models=("dropout", "S5"),
        bins=((0.3,), (2,)),
        text="Tab S7: ELM with dropout 0.3 above S5 with two layers, by (points)",
        margin=_difference,
    ),
    Claim(
        models=("tau_s", "tau_s"),
        bins=(LONG, SHORT[:2]),
        text="Fig S8: mean accuracy with tau_s of 150 ms or more above that below 50 ms, by (points)",
        margin=_difference,
        learned=(0,),
    ),
    Claim(
        models=("tau_s", "tau_s"),
        bins=(SHORT, LONG),
        text="Fig S8: best run with tau_s below 75 ms above the best from 150 ms on, by (points)",
        margin=_difference,
        over="max",
        seeds="max",
        learned=(0,),
    ),
    Claim(
        models=("tau_s", "tau_s"),
        bins=((50.0, 150.0), (75.0, 100.0)),
        text="Fig S8: mean accuracy at 50 and 150 ms above that at 75 and 100 ms, by (points)",
        margin=_difference,
        learned=(0,),
        whole=True,
    ),
)


def verdicts(runs: Runs, profile: str) -> list[Verdict]:
    """A row each claim; the value is the margin in points."""
    where = {"dataset": "lra", "profile": profile}
    one = published().assign(accuracy=lambda table: table.accuracy_published.fillna(CHANCE))
    cells = one.set_index(["model", "name"]).accuracy.to_dict()
    rows = [
        claim_row("Tab 1", _not_below(name, title), runs, MODELS, cells, score_of(), **where)
        for name, title in TASKS.items()
    ]
    rows += [_tasks_won(runs, one, other, profile) for other in ("Transformer", "Longformer")]
    solves = Claim(
        models=("ELM",),
        bins=(("pathfinder_x",),),
        text=f"ELM solves Pathfinder-X: accuracy above {SOLVED:g} %, by (points)",
        margin=lambda elm: elm - SOLVED,
        learned=(),
    )
    fails = Claim(
        models=("Chrono-LSTM", "ELM"),
        bins=(("pathfinder_x",),) * 2,
        text="Chrono-LSTM at chance on Pathfinder-X, and ELM above: chance less its accuracy (points)",
        margin=lambda chrono, elm: CHANCE - chrono,
        tolerance=LEARNED["pathfinder_x"] - CHANCE,
        says_failure=True,
    )
    rows += [claim_row("Tab 1", claim, runs, MODELS, cells, score_of(), **where) for claim in (solves, fails)]
    theirs = _published_sweeps()
    for claim in WORDS:
        label, _, text = claim.text.partition(": ")
        row = claim_row(label, claim, runs, SWEEPS, theirs[claim.seeds], score_of(), **where)
        rows.append(replace(row, item=text))
    for model in SMALL:
        rows.append(claim_row(TITLES[DIGITS], _learns_digits(model), runs, SMALL, {}, score_of(), **where))
    return rows


def _learns_digits(model: str) -> Claim:
    return Claim(
        models=(model,),
        bins=((DIGITS,),),
        text=f"{model} learns to read digits of 8 x 8 pixels: accuracy above {SOLVED_DIGITS:g} %, by (points)",
        margin=lambda accuracy: accuracy - SOLVED_DIGITS,
        learned=(),
    )


def _not_below(name: str, title: str) -> Claim:
    return Claim(
        models=("ELM", "Chrono-LSTM"),
        bins=((name,), (name,)),
        text=f"ELM not below Chrono-LSTM on {title}, margin (points)",
        margin=_difference,
    )


def _published_sweeps() -> dict[str, dict]:
    """Published accuracies (%) of the claims' sweeps by (model, size), mean and maximum over seeds."""
    mean: dict = {}
    for (name, (_, _, size, unit, _)), model in zip(ABLATIONS.items(), SWEEPS, strict=False):
        column = published_ablation(name).set_index(size).test_published
        mean |= {(model, value): 100 / unit * theirs for value, theirs in column.items()}
    drawn = pd.read_csv(PUBLISHED / "published_figures.csv").query("figure == 'Fig S8'")
    found = {}
    for seeds in ("mean", "max"):
        rows = drawn[drawn.model == f"ELM {seeds}"]
        values = 100 * rows.value_read_off_the_picture
        found[seeds] = mean | {("tau_s", float(x)): value for x, value in zip(rows.x, values, strict=True)}
    return found


def _tasks_won(runs: Runs, one: pd.DataFrame, other: str, profile: str) -> Verdict:
    """On how many of the six tasks the ELM is above a model that is only cited. Needs all six, on comparable data."""
    table = one.pivot(index="name", columns="model", values="accuracy")
    expected = float((table["ELM"] > table[other]).sum())
    item, points = f"ELM above the published {other}, tasks of 6", {n: largest(runs, "lra_elm", n) for n in TASKS}
    known = [point for point in points.values() if point is not None]
    if len(known) < len(TASKS):
        return not_run("Tab 1", item, expected, profile=profile, tolerance=0.0)
    scores = {name: 100 * point.value("test_accuracy") for name, point in points.items() if point is not None}
    won = float(sum(score > table[other][name] for name, score in scores.items()))
    origin = Origin.join([point.origin for point in known])
    verdict = judge(
        distance=won - expected, error=None, budget=origin.budget, likeness=origin.likeness("lra"), comparison=False
    )
    return Verdict(
        claim="Tab 1",
        item=item,
        verdict=verdict,
        origin=origin,
        published=expected,
        ours=won,
        tolerance=0.0,
        seeds=min(len(point.kept) for point in known),
        sampling_error=math.nan,
    )
