"""Parameters and FLOPs of the models of params.yaml. They need no training."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.experiments.config import Params
from elm_lib.models import cost
from elm_lib.models.registry import build


def counts(params: Params, experiment: str, size, **changes: Any) -> tuple[int, int]:
    """Trainable parameters, and FLOPs of one sample, of an experiment's model at a size.

    changes: arguments of the model that differ
    """
    found = params.experiment(experiment)
    model = found.model_at(size) | changes
    return _counts(found.data, json.dumps(found.options_at(size)), json.dumps(model))


@cache
def _counts(data: str, options: str, model: str) -> tuple[int, int]:
    task, arguments = task_class(data), json.loads(options)
    built = _built(model, **task.sizes(**arguments))
    return cost.parameters(built), cost.count(built, task.steps(**arguments))


@lru_cache(maxsize=8)
def _built(model: str, input_size: int, d_o: int) -> nn.Module:
    """Sizes of one experiment, say of a bin, often have one model."""
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and nobody uses them
        return build(json.loads(model), input_size=input_size, d_o=d_o)
