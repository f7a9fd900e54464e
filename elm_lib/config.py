"""params.yaml as frozen, typed objects. Unknown keys, wrong types and values out of range are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from elm_lib.errors import ConfigError
from elm_lib.optimisation import Strict, Train

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
    task: dict[str, Any]  # options of elm_lib.tasks.<data>
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


class Split(Strict):
    """Generated simulations: how many, ms each, input ranges, integration step in ms."""

    simulations: PositiveInt | None
    duration_ms: int = Field(ge=1100)
    ranges: Literal["narrow", "script"]
    dt_ms: Literal[0.025, 0.05, 0.1]


def _sized(source: str, sizes: dict[str, int | None], of: str = "", unit: str = "") -> None:
    """Generated data have a size; null is for real data, which are taken whole."""
    missing = [name for name, size in sizes.items() if size is None]
    if source == "generated" and missing:
        raise ValueError(f"{of}{missing} is null, which only real data can have: give a number{unit}")


class NeuronIO(Strict):
    source: Literal["generated", "real"]
    morphology: Literal["default", "exact"]
    seed: NonNegativeInt
    train: Split
    valid: Split
    test: Split

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        sizes = {name: getattr(self, name).simulations for name in ("train", "valid", "test")}
        _sized(self.source, sizes, of="simulations of ")
        return self


class Shd(Strict):
    """Spiking Heidelberg Digits: generated utterances in the train file (a fifth of them for validation) and in the test file."""

    source: Literal["generated", "real"]
    seed: NonNegativeInt
    train: PositiveInt | None
    test: PositiveInt | None
    valid_pairs: PositiveInt  # of SHD-Adding
    test_pairs: PositiveInt

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        _sized(self.source, {"train": self.train, "test": self.test}, unit=" of utterances")
        return self


class LraTask(Strict):
    """One task of the Long Range Arena: how many samples; lengths in symbols, both exclusive for ListOps."""

    source: Literal["generated", "real"]
    train: PositiveInt | None
    valid: PositiveInt | None
    test: PositiveInt | None
    min_length: NonNegativeInt | None = None
    max_length: PositiveInt | None = None

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        _sized(self.source, self.sizes())
        return self

    def sizes(self) -> dict[str, int | None]:
        return {"train": self.train, "valid": self.valid, "test": self.test}


class Lra(Strict):
    """The tasks that a profile prepares; null: not."""

    seed: NonNegativeInt
    listops: LraTask | None
    text: LraTask | None
    retrieval: LraTask | None
    image: LraTask | None
    pathfinder: LraTask | None
    pathfinder_x: LraTask | None

    @model_validator(mode="after")
    def _lengths_fit_the_task(self):
        for name, task in self.tasks():
            lengths = (task.min_length, task.max_length)
            if name == "listops" and task.source == "generated":
                if None in lengths or lengths[0] + 1 >= lengths[1]:
                    raise ValueError(
                        f"{name}: min_length, max_length = {lengths}: a length must lie between two numbers"
                    )
            elif task.min_length is not None or (name not in ("text", "retrieval") and task.max_length is not None):
                raise ValueError(
                    f"{name}: min_length, max_length = {lengths}: only texts and generated ListOps have them"
                )
        return self

    def tasks(self) -> list[tuple[str, LraTask]]:
        """The tasks that are prepared, by name."""
        named = [(name, getattr(self, name)) for name in type(self).model_fields if name != "seed"]
        return [(name, task) for name, task in named if task is not None]


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
                asked = {self.experiments[experiment].options_at(value).get("name") for value in (known if points is None else points)}
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
            value: change.model_copy(
                update={"train": change.train | cap.each.get(value, cap).of(full.train_at(value))}
            )
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
