"""params.yaml as frozen, typed objects. Unknown keys, wrong types and values out of range are refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from elm_lib.datasets.lra.settings import Lra
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.datasets.shd.settings import Shd
from elm_lib.experiments.budget import Cap, Caps, Point, points, share
from elm_lib.experiments.check import check_model, check_options, check_types
from elm_lib.experiments.experiment import SHARED, Experiment, Group, twice
from elm_lib.experiments.runner import Runner
from elm_lib.support import plain_yaml
from elm_lib.support.errors import ConfigError
from elm_lib.support.strict import Strict

__all__ = ["PROFILES", "Experiment", "Group", "Params", "Point", "Profile", "Runner", "load", "share"]

PROFILES = ("smoke", "laptop", "desk", "paper")
ALL = "all"  # under points: all values of an experiment


def _check_points(named: Any) -> Any:
    if named != ALL and not isinstance(named, dict):
        raise ValueError(f"give the values of each experiment, {{}} for none, or {ALL!r} for all of the group")
    return named


class Profile(Strict):
    """How much of everything: data, budgets, the points that are run."""

    neuronio: NeuronIO
    shd: Shd
    lra: Lra
    cap: Cap  # of every run
    caps: dict[str, dict[str, Caps]]  # group -> experiment or "shared" -> what differs from cap
    # group -> experiment -> values of `vary` that are run, or "all"; or "all" for every experiment of the group
    points: dict[str, Annotated[Any, AfterValidator(_check_points)]]
    later: list[str] = []  # experiments whose runs come after those of all others
    runner: Runner


class Params(Strict):
    """The whole of params.yaml."""

    profile: Literal["smoke", "laptop", "desk", "paper"]
    device: Literal["auto", "cpu", "cuda"]
    fresh: bool  # train again in spite of the ledger
    missing: Literal["train", "leave"]  # what the train stage does with runs that the ledger lacks
    evaluate: Literal["part", "all"]  # of the kept weights and the test sets
    groups: dict[str, Group] = Field(alias="experiments")  # what one train stage does
    profiles: dict[str, Profile]

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Of all groups, by name."""
        return {name: entry for group in self.groups.values() for name, entry in group.experiments.items()}

    def experiment(self, name: str) -> Experiment:
        """An experiment at the published budget. Raises ConfigError for a name that params.yaml does not have."""
        if name not in self.experiments:
            raise ConfigError(f"experiment {name!r} is not in params.yaml, which has {sorted(self.experiments)}")
        return self.experiments[name]

    def group_of(self, name: str) -> str:
        """The group of an experiment. Raises ConfigError for a name that params.yaml does not have."""
        self.experiment(name)
        return next(group for group, entry in self.groups.items() if name in entry.experiments)

    def planned(self, name: str, profile: str) -> list[Point]:
        """What a profile runs of an experiment: values of `vary` as they stand under points, each at its budgets."""
        experiment, group, limits = self.experiment(name), self.group_of(name), self.profiles[profile]
        named = self.points_of(limits, group).get(name, [])
        caps = [Caps.model_validate(limits.cap.model_dump(exclude_unset=True))]
        caps += [limits.caps[group][key] for key in (SHARED, name) if key in limits.caps[group]]
        return points(name, experiment, experiment.values if named == ALL else named, caps)

    def points_of(self, limits: Profile, group: str) -> dict[str, Any]:
        """What a profile runs of a group: values of `vary`, or "all", by experiment."""
        named = limits.points[group]
        return dict.fromkeys(self.groups[group].experiments, ALL) if named == ALL else named

    @model_validator(mode="after")
    def _profile_is_there(self):
        if self.profile not in self.profiles:
            raise ValueError(f"profile = {self.profile!r} is not under profiles, which has {sorted(self.profiles)}")
        return self

    @model_validator(mode="after")
    def _names_are_names(self):
        names = [(group, *entry.experiments) for group, entry in self.groups.items()]
        for name in (name for some in names for name in some):
            if not re.fullmatch(r"[A-Za-z]\w{0,79}", name, re.ASCII):
                raise ValueError(
                    f"experiments: {name!r} names files and folders: use letters, digits and _, starting with a letter"
                )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self):
        again = twice([name for group in self.groups.values() for name in group.experiments])
        if again:
            raise ValueError(f"experiments: {again} is in two groups: give each experiment a name of its own")
        return self

    @model_validator(mode="after")
    def _profiles_name_experiments(self):
        for fault in (
            f"profiles.{name}.{text}" for name, limits in self.profiles.items() for text in _faults(self, limits)
        ):
            raise ValueError(fault)
        return self


