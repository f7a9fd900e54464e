"""params.yaml as frozen, typed objects. Unknown keys, wrong types and values out of range are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from elm_lib.datasets.lra.settings import Lra
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.datasets.shd.settings import Shd
from elm_lib.support.errors import ConfigError
from elm_lib.support.strict import Strict
from elm_lib.training.optimisation import Train

PROFILES = ("smoke", "laptop", "desk", "paper")


class Change(Strict):
    """What is different at one value of `vary`, say another data set of the same collection."""

    model: dict[str, Any] = {}
    train: dict[str, Any] = {}


def _twice(values: list[Any]) -> list[Any]:
    """What is in a list more than once."""
    return [value for k, value in enumerate(values) if value in values[:k]]


class Experiment(Strict):
    """One table or figure: a model, the one argument that is varied, seeds."""

    data: Literal["neuronio", "shd", "lra"]
    claim: str
    model: dict[str, Any]
    task: dict[str, Any]  # options of elm_lib.datasets.<data>
    vary: str  # an argument of model or task
    values: list[Any]
    train: Train
    seeds: list[NonNegativeInt]
    each: dict[str, Change] = {}  # value of `vary` -> keys of model and train that replace those above

    @model_validator(mode="after")
    def _each_names_values(self):
        strange = set(self.each) - set(map(str, self.values))
        if strange:
            raise ValueError(f"each: {sorted(strange)} is none of values = {self.values}")
        for value in self.each:
            self.train_at(value)
        return self

    @model_validator(mode="after")
    def _vary_is_known(self):
        if (self.vary in self.model) == (self.vary in self.task):
            raise ValueError(f"vary: {self.vary!r} must be an argument of model or of task, of one alone")
        if not self.values or not self.seeds or _twice(self.values) or _twice(self.seeds):
            raise ValueError(f"values = {self.values}, seeds = {self.seeds}: at least one of each, none twice")
        return self

    def model_at(self, value) -> dict[str, Any]:
        """The model at a value of `vary`; a change of kind replaces it whole."""
        change = self.each.get(str(value), Change()).model
        varied = {self.vary: value} if self.vary in self.model else {}
        return (change if "kind" in change else self.model | change) | varied

    def options_at(self, value) -> dict[str, Any]:
        """The options of the task at a value of `vary`."""
        return self.task | ({self.vary: value} if self.vary in self.task else {})

    def train_at(self, value) -> Train:
        """How a run at a value of `vary` is trained."""
        return Train.model_validate(self.train.model_dump() | self.each.get(str(value), Change()).train)


def _say_data_to_each(group: Any) -> Any:
    """`data` stands once, at the group: DVC reads it there."""
    if not isinstance(group, dict):
        return group
    twice = [name for name, entry in group.items() if isinstance(entry, dict) and "data" in entry]
    if twice:
        raise ValueError(f"{twice} say data again: it stands at the group alone")
    said = {"data": group.get("data")}
    return {k: said | entry if isinstance(entry, dict) else entry for k, entry in group.items() if k != "data"}


Group = Annotated[dict[str, Experiment], BeforeValidator(_say_data_to_each)]


class Limits(Strict):
    """The most of each; None: as published."""

    epochs: PositiveInt | None
    batches_per_epoch: PositiveInt | None
    batch_size: PositiveInt | None = None

    def of(self, train: Train) -> dict[str, int]:
        """What they change in how a run is trained."""
        wanted = {"epochs": self.epochs, "batches_per_epoch": self.batches_per_epoch, "batch_size": self.batch_size}
        less = {key: most for key, most in wanted.items() if most and most < getattr(train, key)}
        if "batch_size" in less:  # pieces as large as they were
            less["accumulate"] = -(-train.accumulate * less["batch_size"] // train.batch_size)
        return less


class Cap(Limits):
    seeds: PositiveInt | None
    each: dict[str, Limits] = {}  # in their place, at single values of `vary`


class Runner(Strict):
    cluster: Literal["debug", "threads", "local", "slurm"]
    jobs: PositiveInt
    threads: PositiveInt
    slurm: dict[str, Any] = {}


class Profile(Strict):
    neuronio: NeuronIO
    shd: Shd
    lra: Lra
    cap: Cap
    caps: dict[str, dict[str, Cap]]  # group -> experiment, in place of cap
    points: dict[str, dict[str, list[Any] | None]]  # the same: values of `vary` to run; None: all; []: it is not run
    runner: Runner


def _flat(groups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: entry for group in groups.values() for name, entry in group.items()}


def _paths(groups: dict[str, dict[str, Any]]) -> set[str]:
    return {f"{group}.{name}" for group, entries in groups.items() for name in entries}


class Params(Strict):
    profile: Literal["smoke", "laptop", "desk", "paper"]
    device: Literal["auto", "cpu", "cuda"]
    groups: dict[str, Group] = Field(alias="experiments")  # what one train stage does: experiments by name
    profiles: dict[str, Profile]

    @model_validator(mode="after")
    def _profile_is_there(self):
        if self.profile not in self.profiles:
            raise ValueError(f"profile = {self.profile!r} is not under profiles, which has {sorted(self.profiles)}")
        return self

    @model_validator(mode="after")
    def _profiles_name_experiments(self):
        twice = [name for name in self.experiments if sum(name in group for group in self.groups.values()) > 1]
        if twice:
            raise ValueError(f"experiments: {twice} is in two groups: give each experiment a name of its own")
        for name, profile in self.profiles.items():
            differ = (set(profile.points) ^ set(self.groups)) | (_paths(profile.points) ^ _paths(self.groups))
            if differ:
                raise ValueError(
                    f"profiles.{name}.points and experiments must have the same names, {sorted(differ)} is in one alone"
                )
            differ = set(profile.caps) ^ set(self.groups) or _paths(profile.caps) - _paths(self.groups)
            if differ:
                raise ValueError(
                    f"profiles.{name}.caps: every group, {{}} if it has none, and no other: {sorted(differ)}"
                )
            for experiment, cap in _flat(profile.caps).items():
                strange = set(cap.each) - set(map(str, self.experiments[experiment].values))
                if strange:
                    raise ValueError(
                        f"profiles.{name}.caps, {experiment}: each has {sorted(strange)}, which is none of its values"
                    )
            if profile.cap.each:
                raise ValueError(f"profiles.{name}.cap: each is of the values of one experiment: put it under caps")
            for experiment, points in _flat(profile.points).items():
                known = self.experiments[experiment].values
                if _twice(points or []) or any(value not in known for value in points or []):
                    raise ValueError(
                        f"profiles.{name}.points, {experiment} = {points}: give values of the experiment, none twice, null for all, [] for none"
                    )
                unprepared = {key for key in Lra.model_fields if getattr(profile.lra, key) is None}
                asked = {
                    self.experiments[experiment].options_at(value).get("name")
                    for value in (known if points is None else points)
                }
                if self.experiments[experiment].data == "lra" and asked & unprepared:
                    raise ValueError(
                        f"profiles.{name}.lra has null for {sorted(asked & unprepared)}, which points, {experiment} = {points} asks for: "
                        "say how it is prepared, or take it out of points"
                    )
        return self

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Of all groups, by name."""
        return _flat(self.groups)

    def capped(self, experiment: str, profile: str) -> tuple[Experiment, float]:
        """An experiment under a profile, and the fraction of the published budget that each run gets (at least; `share`)."""
        full, limits = self.experiment(experiment), self.profiles[profile]
        cap = _flat(limits.caps).get(experiment, limits.cap)

        each = {
            value: change.model_copy(update={"train": change.train | cap.each.get(value, cap).of(full.train_at(value))})
            for value, change in ({value: Change() for value in cap.each} | full.each).items()
        }
        points = _flat(limits.points)[experiment]
        values = full.values if points is None else points
        train = full.train.model_copy(update=cap.of(full.train))
        capped = full.model_copy(
            update={"train": train, "values": values, "seeds": full.seeds[: cap.seeds], "each": each}
        )
        shares = [share(capped.train_at(value), full.train_at(value)) for value in values]
        return capped, min(shares, default=share(train, full.train))

    def experiment(self, name: str) -> Experiment:
        if name not in self.experiments:
            raise ConfigError(f"experiment {name!r}: params.yaml has {sorted(self.experiments)}")
        return self.experiments[name]


def share(train: Train, full: Train) -> float:
    """The part of the published budget: of its optimiser steps, times that of its batch size."""
    return train.steps * train.batch_size / (full.steps * full.batch_size)


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check params.yaml. Raises ConfigError: one line with the file, the key, the value and what would be right."""
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path} not found: run from the project's folder") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: " + "; ".join(_one_line(e) for e in error.errors())) from None


def _one_line(error: dict) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}: remove it or correct its spelling"
    if key.endswith("[key]"):
        return f"key {error['input']!r} of {'.'.join(str(part) for part in error['loc'][:-2])}: put it in quotes"
    if error["type"] == "missing":
        return f"key {key!r} is missing: add it"
    return (
        f"{key or 'params'} = {error['input']!r}: {error['msg']}"
        if key and not isinstance(error["input"], dict)
        else ": ".join(filter(None, [key, error["msg"].removeprefix("Value error, ")]))
    )
