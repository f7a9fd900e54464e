"""Trained weights out of the ledger, as models ready to predict."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.models.registry import build
from elm_lib.support.errors import DataError


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
        raise DataError(f"{weights} is not the file that {path.name} names (sha256): take both from one commit")
    meaning = entry["meaning"]
    model = build(meaning["model"], **task_class(meaning["task"]).sizes(**meaning["options"]))
    model.load_state_dict(load(image))
    return model.eval()
