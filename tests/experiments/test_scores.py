"""Results that cannot be are refused by name; none of them is ever a verdict."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from elm_lib.experiments.ledger import Ledger
from elm_lib.experiments.scores import check_scores
from elm_lib.paper.points import points
from elm_lib.support.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
WRONG = [("test_auc", 1.7), ("test_released_auc", math.inf), ("valid_rmse", -1.0), ("test_accuracy", "0.5")]


@pytest.fixture
def entry(tmp_path) -> Path:
    """An entry of the committed ledger, copied."""
    path = min((ROOT / "results/ledger/neuronio").rglob("*.json"))
    target = tmp_path / "neuronio" / path.parent.name / path.name
    target.parent.mkdir(parents=True)
    shutil.copy(path, target)
    return target


def ledger(entry: Path) -> Ledger:
    return Ledger(entry.parents[2])


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_entry_with_a_score_that_cannot_be_is_named(entry, name, value):
    assert len(ledger(entry).entries) == 1
    content = json.loads(entry.read_text())
    content["test"]["scores"][name] = value
    entry.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"{entry}: {name} = ") as error:
        ledger(entry).entries  # noqa: B018
    assert "\n" not in str(error.value)


def test_a_run_that_is_listed_twice_is_named(entry):
    other = entry.parents[2] / "another" / entry.parent.name / entry.name
    other.parent.mkdir(parents=True)
    shutil.copy(entry, other)
    with pytest.raises(DataError, match=rf"{entry}: the same run as {other}: keep one"):
        ledger(entry).entries  # noqa: B018
    other.rename(other.with_stem("copy"))
    with pytest.raises(DataError, match=r"copy\.json is named for another run"):
        ledger(entry).entries  # noqa: B018
    other.with_stem("copy").write_text("[]")
    with pytest.raises(DataError, match=r"copy\.json is no entry"):
        ledger(entry).entries  # noqa: B018


def run(**changes) -> dict:
    return {"experiment": "e", "size": 20, "seed": 0, "budget": 1.0, "diverged": False, "test_auc": 0.99} | changes


def test_a_table_of_runs_is_held_to_the_same(tmp_path):
    assert list(points({"e": pd.DataFrame([run(), run(seed=1), run(budget=0.5)])}, "e", 20)) == [1.0, 0.5]
    for column, value in (("test_auc", 1.7), ("test_auc", math.inf), ("valid_rmse", -1.0)):
        with pytest.raises(DataError, match=rf"run of e, size 20, seed 1: {column} = {value}"):
            points({"e": pd.DataFrame([run(), run(seed=1, **{column: value})])}, "e", 20)
    with pytest.raises(DataError, match="run of e, size 20, seed 3 is listed twice"):
        points({"e": pd.DataFrame([run(), run(seed=3), run(seed=3)])}, "e", 20)


def test_every_committed_score_can_be():
    for entry in Ledger(ROOT / "results/ledger").entries.values():
        check_scores(str(entry["path"]), entry["scores"])
    check_scores("an undefined one", {"test_auc": math.nan})
