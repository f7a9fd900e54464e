"""What stands under the pictures of a notebook, and the learning curves of the train notebook."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from elm_lib.paper import rows
from elm_lib.paper.figures import style, training
from elm_lib.paper.supplement import MOST, Supplement, seen

DESK = Path(__file__).resolve().parents[2] / "results/desk"


@pytest.fixture(scope="module")
def verdicts():
    return rows.read(pd.read_csv(DESK / "verdicts.csv"))


def test_one_sentence_says_what_is_seen_and_what_is_not(verdicts):
    some = verdicts[verdicts.claim == "Fig 2"].reset_index(drop=True)
    some["verdict"] = ["reproduced", "short at 7 %", *["not run"] * (len(some) - 2)]
    said = seen(some)
    assert said.startswith(f"Seen: 2 of {len(some)} published values and claims (1 reproduced, 1 short at N %);")
    assert f"want of a run: {len(some) - 2}, such as “{some['item'][2]}”." in said
    assert seen(some.head(2)).endswith("(1 reproduced, 1 short at N %).")
    assert "Seen: 0 of" in seen(some.iloc[2:]) and "(" not in seen(some.iloc[2:]).split(";")[0]


def test_rows_that_were_run_stand_in_a_table(verdicts):
    text = repr(Supplement(verdicts)("Tab S8"))
    ran = verdicts[(verdicts.claim == "Tab S8") & (verdicts.verdict != "not run")]
    assert sum(line.startswith("| Branch-ELM") for line in text.splitlines()) == min(len(ran), MOST)
    assert "0.99296 ± 0.001" in text and "100 %" in text
    assert f"{len(verdicts[(verdicts.claim == 'Tab S11') & (verdicts.verdict != 'not run')]) - MOST} more rows" in repr(
        Supplement(verdicts)("Tab S11")
    )


def test_numbers_are_written_for_readers(verdicts):
    (row,) = rows.rows_of(verdicts[verdicts.claim == "headline"])
    assert (row["published"], row["n"], row["training"]) == ("0.9924", "1", "100 %")
    counts = rows.rows_of(verdicts[verdicts["item"] == "LSTM n=15 parameters"])
    assert [(one["published"], one["ours"], one["training"]) for one in counts] == [("77,670", "77,672", rows.NOTHING)]


# ---- learning curves -------------------------------------------------------------------------------------------------


def curve(sizes) -> pd.DataFrame:
    steps = np.arange(1, 6) * 1000
    parts = [pd.DataFrame({"size": [s] * 5, "seed": 0, "step": steps, "valid_error": 1 / steps}) for s in sizes]
    return pd.concat(parts, ignore_index=True)


def test_legends_stand_beside_the_curves_and_name_what_is_varied():
    style.use()
    curves = {"shd_elm": curve([1, 2, 4, 6, 8, 10, 20, 50, 100]), "shd_lstm": curve([10]), "shd_snn": curve([1])[:0]}
    figure = training.learning_curves(curves, dict.fromkeys(curves, "bin_ms"), "error", "shd")
    figure.canvas.draw()
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == ["ELM", "LSTM"]
    for axis in panels:
        legend = axis.get_legend()
        assert legend.get_title().get_text() == "bin size (ms)"
        assert not legend.get_window_extent().overlaps(axis.get_window_extent())
        assert all(not legend.get_window_extent().overlaps(other.get_tightbbox()) for other in panels if other != axis)
        assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert len(panels[0].get_lines()) >= 9
    plt.close(figure)


def test_groups_and_arguments_have_names_that_a_reader_knows(params):
    assert set(training.GROUPS) == set(params.groups)
    assert {experiment.vary for experiment in params.experiments.values()} <= set(training.NAMES)
    for group, entry in params.groups.items():
        titles = [training.title(name, group) for name in entry.experiments]
        assert len(set(titles)) == len(titles), titles
        assert not any("_" in title.replace("$", "") for title in titles)
    assert training.value("[1, 50]") == "1 to 50" and training.value("[25, 25]") == "25"
    assert training.value("pathfinder_x") == "Pathfinder-X" and training.value(20.0) == "20"
