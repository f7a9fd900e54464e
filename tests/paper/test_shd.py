"""Verdicts on SHD: rules that can fail both ways."""

import numpy as np
import pandas as pd
import pytest

from elm_lib.paper import shd, verdict

LABELS = {
    "profile": "desk",
    "source": "real",
    "morphology": "",
    "device": "cpu",
    "budget": 0.5,
    "parameters": 1,
    "diverged": False,
}
KIND = {model: kind for kind, model in shd.MODELS.items()}


def _runs(accuracy) -> dict[str, pd.DataFrame]:
    """One run a published cell, its accuracies those of accuracy(row, split); ablations of one point."""
    runs = {}
    for name in shd.SETS:
        for model, rows in shd.published(name).groupby("model"):
            runs[f"{name}_{KIND[model]}"] = pd.DataFrame(
                [
                    {
                        "experiment": name,
                        "size": row.bin_ms,
                        "seed": 0,
                        **LABELS,
                        **{f"{split}_accuracy": accuracy(row, split) for split in shd.SPLITS},
                    }
                    for row in rows.itertuples()
                ]
            )
    return runs


def _verdicts(accuracy) -> pd.DataFrame:
    runs = _runs(accuracy)
    return verdict.frame(shd.verdicts({name: shd.table(runs, name) for name in shd.SETS}, runs))


def published(row, split):
    return getattr(row, f"{split}_accuracy_mean")


def test_the_published_values_reproduce_themselves_and_their_claims():
    found = _verdicts(published)
    assert len(found[found.claim == "Tab S11"]) == 108 and len(found[found.claim == "Tab S12"]) == 93
    assert (found.verdict == "reproduced").all(), found[found.verdict != "reproduced"]
    claims = found[found.claim.isin(["Fig 5", "Fig S5"])]
    assert (claims.published == claims.ours).all() and not claims.item.str.contains("alone").any()


@pytest.mark.parametrize("value", [0.05, 1.0])
def test_neither_chance_nor_perfection_everywhere_reproduces_the_claims(value):
    found = _verdicts(lambda row, split: value)
    claims = found[found.claim.isin(["Fig 5", "Fig S5"])]
    assert len(claims) == 11
    held = set(claims[claims.verdict == "reproduced"].item.str.split(":").str[1].str.split().str[0])
    assert held == (set() if value < 0.5 else {"Branch-ELM"})


def test_what_did_not_run_is_not_run_and_lower_accuracy_is_not_reproduced():
    lower = _verdicts(lambda row, split: published(row, split) - 0.04)
    cells = lower[lower.claim == "Tab S12"]
    assert (cells[cells.item.str.startswith("ELM")].verdict == "not reproduced").all()
    runs = {name: frame[frame["size"] == 100] for name, frame in _runs(published).items()}
    one = verdict.frame(shd.verdicts({name: shd.table(runs, name) for name in shd.SETS}, runs))
    assert set(one[one.item.str.contains(" 2 ms ")].verdict) == {"not run"}
    assert set(one[one.item.str.contains(" 100 ms (?:test|train|valid)")].verdict) == {"reproduced"}
    assert set(one[one.claim == "Fig 5"].verdict) == {"not run"} | set(one[one.item.str.contains("SNN within")].verdict)
    silent = {name: frame.assign(test_accuracy=0.05) if "snn" in name else frame for name, frame in runs.items()}
    found = verdict.frame(shd.verdicts({name: shd.table(silent, name) for name in shd.SETS}, silent))
    assert set(found[found.item.str.contains("SNN best")].verdict) == {"not run"}  # no bin to be better than


def test_cells_on_generated_words_are_not_comparable_and_claims_are_judged():
    runs = {name: frame.assign(source="generated") for name, frame in _runs(published).items()}
    found = verdict.frame(shd.verdicts({name: shd.table(runs, name) for name in shd.SETS}, runs))
    cells = found.claim.isin(["Tab S11", "Tab S12"])
    assert set(found[cells].verdict) == {"not comparable"} and set(found[~cells].verdict) == {"reproduced"}
    assert "201 not comparable" in verdict.markdown(found)


def test_a_claim_is_about_the_bins_of_a_models_largest_budget_and_a_cell_says_its_own():
    runs = _runs(published)
    elm = runs["shd_adding_elm"]
    less = elm["size"].isin([1, 4])
    runs["shd_adding_elm"] = elm.assign(
        budget=elm.budget.where(~less, 0.1), test_accuracy=elm.test_accuracy.where(~less, 0.1)
    )
    found = verdict.frame(shd.verdicts({name: shd.table(runs, name) for name in shd.SETS}, runs)).set_index("item")
    above = found.loc["SHD-Adding: ELM above LSTM at bins of 1 to 4 ms, by (2 ms alone)"]
    assert above.verdict == "reproduced" and above.budget == 0.5
    assert found.budget["ELM 1 ms test accuracy"].max() == 0.5 and found.budget["ELM 1 ms test accuracy"].min() == 0.1
    assert found.budget["ELM 2 ms test accuracy"].min() == 0.5
    assert "10 to 50 %" in verdict.describe(runs["shd_adding_elm"])


def test_an_ablation_over_ranges_is_drawn_over_their_upper_end():
    frame = pd.DataFrame(
        {
            "size": ["[1, 10]", "[1, 50]", "[1, 50]"],
            "diverged": [False, False, True],
            "test_accuracy": [0.2, 0.6, np.nan],
        }
    )
    found = shd.ablation(frame)
    assert (
        found["size"].tolist() == [10, 50]
        and found["mean"].tolist() == [0.2, 0.6]
        and found.diverged.tolist() == [0, 1]
    )


def test_an_experiment_that_the_profile_leaves_out_is_not_run():
    runs = _runs(published)
    for name in ("shd_adding_lstm", "shd_adding_snn", *(f"shd_{kind}" for kind in KIND.values())):
        runs[name] = runs[name].iloc[:0] if name == "shd_adding_lstm" else pd.DataFrame(columns=runs[name].columns)
    tables = {name: shd.table(runs, name) for name in shd.SETS}
    assert len(tables["shd"]) == 36 and tables["shd"].seeds.isna().all()
    found = verdict.frame(shd.verdicts(tables, runs))
    gone = (
        found.claim.isin(["Tab S11", "Fig S5"])
        | found.item.str.match("(SHD-Adding: )?(LSTM|SNN) ")
        | found.item.str.contains("above LSTM")
    )
    assert set(found[gone].verdict) == {"not run"} and set(found[~gone].verdict) == {"reproduced"}
    assert set(found.profile) == {"desk"}
    empty = pd.DataFrame(columns=["size", "test_accuracy", "diverged"])
    assert len(shd.ablation(empty)) == 0 and verdict.describe(runs["shd_elm"]) == "not run under this profile"
