"""What the paper says of the spoken digits in words, as rules: over published values, and over ours."""

import math

import numpy as np
import pandas as pd
import pytest

from elm_lib.paper import training
from elm_lib.paper.claims import Score, claim_row
from elm_lib.paper.points import largest
from elm_lib.paper.shd_claims import verdicts
from elm_lib.paper.verdict import Claim

SCORE = Score("test_accuracy", limit=lambda model, size: 0.2)
WHERE = {"dataset": "shd", "profile": "desk"}
STEPS = [1000, 2000, 3000, 4000]


@pytest.fixture(scope="module")
def table(published_runs, params):
    rows = verdicts(published_runs, params, "paper")
    return {(row.claim, row.item.split(",")[0].split(":")[0] + "|" + row.item): row for row in rows}


def _row(table, claim, *words):
    found = [row for (label, item), row in table.items() if label == claim and all(word in item for word in words)]
    assert len(found) == 1, (claim, words, [row.item for row in found])
    return found[0]


@pytest.mark.parametrize(
    ("claim", "words", "margin"),
    [
        ("Fig S5", ["ELM above LSTM"], (0.90 + 0.91 + 0.90 - 0.21 - 0.21 - 0.78) / 3),
        ("Fig 5", ["ELM above LSTM"], (0.82 + 0.82 + 0.81) / 3 - 0.1),
        ("Fig S5", ["LSTM recovers"], (0.81 + 0.74) / 2 - 0.21),
        ("Fig 5", ["LSTM recovers"], (0.67 + 0.55) / 2 - 0.1),
        ("Fig S5", ["LSTM stays below"], (0.84 + 0.77 - 0.81 - 0.74) / 2),
        ("Fig 5", ["LSTM stays below"], (0.75 + 0.66 - 0.67 - 0.55) / 2),
        ("Fig S5", ["keeps up"], 0.86 - (0.90 + 0.91 + 0.90) / 3),
        ("Fig 5", ["keeps its accuracy"], (0.83 + 0.81 + 0.79) / 3 - (0.70 + 0.59) / 2),
        ("Fig S5", ["SNN best"], 0.58 - 0.45),
        ("Fig S5", ["of SNN falls"], 0.58 - 0.39),
        ("Fig 5", ["of ELM falls"], 0.79 - 0.66),
        ("Fig 5", ["held-out", "validation words"], (6.97 - 8.27) / 9),
        ("Fig 5", ["no more on held-out"], (0.75 + 0.66 - 0.92 - 0.86 - (0.67 + 0.55 - 0.87 - 0.75)) / 2),
        ("Fig 5", ["e) ELM", "rises"], (0.8215 + 0.8053 + 0.8179) / 3 - (0.2508 + 0.3691 + 0.5267 + 0.6963) / 4),
        ("Fig 5", ["e) ELM", "unstable"], (0.8215 + 0.8053 + 0.8179) / 3 - (0.6688 + 0.3368) / 2),
        ("Fig 5", ["f) ELM", "needed"], (0.8208 + 0.8123 + 0.8196 + 0.8127) / 4 - 0.658),
        ("Fig 5", ["f) ELM", "suffice"], 0.8127 - (0.8208 + 0.8123 + 0.8196) / 3),
    ],
)
def test_each_claim_has_its_published_margin_by_its_rule(table, claim, words, margin):
    row = _row(table, claim, *words)
    assert row.published == pytest.approx(margin, abs=1e-9) and row.ours == pytest.approx(row.published)
    assert row.published + row.tolerance > 0 and row.verdict == "reproduced"  # the paper's own numbers bear it out


def test_what_the_paper_gives_no_numbers_of_is_compared_among_ours(table):
    assert math.isnan(_row(table, "Fig S4", "improved update").published)
    for b in (20, 50, 100):
        row = _row(table, "SNN reading", f"SHD, {b} ms")
        assert row.verdict == "reproduced" and row.ours == pytest.approx(0)
    assert _row(table, "Routing", "2 ms").verdict == "not run"


def test_an_snn_that_learns_with_an_output_of_20_ms_is_told(published_runs, params, made):
    learned = made("shd_snn_20_ms", {20: [{"test_accuracy": 0.5, "valid_accuracy": 0.5}]})
    rows = verdicts(published_runs | {"shd_snn_20_ms": learned}, params, "paper")
    (row,) = [row for row in rows if row.claim == "SNN reading" and "20 ms: SNN" in row.item]
    assert row.verdict == "not reproduced" and row.ours == pytest.approx(-0.45)


# ---- enough training -------------------------------------------------------------------------------------------------


def _run(made, name, accuracy, budget=1.0, curve=None, size=2):
    scores = {"test_accuracy": accuracy, "valid_accuracy": accuracy}
    found = made(name, {size: [scores]}, budget=budget, source="generated")
    return found.assign(curve=[{"step": STEPS, "valid_accuracy": curve}] if curve else None)


