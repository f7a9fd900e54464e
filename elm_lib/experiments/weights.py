"""Trained weights: kept with the description of their model, loaded by size."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
from safetensors.torch import load_file
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.experiments.execute import Run, size
from elm_lib.models.registry import build
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_json

MODEL_JSON = "model.json"


def save(runs: list[Run], folder: str | Path, experiment: str) -> None:
    """folder/<experiment>/<size>_<seed>.safetensors of every run that did not diverge, and model.json."""
    folder = Path(folder) / experiment
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for run in runs:
        source = Path(run.folder) / "model.safetensors"
        if source.exists():  # a divergent run has none
            shutil.copyfile(source, folder / f"{_name(size(run), run.seed)}.safetensors")
    made = {_name(size(run), run.seed): {"task": run.task, "options": run.options, "model": run.model} for run in runs}
    write_json(folder / MODEL_JSON, made)


def _name(size, seed: int) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{size}_{seed}")


def load_best(runs: pd.DataFrame, folder: str | Path, *, size: int) -> nn.Module:
    """The run of this size with the lowest validation RMSE, ready to predict. Raises DataError when there is none."""
    kept = runs[(runs["size"] == size) & ~runs.diverged]
    if kept.empty:
        raise DataError(
            f"no finished run of size {size} in {runs.experiment.iloc[0]}: add it to points in params.yaml and run the experiment"
        )
    best = kept.loc[kept.valid_rmse.idxmin()]
    return load(Path(folder) / best.experiment / f"{_name(size, best.seed)}.safetensors")


def load(path: Path) -> nn.Module:
    """A trained model from its .safetensors, built as model.json beside it says. Raises DataError when either is missing."""
    description = path.with_name(MODEL_JSON)
    for needed in (path, description):
        if not needed.is_file():
            raise DataError(f"{needed} is missing: run `dvc repro train@{path.parents[1].name}`")
    entry = json.loads(description.read_text())[path.stem]
    model = build(entry["model"], **task_class(entry["task"]).sizes(**entry["options"]))
    model.load_state_dict(load_file(path))
    return model.eval()
