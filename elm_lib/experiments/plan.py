"""What a profile asks for: planned runs, each under a key that hashes what the run means.

The key holds model, task, training, seed, the recipe of training and validation data, and the REVISION of the code of
model, data set, generator and trainer. It does not hold source code, devices, jobs, threads, or the test set. Options
at their default are left out, so a new option voids nothing.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from elm_lib import datasets
from elm_lib.datasets import task_class
from elm_lib.experiments.check import check_model, check_options
from elm_lib.experiments.config import Params, Point
from elm_lib.models.registry import KINDS, LEFT_OUT, arguments_of, model_class
from elm_lib.support.errors import ConfigError
from elm_lib.training import run as trainer
from elm_lib.training.optimisation import Train
from elm_lib.training.run import Run

KEY_LENGTH = 16  # hexadecimal digits of the sha256
NOT_MEANING = ("accumulate",)  # of Train: it bounds memory and changes no result

# Figures 2a, 4b and S9 show this run: its weights are kept, and the simulation that they show
SHOWN = {("neuronio_branch_elm", 20)}


@dataclass(frozen=True)
class Planned:
    """A run that a profile asks for: a point of an experiment, with one seed."""

    group: str
    point: Point
    model: dict[str, Any]  # of the point, with what follows from the task
    seed: int
    default: bool  # the value that the experiment itself names, as the model of its table
    recipe: dict[str, dict[str, Any]]  # {"train": of training and validation data, "test": of the test set}
    labels: dict[str, Any] = field(default_factory=dict)  # profile, data source, morphology

    @property
    def experiment(self) -> str:
        return self.point.experiment

    @property
    def task(self) -> str:
        """The data set."""
        return self.point.data

    @property
    def options(self) -> dict[str, Any]:
        """Of the task."""
        return self.point.options

    @property
    def vary(self) -> str:
        return self.point.vary

    @property
    def train(self) -> Train:
        return self.point.train

    @property
    def published(self) -> Train:
        """The training without the profile's caps."""
        return self.point.published

    @property
    def first_seed(self) -> bool:
        return self.seed == self.point.seeds[0]

    @property
    def meaning(self) -> dict[str, Any]:
        """What the key hashes."""
        return canonical(
            {
                "task": self.task,
                "options": self.options,
                "model": without_defaults(self.model),
                "train": _train_meaning(self.train),
                "seed": self.seed,
                "data": self.recipe["train"],
                "revisions": revisions(self.model, self.task),
                **_precision(),
            }
        )

    @property
    def key(self) -> str:
        """Identity of the run."""
        return digest(self.meaning)[:KEY_LENGTH]

    @property
    def size(self) -> Any:
        """The varied value as tables show it: a list as JSON text."""
        value = self.point.value
        return json.dumps(value) if isinstance(value, list) else value

    @property
    def budget(self) -> float:
        """The fraction of the published budget that it has."""
        return self.point.budget

    @property
    def is_shown(self) -> bool:
        """Whether a figure shows this very model."""
        return self.first_seed and (self.experiment, self.size) in SHOWN

    def run(self, data: str | Path, folder: str | Path, device: str, threads: int) -> Run:
        """How to do it: with the data set below `data`, its working files in folder/<key>."""
        return Run(
            experiment=self.experiment,
            task=self.task,
            model=self.model,
            train=self.train.model_dump(),
            seed=self.seed,
            data=str(Path(data) / self.task),
            folder=str(Path(folder) / self.key),
            options=self.options,
            device=device,
            threads=threads,
            labels={**self.labels, "vary": self.vary, "size": self.size},
            shown=self.is_shown,
        )