ABOVE = Claim(models=("ELM", "LSTM"), bins=((2,), (2,)), text="above", margin=lambda a, b: a - b, by_steps=True)
FAILS = Claim(
    models=("LSTM", "ELM"),
    bins=((2,), (2,)),
    text="fails",
    margin=lambda lstm, _: 0.1 - lstm,
    tolerance=0.1,
    says_failure=True,
    by_steps=True,
)


@pytest.mark.parametrize(
    ("claim", "lstm", "budget", "curve", "verdict", "note"),
    [
        # at chance with a quarter of the steps: the ELM left chance within an eighth
        (ABOVE, 0.1, 0.25, [0.1, 0.3, 0.5, 0.9], "inconclusive", "2: 25 %, 50 %"),
        (ABOVE, 0.1, 0.25, [0.3, 0.5, 0.7, 0.9], "consistent at 25 %", "2: 25 %, 25 %"),
        # it learned something, and the ELM passed it in as many steps, or did not
        (ABOVE, 0.4, 0.25, [0.5, 0.6, 0.7, 0.9], "consistent at 25 %", "2: 25 %, 25 %"),
        (ABOVE, 0.4, 0.25, [0.3, 0.6, 0.7, 0.9], "inconclusive", "LSTM had less training"),
        # as much training as the ELM: no curve is needed
        (ABOVE, 0.1, 1.0, None, "consistent at 100 %", "2: 100 %, 100 %"),
        (ABOVE, 0.4, 1.0, None, "consistent at 100 %", ""),
        (FAILS, 0.1, 0.25, [0.3, 0.5, 0.7, 0.9], "consistent at 25 %", "training that LSTM had, and ELM needed"),
        (FAILS, 0.1, 0.25, [0.1, 0.1, 0.7, 0.9], "inconclusive", "2: 25 %, 75 %"),
        (FAILS, 0.6, 0.25, [0.7, 0.7, 0.7, 0.9], "short at 25 %", ""),
        (FAILS, 0.1, 0.25, [0.1, 0.1, 0.1, 0.1], "inconclusive", "more"),
    ],
)
def test_a_model_with_less_training_counts_where_the_other_needed_no_more(
    made, claim, lstm, budget, curve, verdict, note
):
    runs = {"e": _run(made, "e", 0.9, curve=curve), "l": _run(made, "l", lstm, budget)}
    row = claim_row("Fig 5", claim, runs, {"ELM": "e", "LSTM": "l"}, {}, SCORE, **WHERE)
    assert row.verdict == verdict and note in row.note, row


def test_bins_that_do_not_count_are_left_out(made):
    curve = [0.1, 0.3, 0.8, 0.9]
    elm = pd.concat([_run(made, "e", 0.9, curve=curve, size=b) for b in (2, 4)])
    lstm = pd.concat([_run(made, "l", 0.1, budget, size=b) for b, budget in ((2, 0.25), (4, 0.5))])
    claim = Claim(models=ABOVE.models, bins=((2, 4),) * 2, text="above", margin=ABOVE.margin, by_steps=True)
    row = claim_row("Fig 5", claim, {"e": elm, "l": lstm}, {"ELM": "e", "LSTM": "l"}, {}, SCORE, **WHERE)
    assert row.verdict == "consistent at 50 %" and row.note.startswith("at 4 alone; training that LSTM had")
    assert "2: 25 %, 50 %; 4: 50 %, 50 %" in row.note


def test_each_seed_has_to_pass(made):
    runs = pd.concat([_run(made, "e", 0.9, curve=curve) for curve in ([0.3, 0.4, 0.5, 0.9], [0.1, 0.1, 0.3, 0.9])])
    point = largest({"e": runs.assign(seed=[0, 1])}, "e", 2)
    assert training.needed(point, 0.2) == 0.75 and training.needed(point, 0.95) == math.inf


def test_sides_may_be_of_different_scores_with_paired_errors(made, npz):
    rng = np.random.default_rng(0)
    right, valid = rng.random(1000) < 0.7, rng.random(500) < 0.9
    path = npz("r", right=right, unseen=right, seen=~right, valid_right=valid)
    scores = {"test_accuracy": right.mean(), "valid_accuracy": valid.mean()}
    runs = {"e": made("e", {2: [scores]}, statistics=path)}
    claim = Claim(models=("test", "valid"), bins=((2,),) * 2, text="held", margin=lambda t, v: t - v, tolerance=0.3)
    by_model = {"test": SCORE, "valid": Score("valid_accuracy", limit=SCORE.limit)}
    row = claim_row("Fig 5", claim, runs, {"test": "e", "valid": "e"}, {}, by_model, **WHERE)
    assert row.ours == pytest.approx(right.mean() - valid.mean()) and row.verdict == "reproduced"
    binomial = np.sqrt(0.7 * 0.3 / 1000 + 0.9 * 0.1 / 500)
    assert row.sampling_error == pytest.approx(binomial, rel=0.1)
