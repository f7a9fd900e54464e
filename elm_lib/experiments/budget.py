"""How much of an experiment a profile runs: caps on its budget, and the points that come of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from elm_lib.datasets import task_class
from elm_lib.experiments.experiment import Experiment, Seconds, merged
from elm_lib.support.strict import Count, Strict
from elm_lib.training.optimisation import Train


class Cap(Strict):
    """The most of each; None: as published. In `caps` a key that is left out is taken from the wider entry."""

    epochs: Count | None = None
    batches_per_epoch: Count | None = None
    batch_size: Count | None = None
    seeds: Count | None = None

    def of(self, train: Train) -> Train:
        """How a run is trained under this cap."""
        wanted = {"epochs": self.epochs, "batches_per_epoch": self.batches_per_epoch, "batch_size": self.batch_size}
        less = {key: most for key, most in wanted.items() if most and most < getattr(train, key)}
        if "batch_size" in less:  # pieces as large as they were
            less["accumulate"] = -(-train.accumulate * less["batch_size"] // train.batch_size)
        return train.model_copy(update=less)


class Budgets(Cap):
    """A cap, or several: each of `budgets` is laid on the keys beside it, and the point is run at each."""

    budgets: Annotated[list[Cap], Field(min_length=1)] = [Cap()]


class Caps(Budgets):
    """Caps of an experiment, or of what a group shares; `each` at single values of `vary`."""

    each: dict[str, Budgets] = {}


@dataclass(frozen=True)
class Point:
    """Runs that differ in their seed alone: an experiment at a value of `vary` and at a budget."""

    experiment: str
    data: str
    vary: str
    value: Any
    options: dict[str, Any]  # of the task
    model: dict[str, Any]
    train: Train
    published: Train  # without caps
    seeds: tuple[int, ...]
    seconds_a_step: Seconds

    @property
    def budget(self) -> float:
        """Part of the published budget, in samples seen."""
        return share(self.train, self.published)

    def hours(self, device: Literal["cpu", "cuda"]) -> float:
        """Expected hours of one run, evaluation included: an estimate. On one core, or on an H100."""
        pieces = self.train.batch_size / self.published.batch_size
        return getattr(self.seconds_a_step, device) * pieces * self.train.steps / 3600


def points(name: str, experiment: Experiment, values: list[Any], caps: list[Caps]) -> list[Point]:
    """The points of an experiment at `values` under caps, from the widest to the nearest; the nearest that has a key
    wins."""
    entry: dict[str, Any] = {}
    for cap in caps:
        entry = merged(entry, cap.model_dump(exclude_unset=True))
    whole, found = Caps.model_validate(entry), []
    for value in values:
        said = merged(entry, whole.each[str(value)].model_dump(exclude_unset=True) if str(value) in whole.each else {})
        for train, seeds in _budgets(said, experiment, value).items():
            found.append(
                Point(
                    experiment=name,
                    data=experiment.data,
                    vary=experiment.vary,
                    value=value,
                    options=experiment.options_at(value),
                    model=experiment.model_at(value),
                    train=train,
                    published=experiment.train_at(value),
                    seeds=seeds,
                    seconds_a_step=_scaled(experiment, value),
                )
            )
    return found


def _budgets(said: dict[str, Any], experiment: Experiment, value: Any) -> dict[Train, tuple[int, ...]]:
    """Seeds by budget; budgets that come to the same are one, with the seeds of the larger."""
    keys = {key: said[key] for key in Cap.model_fields if key in said}
    found: dict[Train, tuple[int, ...]] = {}
    for budget in said.get("budgets", [{}]):
        cap = Cap.model_validate(keys | budget)
        train, seeds = cap.of(experiment.train_at(value)), tuple(experiment.seeds[: cap.seeds])
        found[train] = max(found.get(train, ()), seeds, key=len)
    return found


def _scaled(experiment: Experiment, value: Any) -> Seconds:
    """Seconds a step at a value: as said there, else in proportion to the samples' time steps and to the batch size."""
    change = experiment.each.get(str(value))
    if change is not None and change.seconds_a_step is not None:
        return change.seconds_a_step
    task: Any = task_class(experiment.data)
    ratio = task.steps(**experiment.options_at(value)) / task.steps(**experiment.task)
    ratio *= experiment.train_at(value).batch_size / experiment.train.batch_size
    return Seconds(cpu=ratio * experiment.seconds_a_step.cpu, cuda=ratio * experiment.seconds_a_step.cuda)


def share(train: Train, full: Train) -> float:
    """The part of the published budget: of its optimiser steps, times that of its batch size."""
    return train.steps * train.batch_size / (full.steps * full.batch_size)
