"""What a profile asks for: planned runs, each under a key that hashes what the run means.

The key holds model, task, training, seed, the recipe of training and validation data, and the REVISION of the code of model,
data set, generator and trainer. It does not hold source code, devices, jobs, threads, or the test set. Options at their
default are left out, so a new option voids nothing.
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
from elm_lib.experiments.config import Params, share
from elm_lib.models.registry import KINDS, arguments_of, model_class
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
    """A run that a profile asks for."""

    group: str
    experiment: str
    vary: str
    value: Any  # of the varied argument
    seed: int
    first_seed: bool
    default: bool  # the value that the experiment itself names, as the model of its table
    task: str  # data set
    options: dict[str, Any]
    model: dict[str, Any]
    train: Train
    published: Train  # without the profile's caps
    recipe: dict[str, dict[str, Any]]  # {"train": of training and validation data, "test": of the test set}
    labels: dict[str, Any] = field(default_factory=dict)  # profile, data source, morphology

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
        return json.dumps(self.value) if isinstance(self.value, list) else self.value

    @property
    def budget(self) -> float:
        """The fraction of the published budget that it has."""
        return share(self.train, self.published)

    @property
    def is_shown(self) -> bool:
        """Whether a figure shows this very model."""
        return self.first_seed and (self.experiment, self.size) in SHOWN

    def run(self, data: str | Path, folder: str | Path, device: str, threads: int) -> Run:
        """How to do it: with the data set below `data`, its working files in folder/<experiment>/<key>."""
        return Run(
            experiment=self.experiment,
            task=self.task,
            model=self.model,
            train=self.train.model_dump(),
            seed=self.seed,
            data=str(Path(data) / self.task),
            folder=str(Path(folder) / self.experiment / self.key),
            options=self.options,
            device=device,
            threads=threads,
            labels={**self.labels, "vary": self.vary, "size": self.size},
            shown=self.is_shown,
        )


def plan(params: Params, profile: str, groups: list[str] | None = None, *, data: str | Path) -> list[Planned]:
    """The runs that a profile asks for, group by group, in the order of params.yaml.

    data  folder that holds the prepared data sets. Only published files are looked at (for their checksums).
    Raises ConfigError for a group, an option or a value that does not exist; DataError where published files are missing.
    """
    unknown = sorted(set(groups or []) - set(params.groups))
    if unknown:
        raise ConfigError(f"params.yaml has no group {unknown}: choose of {sorted(params.groups)}")
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
            task.sizes(**point.options)
            follow = task.arguments(**point.options) if hasattr(task, "arguments") else {}
        except TypeError as error:  # an option that the task does not have, or lacks, or a value that is no number
            names = list(inspect.signature(task.sizes).parameters)
            raise ConfigError(
                f"params.yaml: {name}, task = {point.options}: {error}; its options are {names}"
            ) from None
        known = arguments_of(model_class(point.model))
        model = {key: value for key, value in follow.items() if key in known} | point.model
        recipe = datasets.recipe(task_name, settings, data / task_name, point.options)
        labels = {"profile": profile, **datasets.label(task_name, settings, point.options)}
        for seed in point.seeds:
            found.append(
                Planned(
                    group=group,
                    experiment=name,
                    vary=point.vary,
                    value=point.value,
                    seed=seed,
                    first_seed=seed == point.seeds[0],
                    default=point.value == (experiment.model | experiment.task)[point.vary],
                    task=task_name,
                    options=point.options,
                    model=model,
                    train=point.train,
                    published=point.published,
                    recipe=recipe,
                    labels=labels,
                )
            )
    return found


def revisions(model: dict[str, Any], task: str) -> dict[str, int]:
    """REVISION of the code behind a run: model (and the model inside it), data set, trainer. A generator's is in the recipe."""
    found = {}
    for part in (model, model.get("encoder")):
        if part:
            found[part["kind"]] = import_module(KINDS[part["kind"]][0]).REVISION
    found[task] = import_module(f"elm_lib.datasets.{task}.task").REVISION
    return found | {"trainer": trainer.REVISION}


def without_defaults(model: dict[str, Any]) -> dict[str, Any]:
    """A `model:` entry without the arguments that have their default value. Nested models too."""
    defaults = default_arguments(model_class(model))
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
            for name, parameter in inspect.signature(cls.__init__).parameters.items():
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
