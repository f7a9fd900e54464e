"""How many parameters are enough, interpolated, and by what factor models differ."""

import numpy as np
import pandas as pd
import pytest

from elm_lib.paper import crossing, neuronio_claims
from elm_lib.paper.report import report

COLUMN = "test_released_auc"


def test_interpolated_between_two_sizes():
    parameters = np.array([1e3, 1e4, 1e5])
    auc = np.array([[0.990, 0.992, 0.980, 0.991], [0.992, 0.993, 0.985, 0.990], [0.993, 0.990, 0.990, 0.992]])
    found = crossing.reached(parameters, auc)
    np.testing.assert_allclose(found[:2], [10**3.5, 1e3])  # halfway; the smallest is enough
    assert np.isnan(found[2])  # none is
    assert found[3] == pytest.approx(1e3)  # the first that reaches it, though a larger one does not
    assert crossing.reached(parameters, auc[:, 0]) == pytest.approx(10**3.5)


def test_the_published_tables_give_the_factors_of_the_text():
    factor = {
        (more, fewer): crossing.published(more) / crossing.published(fewer) for more, fewer, _ in crossing.FACTORS
    }
    assert factor["TCN", "ELM"] == pytest.approx(200, rel=0.02)
    assert factor["ELM", "Branch-ELM"] == pytest.approx(7, rel=0.03)
    assert factor["LSTM", "ELM"] == pytest.approx(5.0, rel=0.01)  # 266K / 53K, of the sizes themselves, is as much


def _rows(runs, params):
    table = report(runs, params)[0]
    return table[(table.claim == "Fig 2") & table["item"].str.contains("parameters")].set_index("item")


def test_each_side_at_equal_training(published_runs, params):
    def shorter(table, sizes):
        return pd.concat([table[~table["size"].isin(sizes)], table[table["size"].isin(sizes)].assign(budget=0.1)])

    full = _rows(published_runs, params)
    factor = next(item for item in full.index if "LSTM" in item and "factor" in item)
    assert full.ours[factor] == pytest.approx(full.published[factor]) and full.verdict[factor] == "reproduced"
    runs = dict(published_runs)
    runs["neuronio_lstm"] = published_runs["neuronio_lstm"].assign(budget=0.1)
    assert _rows(runs, params).verdict[factor] == "not run"  # no ELM ran at that budget
    runs["neuronio_elm"] = pd.concat(
        [published_runs["neuronio_elm"], published_runs["neuronio_elm"].assign(budget=0.1)]
    )
    row = _rows(runs, params).loc[factor]
    assert row.verdict == "consistent at 10 %" and row.budget == 0.1
    runs["neuronio_lstm"] = shorter(published_runs["neuronio_lstm"], [50])  # the size at the crossing
    row = _rows(runs, params).loc[factor]
    assert row.ours > 1.1 * row.published  # interpolated between 25 and 100


def test_sizes_that_do_not_reach_it_are_named(published_runs, params):
    runs = dict(published_runs)
    runs["neuronio_elm"] = published_runs["neuronio_elm"].assign(**{COLUMN: 0.98})
    rows = _rows(runs, params)
    every = rows[rows.index.str.contains(" ELM") & ~rows.index.str.contains("FLOPs")]
    open_ = every[every.note.str.contains("no size that ran reaches 0.991")]
    assert len(open_) == 4 and set(open_.verdict) == {"not run"}  # the ELM's own row, and the three factors


def test_worse_by_more_than_the_tolerance(published_runs, params):
    runs = dict(published_runs)
    table = published_runs["neuronio_elm"]
    runs["neuronio_elm"] = table.assign(parameters=table.parameters * 1.3)
    verdicts = _rows(runs, params).verdict
    assert {item: verdict for item, verdict in verdicts.items() if "factor" in item and "Branch" not in item} == {
        item: "not reproduced" for item in verdicts.index if "factor" in item and "Branch" not in item
    }


def test_the_sampling_error_is_that_of_the_interpolation(published_runs, params, npz, monkeypatch):
    rng = np.random.default_rng(0)
    shift = rng.normal(0, 0.0005, 1000)  # of all sizes alike, as the test set is the same
    runs = dict(published_runs)
    for name in ("neuronio_elm", "neuronio_lstm", "neuronio_branch_elm"):
        runs[name] = published_runs[name].assign(statistics=[f"{name}-{i}" for i in range(len(published_runs[name]))])
    scores = {
        line.statistics: getattr(line, COLUMN)
        for table in runs.values()
        for line in table.itertuples()
        if isinstance(getattr(line, "statistics", None), str)
    }
    monkeypatch.setattr(crossing.bootstrap, "replicates", lambda path, column: scores[str(path)] + shift)
    row = next(v for v in crossing.verdicts(runs, params, "paper") if v.item.startswith("c) ELM: parameters"))
    each = np.array([crossing.reached(*_published_elm(delta)) for delta in shift])
    expected = np.std(np.where(np.isnan(each), 296_600, each))  # where no size reaches it: the largest
    assert row.sampling_error == pytest.approx(expected, rel=1e-6) and row.sampling_error > 1000


def _published_elm(delta: float):
    table = crossing.published_neuronio().query("model == 'ELM'")
    return table.trainable_parameters.to_numpy(), table.spike_auc_mean.to_numpy() + delta


def test_diverged_runs_of_the_improved_update_are_counted(published_runs, params):
    runs = dict(published_runs)
    _, improved, original = neuronio_claims.STABLE[1]
    for name, n in ((improved, 0), (original, 2)):
        table = published_runs[name].reset_index(drop=True)
        runs[name] = table.assign(diverged=[i < n for i in range(len(table))])
    row = next(row for row in neuronio_claims.verdicts(runs, params, "paper") if row.item.startswith("b) runs that"))
    assert row.verdict == "reproduced" and row.ours == 0 and "2 of 30 diverge" in row.note
    runs[improved] = runs[improved].assign(diverged=[i < 1 for i in range(len(runs[improved]))])
    row = next(row for row in neuronio_claims.verdicts(runs, params, "paper") if row.item.startswith("b) runs that"))
    assert row.verdict == "not reproduced" and row.ours == 1
