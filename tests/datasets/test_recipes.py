"""A run's data are told without the data, and what was made earlier still counts."""

import json
from pathlib import Path

import pytest

from elm_lib.datasets import label, recipe
from elm_lib.datasets.lra.settings import Lra, LraTask
from elm_lib.datasets.neuronio.settings import NeuronIO, Split
from elm_lib.datasets.shd.settings import Shd
from elm_lib.support import manifest
from elm_lib.support.errors import DataError

NOWHERE = Path("no/such/folder")
NARROW = Split(simulations=4, duration_ms=1500, ranges="narrow", dt_ms=0.1)
CELL = NeuronIO(source="generated", morphology="exact", seed=1, train=NARROW, valid=NARROW, test=NARROW)
WORDS = Shd(source="generated", seed=1, train=240, test=60, valid_pairs=100, test_pairs=200)
POOL = LraTask(source="generated", train=8, valid=4, test=5)
LISTS = LraTask(source="generated", train=8, valid=4, test=5, min_length=500, max_length=2000)
ARENA = Lra(seed=1, listops=LISTS, text=POOL, retrieval=POOL, image=POOL, pathfinder=POOL, pathfinder_x=None)


def changed(settings, **change):
    """With another value, `part__key` for one of a part."""
    content = settings.model_dump()
    for name, value in change.items():
        *part, key = name.split("__")
        (content[part[0]] if part else content)[key] = value
    return type(settings).model_validate(content)


def differs(name, settings, options, **change) -> set[str]:
    ours, theirs = (recipe(name, s, NOWHERE, options) for s in (settings, changed(settings, **change)))
    assert json.loads(json.dumps(ours)) == ours
    return {part for part in ours if ours[part] != theirs[part]}


def test_a_setting_changes_the_recipes_of_what_it_makes_and_no_other():
    assert differs("neuronio", CELL, {}, train__simulations=5) == {"train"}
    assert differs("neuronio", CELL, {}, valid__dt_ms=0.05) == {"train"}
    assert differs("neuronio", CELL, {}, test__simulations=5) == {"test"}
    assert (
        differs("neuronio", CELL, {}, seed=2)
        == differs("neuronio", CELL, {}, morphology="default")
        == {"train", "test"}
    )

    digits, sums = {"adding": False}, {"adding": True}
    assert differs("shd", WORDS, digits, train=241) == {"train"}
    assert differs("shd", WORDS, digits, test=61) == {"test"}
    assert differs("shd", WORDS, digits, valid_pairs=5, test_pairs=5) == set()
    assert differs("shd", WORDS, sums, valid_pairs=5) == {"train"}
    assert differs("shd", WORDS, sums, test_pairs=5) == {"test"}

    for task, larger_train, larger_test in (
        ("pathfinder", {"train"}, {"test"}),
        ("listops", {"train"}, {"train", "test"}),  # what is in test is never in train
        ("text", {"train", "test"}, {"train", "test"}),  # one pool
    ):
        assert differs("lra", ARENA, {"name": task}, **{f"{task}__train": 9}) == larger_train
        assert differs("lra", ARENA, {"name": task}, **{f"{task}__test": 9}) == larger_test
        assert differs("lra", ARENA, {"name": task}, image__train=9) == set()
    assert differs("lra", ARENA, {"name": "listops"}, listops__max_length=600) == {"train", "test"}


def test_labels_say_what_the_data_are():
    assert label("neuronio", CELL, {}) == {"source": "generated", "morphology": "exact"}
    assert label("neuronio", changed(CELL, source="real"), {}) == {"source": "real", "morphology": ""}
    assert label("shd", WORDS, {"adding": True}) == {"source": "generated", "morphology": ""}
    short = changed(ARENA, listops__max_length=600)
    for settings, task, source in (
        (ARENA, "listops", "generated"),
        (short, "listops", "generated, shortened"),
        (ARENA, "text", "stand-in"),
        (ARENA, "image", "stand-in"),
        (ARENA, "pathfinder", "generated"),
    ):
        assert label("lra", settings, {"name": task})["source"] == source


@pytest.mark.parametrize(
    ("name", "settings", "options", "folder"),
    [
        ("neuronio", changed(CELL, source="real"), {}, "."),
        ("shd", changed(WORDS, source="real"), {"adding": False}, "."),
        (
            "lra",
            changed(ARENA, listops={"source": "real", "train": None, "valid": None, "test": None}),
            {"name": "listops"},
            "listops",
        ),
    ],
)
def test_published_files_are_told_by_their_checksums(tmp_path, name, settings, options, folder):
    with pytest.raises(
        DataError, match=rf"manifest\.json: does not say what train.* holds: run `dvc repro preprocess_{name}`"
    ):
        recipe(name, settings, tmp_path, options)
    paths = {split: tmp_path / folder / f"{split}.h5" for split in ("train", "valid", "test")}
    for split, path in paths.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(split)
    manifest.describe(tmp_path / folder, {split: [path] for split, path in paths.items()}, source="real")
    first = recipe(name, settings, tmp_path, options)
    paths["test"].write_text("another")
    manifest.describe(tmp_path / folder, {"test": [paths["test"]]}, source="real")  # the others stay described
    second = recipe(name, settings, tmp_path, options)
    assert first["train"] == second["train"]
    assert first["test"] != second["test"]
    assert first["test"]["source"] == "real"
