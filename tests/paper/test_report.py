"""The verdict table over all items of the paper, the tables, and how many numbers equal a reference."""

import io
import math

import numpy as np
import pandas as pd
import pytest

from elm_lib.paper import __main__ as command
from elm_lib.paper import compare, items, lra, neuronio, page, pictures, settings, shd, tables, verdict
from elm_lib.paper.report import report
from elm_lib.support.errors import DataError


@pytest.fixture(scope="session")
def table(published_runs, params):
    return report(published_runs, params)[0]


def _scores(table):
    """Rows of training runs: all but counts."""
    return table[(table.budget != "") & (table.verdict != "not run")]


def test_every_item_of_the_paper_has_its_rows(nothing, params):
    found, metrics = report(nothing, params, "smoke")
    assert len(items.ITEMS) == 27 and set(found.claim) == {*items.ITEMS, *items.FOLLOW_UP, *items.OURS, items.HEADLINE}
    assert list(found.columns) == verdict.COLUMNS and not found.duplicated(["claim", "item"]).any()
    assert set(found.profile) == {"smoke"} and set(found.verdict.map(verdict.kind)) <= set(verdict.TERMS)
    ran = found[~found.verdict.isin(["not run", "drawn"])]
    assert (ran.budget == "").all() and (ran.ours != "").all()  # counts alone, and those of models that nobody trained
    assert {"Tab S8", "Tab S9", "Tab S10", "Fig 5", "Fig S5", "Tab 1", "Tab S1"} <= set(ran.claim)
    for claim, in_words in {"Fig 3": 7, "Fig S2": 0, "Fig S3": 7, "Fig S4": 5, "Fig S6": 8, "Fig S7": 0}.items():
        assert (~found[found.claim == claim].note.str.contains("read off the picture")).sum() == in_words
    assert metrics["verdicts"]["not run"] == len(found) - len(ran) - 1  # Figure 1 is drawn


def test_every_published_number_has_a_row(nothing, params):
    rows = report(nothing, params)[0].groupby("claim").item.apply(list)
    numbers = {"Tab S8": 4 * 7, "Tab S9": 4 * 8, "Tab S10": 4 * 6, "Tab S4": 12, "Tab S11": 108, "Tab S12": 93}
    numbers |= {"Fig 3": 66 + 7, "Fig S2": 30, "Fig S3": 66 + 7, "Fig S4": 34 + 5, "Fig S6": 28 + 8, "Fig S7": 20}
    numbers |= {"ELM network": 2 * 2 + 2, "Improved update": 7}
    assert {claim: len(rows[claim]) for claim in numbers} == numbers
    assert (
        sum("TCN" in item for item in rows["Fig 2"]) == 5 + 1
        and sum("true-positive" in item for item in rows["Fig 4"]) == 22
    )


def test_published_values_reproduce_themselves(table):
    found = _scores(table)
    assert set(found.verdict) == {"reproduced"}, found[found.verdict != "reproduced"][["claim", "item", "note"]]
    assert len(found) > 300 and {
        "headline",
        "Fig 2",
        "Fig 3",
        "Fig S2",
        "Fig S3",
        "Fig S4",
        "Fig S6",
        "Fig 4",
        "Fig 5",
        "Fig S5",
        "Fig S8",
        "Tab 1",
        "ELM network",
        "Improved update",
    } <= set(found.claim)
    cells = found[found.budget_theirs == ""]
    assert not (pd.to_numeric(cells.tolerance) < 0).any()
    claims = found[(found.budget_theirs != "") & (found.published != "")]
    assert np.allclose(claims.published.astype(float), claims.ours.astype(float), atol=1e-9)


@pytest.mark.parametrize("column", ["test_accuracy", "test_released_auc"])
def test_worse_than_published_is_not_reproduced(published_runs, params, column):
    worse = {
        name: frame.assign(**{column: (frame[column] - 0.3).clip(lower=0)}) if column in frame else frame
        for name, frame in published_runs.items()
    }
    found = _scores(report(worse, params)[0])
    cells = found[found.claim.str.startswith("Tab") & (found.budget_theirs == "")]
    kind = "AUC" if "auc" in column else "test accuracy|accuracy \\(%\\)"
    hit = cells[cells.item.str.contains(kind) & ~cells.note.str.contains("at chance")]
    assert len(hit) > 20 and set(hit.verdict) == {"not reproduced"}


def test_generated_words_are_compared_among_themselves_alone(published_runs, params):
    runs = {n: f.assign(source="generated") if n.startswith("shd") else f for n, f in published_runs.items()}
    found = _scores(report(runs, params)[0])
    cells = found[found.claim.isin(["Tab S11", "Tab S12"])]
    claims = found[found.claim.isin(["Fig 5", "Fig S5"]) & found.item.str.startswith("SHD")]
    assert set(cells.verdict) == {"not comparable"} and set(claims.verdict) == {"consistent at 100 %"}
    stand_in = published_runs | {"lra_elm": published_runs["lra_elm"].assign(source="stand-in")}
    arena = _scores(report(stand_in, params)[0]).query("claim == 'Tab 1'")
    assert set(arena[arena.item.str.contains("ELM")].verdict) == {"not comparable"}


