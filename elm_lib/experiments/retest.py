"""A profile with another test set: the kept weights of its runs are tested on that one, without training."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from elm_lib import datasets
from elm_lib.datasets import task_class
from elm_lib.experiments.ledger import Ledger, weights_of
from elm_lib.experiments.plan import Planned
from elm_lib.experiments.weights import load_trained
from elm_lib.support.files import write_npz, write_text


def outdated(planned: Iterable[Planned], ledger: Ledger) -> list[Planned]:
    """Planned runs whose entry has weights, and scores of another test set than the profile's."""
    found = []
    for one in planned:
        entry = ledger.entry(one)
        if entry and weights_of(entry) and entry["test"]["recipe"] != one.recipe["test"]:
            found.append(one)
    return found


def retest(planned: Iterable[Planned], ledger: Ledger, settings: Any, *, data: Path, raw: Path) -> int:
    """Test the weights of `outdated` runs on the profile's test set, which is made where it is missing; how many.

    settings  the profile: how each data set is prepared
    data, raw where data sets and downloads are
    Statistics and scores of the entry, and what figures show of the test set, are replaced. Its curve, its weights and
    what `made` says stay.
    """
    todo = outdated(planned, ledger)
    for name in dict.fromkeys(one.task for one in todo):
        datasets.ensure(name, getattr(settings, name), raw=raw, out=data / name, splits=("test",))
    for one in todo:
        entry = ledger.entries[one.experiment, one.key]
        path: Path = entry["path"]
        task = task_class(one.task)(data / one.task, one.train.batch_size, one.seed, **one.options)
        model = load_trained(path)
        scores, statistics = task.evaluate(model, splits=("test",))
        if path.with_suffix(".npz").is_file():
            with np.load(path.with_suffix(".npz")) as file:  # what it holds of validation stays
                statistics = {name: file[name] for name in file.files if name.startswith("valid_")} | statistics
        write_npz(path.with_suffix(".npz"), statistics, compressed=True)
        if one.is_shown:
            write_npz(path.with_name(f"{one.key}_shown.npz"), task.example(model), compressed=True)
        kept = {name: value for name, value in entry.items() if name != "path"}
        kept["test"] = {"recipe": one.recipe["test"], "scores": scores}
        write_text(path, json.dumps(kept, indent=1) + "\n")
    return len(todo)