def plan(params: Params, profile: str, groups: list[str] | None = None, *, data: str | Path) -> list[Planned]:
    """The runs that a profile asks for, group by group, in the order of params.yaml.

    data  folder that holds the prepared data sets. Only published files are looked at (for their checksums).
    Raises ConfigError for a group, an option or a value that does not exist; DataError where published files are
    missing.
    """
    unknown = sorted(set(groups or []) - set(params.groups))
    if unknown:
        raise ConfigError(f"params.yaml has no group {unknown}: choose from {sorted(params.groups)}")
    planned = []
    for group in groups or params.groups:
        for name in params.groups[group].experiments:
            planned += _of_experiment(params, group, name, profile, Path(data))
    return planned


def _of_experiment(params: Params, group: str, name: str, profile: str, data: Path) -> list[Planned]:
    task_name, experiment, found = params.groups[group].data, params.experiment(name), []
    task, settings = task_class(task_name), getattr(params.profiles[profile], task_name)
    for point in params.planned(name, profile):
        try:
            check_model(point.model, check_options(task_name, point.options))
        except ConfigError as error:
            raise ConfigError(f"experiments.{group}.{name} at {point.vary} = {point.value!r}: {error}") from None
        follow = task.arguments(**point.options) if hasattr(task, "arguments") else {}
        known = arguments_of(model_class(point.model))
        model = {key: value for key, value in follow.items() if key in known} | point.model
        recipe = datasets.recipe(task_name, settings, data / task_name, point.options)
        labels = {"profile": profile, **datasets.label(task_name, settings, point.options)}
        default = point.value == (experiment.model | experiment.task)[point.vary]
        found += [Planned(group, point, model, seed, default, recipe, labels) for seed in point.seeds]
    return found


def revisions(model: dict[str, Any], task: str) -> dict[str, int]:
    """REVISION of the code behind a run: model (and the model inside it), data set, trainer. A generator's is in the
    recipe."""
    found = {}
    for part in (model, model.get("encoder")):
        if part:
            found[part["kind"]] = import_module(KINDS[part["kind"]][0]).REVISION
    found[task] = import_module(f"elm_lib.datasets.{task}.task").REVISION
    return found | {"trainer": trainer.REVISION}


def without_defaults(model: dict[str, Any]) -> dict[str, Any]:
    """A `model:` entry without the arguments that have the value which leaving them out means. Nested models too."""
    defaults = default_arguments(model_class(model)) | LEFT_OUT.get(model["kind"], {})
    kept = {
        name: without_defaults(value) if isinstance(value, dict) and "kind" in value else value
        for name, value in model.items()
    }
    return {name: value for name, value in kept.items() if name not in defaults or not _equal(defaults[name], value)}


def default_arguments(kind: type) -> dict[str, Any]:
    """Default values of a model's arguments, its parents' included."""
    found: dict[str, Any] = {}
    for cls in reversed(kind.__mro__):
        if "__init__" in vars(cls):
            for name, parameter in inspect.signature(vars(cls)["__init__"]).parameters.items():
                if parameter.default is not parameter.empty:
                    found[name] = parameter.default
    return found


def _equal(default: Any, value: Any) -> bool:
    return canonical(default) == canonical(value)


def _train_meaning(train: Train) -> dict[str, Any]:
    """What of the training settings changes a result."""
    defaults = {name: info.default for name, info in Train.model_fields.items() if not info.is_required()}
    content = train.model_dump()
    return {
        name: value
        for name, value in content.items()
        if name not in NOT_MEANING and (name not in defaults or defaults[name] != value)
    }


def _precision() -> dict[str, str]:
    """The precision of float32 products, where it is not the full one."""
    precision = torch.get_float32_matmul_precision()
    return {} if precision == "highest" else {"precision": precision}


def canonical(content: Any) -> Any:
    """The same content in one form: whole numbers without a point, tuples as lists, keys as text."""
    if isinstance(content, dict):
        return {str(key): canonical(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [canonical(value) for value in content]
    if isinstance(content, float) and content.is_integer():
        return int(content)
    return content


def digest(content: Any) -> str:
    """sha256 of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(canonical(content), sort_keys=True).encode()).hexdigest()
