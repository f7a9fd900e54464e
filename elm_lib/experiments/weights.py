"""Trained weights out of the ledger, as models ready to predict."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.experiments.config import Params
from elm_lib.experiments.ledger import Ledger, shown_of, weights_of
from elm_lib.experiments.plan import Planned, revisions
from elm_lib.interface.settings import with_settings
from elm_lib.models.registry import build
from elm_lib.support.errors import DataError
from elm_lib.support.files import read_npz


def load_trained(path: str | Path) -> nn.Module:
    """The model of a ledger entry (its .json), with the weights beside it.

        >>> model = load_trained("results/ledger/neuronio/neuronio_branch_elm/<key>.json")
        >>> y, state = model(x)  # x (B, T, 1278) -> y (B, T, 2): spike logit, scaled voltage

    Raises DataError when a file is missing, or when the weights are not those that the entry names.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is missing: give the .json of a ledger entry, below results/ledger or runs/ledger")
    entry: dict[str, Any] = json.loads(path.read_text())
    weights = path.with_suffix(".safetensors")
    if not weights.is_file():
        raise DataError(f"{weights} is missing: the weights of this run were not kept; train it again to have them")
    image = weights.read_bytes()
    if hashlib.sha256(image).hexdigest() != entry["weights"]["sha256"]:
        raise DataError(f"{weights}: its sha256 is not the one in {path.name}: take both files from one commit")
    meaning = entry["meaning"]
    now = revisions(meaning["model"], meaning["task"])
    if now != meaning["revisions"]:
        raise DataError(
            f"{path} was made with revisions {meaning['revisions']}, this code has {now}: use the commit that made it, "
            f"{entry['made']['commit']}"
        )
    model = build(meaning["model"], **task_class(meaning["task"]).sizes(**meaning["options"]))
    model.load_state_dict(with_settings(load(image), model))  # older files lack the settings, which are in the entry
    return model.eval()


def fullest_trained(folder: str | Path, size: Any) -> Path:
    """The ledger entry (its .json) of an experiment at a value of `vary` whose weights had the most training.

    folder   of the experiment, such as results/ledger/neuronio/neuronio_branch_elm
    Raises DataError where there are no weights of that size.
    """
    entries = [path for path in sorted(Path(folder).glob("*.json")) if path.with_suffix(".safetensors").is_file()]
    budgets = {path: entry["budget"] for path in entries if (entry := json.loads(path.read_text()))["size"] == size}
    if not budgets:
        raise DataError(f"{folder}: no weights of size {size!r}: take the folder from git, or train this size")
    return max(budgets, key=lambda path: budgets[path])


def shown_model(planned: list[Planned], ledger: Ledger) -> tuple[nn.Module | None, dict[str, np.ndarray] | None]:
    """The model that Figures 2a, 4b and S9 show, and the simulation that they show with its prediction.

    None for each that this ledger does not have.
    """
    for one in planned:
        entry = ledger.entry(one)
        if entry and one.is_shown:
            stored = shown_of(entry)
            model = load_trained(entry["path"]) if weights_of(entry) else None
            return model, read_npz(stored) if stored else None
    return None, None


def trained_or_new(
    params: Params, planned: list[Planned], ledger: Ledger, experiment: str, size: Any
) -> tuple[nn.Module, str]:
    """The first model of an experiment at a value of `vary` whose weights the ledger has, and how far it is trained.

    Without one: the model as it starts, of torch's seed 0.
    """
    for one in planned:
        entry = ledger.entry(one) if (one.experiment, one.point.value) == (experiment, size) else None
        if entry and weights_of(entry):
            return load_trained(entry["path"]), f"after {100 * entry['budget']:.2g} % of the published training"
    asked = params.experiment(experiment)
    torch.manual_seed(0)
    model = build(asked.model_at(size), **task_class(asked.data).sizes(**asked.options_at(size)))
    return model.eval(), "before training"