def test_the_counts_of_the_captions(table):
    found = table.set_index(["claim", "item"]).ours
    assert found["Fig S5", "ELM parameters"] == 182420 and found["Fig S5", "Branch-ELM parameters"] == 63920
    assert (
        found["Fig 5", "SNN parameters"] == 50500
        and found["Fig 5", "Branch-ELM has a third of the parameters of ELM"] == pytest.approx(63819 / 182319, abs=1e-6)
        and found["Fig 4", "b) parameters of the Branch-ELM that predicts"] == 8022
    )
    assert found["Tab S8", "Branch-ELM d_m=20 flops"] == 17111000
    networks = table[(table.claim == "ELM network") & table.item.str.endswith("parameters")]
    assert list(networks.ours) == [76057, 77115] and set(networks.verdict) == {"reproduced"}  # about 77 thousand


def test_a_sampling_error_stands_beside_each_score_of_runs_with_statistics(published_runs, params, npz):
    right = np.random.default_rng(0).random(400) < 0.6
    frame = published_runs["lra_elm"]
    frame = frame[frame["size"] == "image"].assign(test_accuracy=0.6, statistics=npz("r", right=right, unseen=right))
    row = report(published_runs | {"lra_elm": frame}, params)[0].set_index("item").loc["ELM Image accuracy (%)"]
    assert row.sampling_error == pytest.approx(100 * np.sqrt(0.24 / 400), rel=0.1) and row.seeds == 3


# ---- tables ----------------------------------------------------------------------------------------------------------


def _all_tables(runs, params):
    return (
        neuronio.tables_neuronio(runs, params)
        | shd.tables_shd(runs, params)
        | lra.tables_lra(runs, params)
        | settings.tables_settings(params)
    )


def test_tables_have_the_papers_rows_with_ours_under_published(published_runs, params, tmp_path):
    found = _all_tables(published_runs, params)
    assert set(found) == {f"tab{n}" for n in ("1", *(f"S{k}" for k in range(1, 13)))}
    for name, (long, shown) in found.items():
        tables.save(long, shown, tmp_path, name)
        assert sorted(path.name for path in tmp_path.glob(f"{name}[._]*")) == (
            [f"{name}.csv", f"{name}.md", f"{name}.tex", f"{name}_long.csv"]
        )
    s8 = found["tabS8"].shown
    assert list(s8.columns[2:]) == ["Trainable Parameters", "FLOPs", "Voltage Prediction RMSE", "Spike Prediction AUC"]
    published, ours = (s8[(s8["Memory Units"] == 20) & (s8[""] == label)].iloc[0] for label in ("published", "ours"))
    assert published.tolist()[2:] == ["8.1K", "18.27M", "0.638 ± 0.003", "0.9924 ± 0.0002"]
    assert ours.tolist()[2:] == ["8.02K", "17.11M", "0.638 ± 0.0", "0.9924 ± 0.0"]
    one = found["tab1"].shown
    assert one.iloc[0].tolist() == ["ELM Neuron", "published", "49.62", "71.15", "77.29", "46.77", "80.3", "84.93"]
    assert one.iloc[2].tolist()[4] == "FAIL" and one.iloc[1, 2].startswith("49.62 ± 0.0")
    assert len(found["tabS11"].shown) == 2 * 36 and len(found["tabS12"].shown) == 2 * 31
    tex = (tmp_path / "tabS7.tex").read_text()
    assert tex.startswith(r"\begin{tabular}") and r"\toprule" in tex and "0.823" in tex
    assert r"\# parameters" in (tmp_path / "tabS4.tex").read_text()
    long = pd.read_csv(tmp_path / "tabS9_long.csv")
    assert len(long) == 8 and {"auc_mean_published", "auc_mean", "parameters", "budget"} <= set(long)


def test_tables_without_a_run_have_counts_and_say_so(nothing, params):
    found = _all_tables(nothing, params)
    s10 = found["tabS10"].shown
    assert (s10[s10[""] == tables.NOT_RUN]["Spike Prediction AUC"] == "").all() and "77.67K" in s10.to_string()
    assert len(found["tab1"].long) == 36
    assert pictures.curves(nothing, params, "Fig 5")["mean"].isna().all()


