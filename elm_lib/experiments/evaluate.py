"""Weights of the ledger evaluated again: do the data that are made here give the scores that it holds?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from elm_lib.datasets import task_class
from elm_lib.experiments.ledger import Ledger, weights_of
from elm_lib.experiments.plan import Planned
from elm_lib.experiments.weights import load_trained
from elm_lib.support.files import read_npz

PART = {"neuronio": 32, "shd": 400}  # simulations, words of the test set; of other data sets all of it
COLUMNS = ["experiment", "size", "seed", "score", "ledger", "again", "difference", "samples"]
EQUAL = 1e-6  # relative difference below which two scores count as equal: float32 sums in another order


def evaluate_again(planned: list[Planned], ledger: Ledger, data: str | Path, *, whole: bool = False) -> pd.DataFrame:
    """A row each score: of the ledger, and by the same weights on the test set below `data`, over the same samples.

    whole  every run with weights on the whole test set; else the default points on the first samples of it
    """
    rows = []
    for one in planned:
        entry = ledger.entry(one)
        if entry is None or weights_of(entry) is None or not (whole or one.default):
            continue
        if not (Path(data) / one.task).is_dir():  # its test set could not be made
            continue
        most = None if whole else PART.get(one.task)
        task = task_class(one.task)(Path(data) / one.task, one.train.batch_size, one.seed, **one.options)
        if not has_samples(one, task):
            continue
        _, again = task.evaluate(load_trained(entry["path"]), most=most, splits=("test",))
        kept = read_npz(entry["path"].with_suffix(".npz"))
        before = {name: kept[name][: len(again[name])] for name in again if name in kept}
        theirs, ours = (task.scores_from_statistics(arrays) for arrays in (before, again))
        names: dict[str, Any] = {"experiment": one.experiment, "size": one.size, "seed": one.seed}
        for name in ours:
            rows.append(
                names
                | {
                    "score": name,
                    "ledger": theirs[name],
                    "again": ours[name],
                    "difference": ours[name] - theirs[name],
                    "samples": len(next(iter(again.values()))),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def has_samples(one: Planned, task: Any) -> bool:
    """Whether the test set that is here has the samples of a run. The pairs of SHD-Adding are drawn from all its words,
    so a part of the words does not do."""
    words = one.recipe["test"].get("words")
    return not one.options.get("adding") or words is None or len(task.data.file("test")) >= words


def summary(found: pd.DataFrame) -> str:
    """One line: how many scores came out equal, and the largest difference."""
    if found.empty:
        return "no weights of this profile are kept: nothing was evaluated again"
    relative = found.difference.abs() / found.ledger.abs().clip(lower=1e-12)
    equal = int((relative <= EQUAL).sum())
    line = f"{equal} of {len(found)} scores of trained weights came out equal"
    if equal < len(found):
        worst = found.loc[relative.idxmax()]
        largest = 100 * float(relative.max())
        shown = "NaN" if math.isnan(largest) else f"{largest:.2g} %"
        line += f"; largest difference {shown} ({worst.experiment}, {worst['size']}, {worst.score})"
    return line
