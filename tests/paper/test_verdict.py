"""The rule that decides a verdict, and what compares two models."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elm_lib.paper import verdict
from elm_lib.paper.claims import Score, cell, claim_row
from elm_lib.paper.points import largest, origin
from elm_lib.paper.verdict import Claim, Likeness, judge
from elm_lib.support.errors import DataError

SAME, SIMILAR, OTHER = Likeness.SAME, Likeness.SIMILAR, Likeness.OTHER
ACCURACY = Score("test_accuracy", limit=lambda model, size: 0.2)
ABOVE = Claim(models=("A", "B"), bins=((1, 2), (1, 2)), text="A above B", margin=lambda a, b: a - b)
EXPERIMENTS = {"A": "a", "B": "b"}
WHERE = {"dataset": "shd", "profile": "paper"}


@pytest.mark.parametrize(
    ("distance", "error", "budget", "likeness", "comparison", "silent", "expected"),
    [
        (0.01, 0.001, 1.0, SAME, False, False, "reproduced"),
        (0.00, 0.000, 1.0, SAME, False, False, "reproduced"),  # on the limit
        (-0.01, 0.001, 1.0, SAME, False, False, "not reproduced"),
        (0.01, None, 1.0, SAME, False, False, "reproduced"),  # error not known
        (math.nan, None, 1.0, SAME, False, False, "not reproduced"),  # all diverged
        (0.01, 0.02, 1.0, SAME, False, False, "inconclusive"),
        (-0.01, 0.02, 0.2, SAME, False, False, "inconclusive"),
        (0.01, 0.001, 1 / 6, SAME, False, False, "consistent at 16.7 %"),
        (-0.01, 0.001, 1 / 6, SAME, True, False, "short at 16.7 %"),
        (0.01, 0.001, 1.0, SAME, True, True, "inconclusive"),
        (0.01, 0.001, 1.0, SIMILAR, False, False, "not comparable"),
        (0.01, 0.001, 1.0, SIMILAR, True, False, "consistent at 100 %"),
        (-0.01, 0.001, 1.0, SIMILAR, True, False, "short at 100 %"),
        (0.01, 0.001, 1.0, OTHER, True, False, "not comparable"),
    ],
)
def test_the_rule(distance, error, budget, likeness, comparison, silent, expected):
    found = judge(
        distance=distance, error=error, budget=budget, likeness=likeness, comparison=comparison, silent=silent
    )
    assert found == expected and verdict.kind(found) in verdict.TERMS


@given(
    distance=st.floats(-1, 1),
    error=st.none() | st.floats(0, 1),
    budget=st.floats(1e-6, 1.0),
    likeness=st.sampled_from(Likeness),
    comparison=st.booleans(),
    silent=st.booleans(),
)
def test_only_full_budgets_on_comparable_data_reproduce(**case):
    found = judge(**case)
    if "reproduced" in found:
        assert case["budget"] > 0.99 and case["likeness"] is SAME and not case["silent"]
        assert case["error"] is None or abs(case["distance"]) >= case["error"]


def _row(made, a, b, claim=ABOVE, published=None, files=None):
    """The claim's row, of {size: accuracy} or [({size: accuracy}, changes), ...] a model."""
    runs = {}
    for name, parts in (("a", a), ("b", b)):
        parts = parts if isinstance(parts, list) else [(parts, {})]
        frames = [made(name, {s: [{"test_accuracy": x}] for s, x in part.items()}, **c) for part, c in parts]
        runs[name] = pd.concat(frames, ignore_index=True)
        if files:
            runs[name]["statistics"] = files[name]
    theirs = {("A", 1): 0.9, ("A", 2): 0.9, ("B", 1): 0.5, ("B", 2): 0.5} if published is None else published
    return claim_row("Fig 5", claim, runs, EXPERIMENTS, theirs, ACCURACY, **WHERE)


def test_a_comparison_has_the_largest_budget_that_both_sides_have(made):
    a = [({1: 0.9, 2: 0.9}, {"budget": 1.0}), ({1: 0.6, 2: 0.4}, {"budget": 0.1})]
    row = _row(made, a, [({1: 0.5, 2: 0.3}, {"budget": 0.1})])
    assert (row.verdict, row.budget_ours, row.budget_theirs) == ("consistent at 10 %", 0.1, 0.1)
    assert row.ours == pytest.approx(0.1) and row.published == pytest.approx(0.4)
    one_bin = _row(made, a, [({1: 0.5}, {"budget": 0.1}), ({2: 0.5}, {"budget": 0.01})])
    assert one_bin.ours == pytest.approx(0.1) and one_bin.note == "at 1 alone" and one_bin.budget_theirs == 0.1
    assert _row(made, {1: 0.9}, {2: 0.5}).verdict == "not run"


def test_more_steps_than_the_other_prove_nothing_fewer_do(made):
    full, less = [({1: 0.9, 2: 0.9}, {"budget": 1.0})], [({1: 0.5, 2: 0.5}, {"budget": 0.1})]
    row = _row(made, full, less)
    assert (row.verdict, row.budget_ours, row.budget_theirs) == ("inconclusive", 1.0, 0.1)
    assert row.note == "B had less training" and row.origin.budget == 0.1
    assert _row(made, [({1: 0.9, 2: 0.9}, {"budget": 0.1})], [({1: 0.5, 2: 0.5}, {})]).verdict == "consistent at 10 %"
    assert _row(made, [({1: 0.4, 2: 0.4}, {})], less).verdict == "short at 10 %"  # worse in spite of more steps