def test_a_table_takes_each_sizes_largest_budget(made, params):
    parts = [
        made("neuronio_elm", {20: [{"test_released_auc": auc}]}, budget=b) for auc, b in ((0.98, 0.1), (0.99, 1.0))
    ]
    line = neuronio.neuronio_table(pd.concat(parts), "ELM").set_index("size").loc[20]
    assert (line.auc_mean, line.budget, line.seeds) == (0.99, 1.0, 1)
    parts = [
        made(
            "shd_adding_tau_m", {"[1, 15]": [{"test_accuracy": 0.2}], "[1, 50]": [{"test_accuracy": 0.5}]}, budget=0.25
        ),
        made("shd_adding_tau_m", {"[1, 50]": [{"test_accuracy": 0.6}, None]}),
    ]
    found = pictures.curves({"shd_adding_tau_m": pd.concat(parts)}, params, "Fig 5").dropna(subset=["mean"])
    assert found.x.tolist() == [50, 15] and found["mean"].tolist() == [0.6, 0.2]
    assert found.budget.tolist() == [1.0, 0.25] and found.diverged.tolist() == [1, 0]


def test_accuracies_of_the_digits_have_their_binomial_errors(made, npz):
    rng = np.random.default_rng(0)
    right, valid = rng.random(900) < 0.6, rng.random(400) < 0.8
    path = npz("w", right=right, unseen=right, seen=~right, valid_right=valid)
    runs = {"shd_elm": made("shd_elm", {2: [{"test_accuracy": right.mean()}]}, statistics=path)}
    line = shd.table(runs, "shd").query("model == 'ELM' and bin_ms == 2").iloc[0]
    assert line.test_accuracy_error == pytest.approx(np.sqrt(0.24 / 900), rel=0.1)
    assert line.valid_accuracy_error == pytest.approx(np.sqrt(0.16 / 400), rel=0.1)


# ---- comparison with a reference, printing ---------------------------------------------------------------------------


@pytest.fixture
def results(table, published_runs, params, tmp_path):
    for name, (long, shown) in lra.tables_lra(published_runs, params).items():
        tables.save(long, shown, tmp_path / "results/desk/tables", name)
    table.to_csv(tmp_path / "results/desk" / verdict.VERDICTS, index=False)
    return tmp_path / "results/desk"


def test_results_equal_their_own_reference_and_one_changed_number_is_named(results, tmp_path, capsys):
    reference = tmp_path / "reference.csv"
    compare.main([str(results), str(reference), "--write"])
    numbers = compare.numbers(results)
    assert not numbers.duplicated(compare.KEYS).any() and not numbers.column.str.endswith("_published").any()
    capsys.readouterr()
    compare.main([str(results), str(reference)])
    assert capsys.readouterr().out == f"{len(numbers)} of {len(numbers)} numbers equal {reference}\n"
    path = results / "tables/tab1_long.csv"
    changed = pd.read_csv(path)
    changed.loc[0, "test_mean"] *= 1.003
    path.write_text(changed.to_csv(index=False))
    compare.main([str(results), str(reference)])
    said = "largest difference 0.3 % (tab1 ELM image test_mean)"
    assert capsys.readouterr().out == f"{len(numbers) - 1} of {len(numbers)} numbers equal {reference}; {said}\n"
    (results / verdict.VERDICTS).unlink()
    found = compare.compare(compare.numbers(results), pd.read_csv(reference, keep_default_na=False))
    assert math.isinf(found.largest) and found.n == len(numbers) and "verdicts" in found.where
    with pytest.raises(DataError, match="make repro"):
        compare.numbers(tmp_path / "nothing")


def test_the_table_is_printed_and_put_into_a_page(results, tmp_path, capsys):
    path = tmp_path / "results.md"
    path.write_text(f"before\n{page.MARKS[0]}\nold\n{page.MARKS[1]}\nafter\n")
    command.main(["desk", "--results", str(results.parent), "--page", str(path)])
    out = capsys.readouterr().out
    assert "headline\n" in out and "reaches AUC 0.991" in out and "not run" in out
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "### Tab S8: Branch-ELM on NeuronIO" in text and "| reproduced" in text
    command.main(["desk", "--results", str(results.parent), "--page", str(path)])
    assert path.read_text() == text
    with pytest.raises(SystemExit, match="make paper"):
        command.main(["smoke", "--results", str(results.parent)])
    path.write_text("no marks")
    with pytest.raises(DataError, match="has lost"):
        page.write_page(path, pd.read_csv(results / verdict.VERDICTS))


def test_a_verdict_table_read_again_is_the_same(table):
    again = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    assert page.markdown(again).split("### Fig 1: ")[1].split("\n\n")[1] == "1 drawn."  # no count
    assert (again.verdict == table.verdict.to_numpy()).all()
    assert again.sampling_error.dropna().eq(verdict.NOT_KNOWN).all()


@pytest.mark.parametrize(("name", "rows"), [("tabS1", 19), ("tabS2", 6), ("tabS3", 6)])
def test_hyper_parameters_are_the_published_ones(params, name, rows):
    table = settings.tables(params)[name]
    assert table.agrees.all() and len(table) == rows, table[~table.agrees]


def test_a_changed_hyper_parameter_is_not_reproduced(params):
    experiment = params.experiment("neuronio_branch_elm")
    changed = settings.defaults(
        experiment.model_copy(update={"model": experiment.model | {"lambda_": 5.0}}), "elm_defaults"
    )
    assert changed[~changed.agrees].parameter.tolist() == ["lambda"]