def _faults(params: Params, limits: Profile) -> Iterator[str]:
    """What is wrong with the names that a profile's caps and points have."""
    for key, entries in (("points", limits.points), ("caps", limits.caps)):
        differ = set(entries) ^ set(params.groups)
        if differ:
            yield f"{key}: {sorted(differ)} is missing or unknown: list every group ({{}} if it has none) and no other"
    for group, caps in limits.caps.items():
        known = params.groups[group].experiments
        for name, cap in caps.items():
            if name != SHARED and name not in known:
                yield f"caps.{group}: {name!r} is none of its experiments {sorted(known)}, nor {SHARED!r}"
            values = [v for entry in known.values() for v in entry.values] if name == SHARED else known[name].values
            strange = set(cap.each) - set(map(str, values))
            if strange:
                yield f"caps.{group}.{name}: each has {sorted(strange)}, which is none of values = {values}"
    for name in limits.later:
        if name not in params.experiments:
            yield f"later: {name!r} is no experiment of params.yaml"
    unprepared = {key for key in Lra.model_fields if getattr(limits.lra, key) is None}
    for group in limits.points:
        for name, values in params.points_of(limits, group).items():
            if name not in params.groups[group].experiments:
                yield f"points.{group}: {name!r} is none of its experiments {sorted(params.groups[group].experiments)}"
            experiment = params.experiment(name)
            wrong = not isinstance(values, list) or twice(values) or any(v not in experiment.values for v in values)
            if values != ALL and wrong:
                yield (
                    f"points.{group}.{name} = {values!r}: give {ALL!r} or a list of values of the experiment, "
                    f"none twice: it has {experiment.values}"
                )
            run = experiment.values if values == ALL else values
            asked = {experiment.options_at(value).get("name", "") for value in run} & unprepared
            if experiment.data == "lra" and asked:
                yield (
                    f"lra has null for {sorted(asked)}, which points.{group}.{name} = {values!r} asks for: "
                    "say how it is prepared, or take it out of points"
                )


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check params.yaml. Raises ConfigError: one line with the file, the key, the value and what would be
    right."""
    path = Path(path)
    raw = plain_yaml.read(path)
    try:
        params = Params.model_validate(raw)
        _check_models(params)
        return params
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValidationError as error:
        lines = dict.fromkeys(_one_line(_key(e["loc"], raw), e) for e in error.errors())
        raise ConfigError(f"{path}: " + "; ".join(lines)) from None


def _check_models(params: Params) -> None:
    """Types of every value that an experiment gives to its task and model; and the models of the profile, built.

    Raises ConfigError, which names group, experiment and value.
    """
    for group, entry in params.groups.items():
        for name, experiment in entry.experiments.items():
            sizes = []
            for value in experiment.values:
                with _at(group, name, experiment, value):
                    sizes.append(check_options(experiment.data, experiment.options_at(value)))
                    check_types(experiment.model_at(value))
            asked = [experiment.values[0], *(point.value for point in params.planned(name, params.profile))]
            for value, size in zip(experiment.values, sizes, strict=True):
                if value in asked:
                    with _at(group, name, experiment, value):
                        check_model(experiment.model_at(value), size)


@contextmanager
def _at(group: str, name: str, experiment: Experiment, value: Any) -> Iterator[None]:
    """Say where in params.yaml a fault is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"experiments.{group}.{name} at {experiment.vary} = {value!r}: {error}") from None


def _key(loc: tuple[str | int, ...], raw: Any) -> str:
    """Where a value stands in the file: what an experiment takes from its group stands under `shared`."""
    if len(loc) > 3 and loc[0] == loc[2] == "experiments":
        own, rest = (*loc[:2], *loc[3:]), loc[4:]
        places = [own, (*loc[:2], SHARED, *rest)]
        places += [(*loc[:2], "data")] if rest == ("data",) else []
        places += [(*loc[:2], SHARED, "neuron", *rest[1:])] if rest[:1] == ("model",) else []
        loc = next((place for place in places if _is_there(place, raw)), own)
    return ".".join(map(str, loc))


def _is_there(place: tuple[str | int, ...], raw: Any) -> bool:
    for part in place:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _one_line(key: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}: remove it or correct its spelling"
    if key.endswith("[key]"):
        return f"key {error['input']!r} of {'.'.join(key.split('.')[:-2])}: put it in quotes"
    if error["type"] == "missing":
        return f"key {key!r} is missing: add it"
    message = error["msg"].removeprefix("Value error, ")
    if key and not isinstance(error["input"], dict):
        return f"{key} = {error['input']!r}: {message}"
    return ": ".join(filter(None, [key, message]))