def test_a_baseline_that_learned_nothing_proves_nothing_unless_it_is_published_so(made):
    chance = {1: 0.1, 2: 0.1}
    row = _row(made, {1: 0.9, 2: 0.9}, chance)
    assert row.verdict == "inconclusive" and row.note == "B learned nothing"
    failed = {("A", 1): 0.9, ("A", 2): 0.9, ("B", 1): 0.1, ("B", 2): 0.1}
    assert _row(made, {1: 0.9, 2: 0.9}, chance, published=failed).verdict == "reproduced"
    few = [(chance, {"budget": 0.1})]
    assert _row(made, [({1: 0.9, 2: 0.9}, {"budget": 0.1})], few, published=failed).verdict == "inconclusive"
    assert _row(made, {1: 0.15, 2: 0.15}, chance, published=failed).verdict == "not reproduced"  # nothing above nothing


def test_a_failure_is_shown_only_beside_a_model_that_learned(made):
    fails = replace(ABOVE, text="A fails", margin=lambda a, b: 0.1 - a, tolerance=0.1, says_failure=True)
    assert _row(made, {1: 0.1, 2: 0.1}, {1: 0.9, 2: 0.9}, fails).verdict == "reproduced"
    assert _row(made, {1: 0.5, 2: 0.5}, {1: 0.9, 2: 0.9}, fails).verdict == "not reproduced"
    assert _row(made, {1: 0.1, 2: 0.1}, {1: 0.1, 2: 0.1}, fails).verdict == "inconclusive"
    short = [({1: 0.1, 2: 0.1}, {"budget": 0.1})]
    assert _row(made, short, {1: 0.9, 2: 0.9}, fails).verdict == "inconclusive"  # it had no time to learn


def test_differences_have_the_paired_error(made, npz):
    rng = np.random.default_rng(0)
    right = rng.random(1000) < 0.80
    more = right | (rng.random(1000) < 0.1)
    files = {"a": npz("a", right=more, unseen=more), "b": npz("b", right=right, unseen=right)}
    row = _row(made, {1: more.mean(), 2: more.mean()}, {1: right.mean(), 2: right.mean()}, files=files)
    gained = more.mean() - right.mean()
    assert row.ours == pytest.approx(gained) and row.verdict == "reproduced"
    assert row.sampling_error == pytest.approx(np.sqrt(gained * (1 - gained) / 1000), rel=0.15)
    assert _row(made, {1: 0.9, 2: 0.9}, {1: 0.5, 2: 0.5}).sampling_error is None  # no statistics: not known


def _cell(made, scores, *, published=0.8, tolerance=0.02, failed_below=None, **changes):
    point = largest({"a": made("a", {1: scores}, **changes)}, "a", 1)
    where = WHERE | {"failed_below": failed_below}
    return cell("Tab S11", "item", published, point, ACCURACY, tolerance, **where)


def test_a_cell_is_the_mean_over_seeds_that_did_not_diverge(made):
    row = _cell(made, [{"test_accuracy": 0.79}, {"test_accuracy": 0.81}, None])
    assert (row.ours, row.seeds, row.verdict) == (pytest.approx(0.80), 2, "reproduced")
    assert row.std == pytest.approx(0.01) and row.note == "1 diverged, left out"
    gone = _cell(made, [None])
    assert gone.verdict == "not reproduced" and gone.seeds == 0 and math.isnan(gone.ours)
    assert _cell(made, [{"test_accuracy": 0.5}], source="generated").verdict == "not comparable"


def test_a_published_failure_is_reproduced_with_all_steps_alone(made):
    fails = {"published": 0.1, "failed_below": 0.2}
    assert _cell(made, [{"test_accuracy": 0.12}], **fails).verdict == "reproduced"
    assert _cell(made, [{"test_accuracy": 0.12}], budget=0.5, **fails).verdict == "inconclusive"
    assert _cell(made, [{"test_accuracy": 0.6}], **fails).verdict == "not reproduced"


def test_a_row_shows_what_is_not_known_and_leaves_blank_what_there_is_not(made):
    row = _cell(made, [{"test_accuracy": 0.8}]).row()
    assert list(row) == verdict.COLUMNS and row["sampling_error"] == "not known" and row["budget_ours"] == ""
    assert verdict.COLUMNS[:12] == (
        [
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
        ]
    )


def test_runs_of_two_kinds_are_never_mixed(made):
    runs = made("neuronio_elm", {20: [{}, {}]}, source="generated", morphology="exact")
    assert origin(runs).data == "generated (exact)" and origin(runs).likeness("neuronio") is SAME
    with pytest.raises(DataError, match="neuronio_elm differ in their data.*generated .default"):
        origin(pd.concat([runs, runs.assign(morphology="default")]))


def test_a_tolerance_is_what_separates_a_value_from_its_nearer_neighbour():
    values = pd.Series([0.989, 0.9913, 0.9924, 0.9922], index=[10, 15, 20, 25])
    assert verdict.separation(values, 0.0001).to_dict() == {10: 0.0023, 15: 0.0011, 20: 0.0002, 25: 0.0002}
    assert verdict.separation(pd.Series([0.5, 0.5]), 0.01).tolist() == [0.01, 0.01]
    assert verdict.separation(pd.Series([0.5]), 0.01).tolist() == [0.01]
