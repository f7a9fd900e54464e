"""What is trained: experiments, and the groups in which what they share stands once."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, PositiveFloat, create_model, model_validator

from elm_lib.support.strict import Seed, Strict
from elm_lib.training.optimisation import Train

SHARED = "shared"  # the entry of a group that holds what its experiments share
NEURONS = ("elm", "branch_elm")  # the kinds of model that take a group's shared `neuron`


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, key by key, at any depth; a list is replaced whole."""
    both = {key: merged(under[key], over[key]) for key in under.keys() & over.keys() if _are_dicts(under, over, key)}
    return under | over | both


def _are_dicts(under: dict, over: dict, key: str) -> bool:
    return isinstance(under[key], dict) and isinstance(over[key], dict)


def twice(values: list[Any]) -> list[Any]:
    """What is in a list more than once."""
    return [value for k, value in enumerate(values) if value in values[:k]]


_TRAIN_PART: dict[str, Any] = {
    name: (hint, None)
    for name, hint in get_type_hints(Train, include_extras=True).items()
    if name in Train.model_fields
}
_TrainPart = create_model("TrainPart", __base__=Strict, **_TRAIN_PART)  # Train, of which every key may be left out


def _check_train_keys(train: dict[str, Any]) -> dict[str, Any]:
    _TrainPart.model_validate(train)
    return train


def _check_different(values: list[Any]) -> list[Any]:
    if not values or twice(values):
        raise ValueError("give at least one value, and none twice")
    return values


class Seconds(Strict):
    """Expected seconds an optimiser step takes at the published batch size: an estimate, no promise."""

    cpu: PositiveFloat  # on one core
    cuda: PositiveFloat  # on an H100


class Change(Strict):
    """What is different at one value of `vary`, say another data set of the same collection."""

    model: dict[str, Any] = {}
    train: Annotated[dict[str, Any], AfterValidator(_check_train_keys)] = {}
    seconds_a_step: Seconds | None = None  # of this value, where it takes another time than the experiment's default


class Experiment(Strict):
    """One row of a table or one line of a figure: a model, the one argument that is varied, seeds. Published budget."""

    data: Literal["neuronio", "shd", "lra"]
    model: dict[str, Any]
    task: dict[str, Any]  # options of elm_lib.datasets.<data>
    vary: str  # an argument of model or of task
    values: Annotated[list[Any], AfterValidator(_check_different)]
    train: Train
    seeds: Annotated[list[Seed], AfterValidator(_check_different)]
    seconds_a_step: Seconds  # of `model` and `task` as they stand
    each: dict[str, Change] = {}  # value of `vary` -> keys of model and train that replace those above

    @model_validator(mode="after")
    def _vary_is_known(self):
        if (self.vary in self.model) == (self.vary in self.task):
            raise ValueError(f"vary: {self.vary!r} must be an argument of model or of task, and not of both")
        strange = set(self.each) - set(map(str, self.values))
        if strange:
            raise ValueError(f"each: {sorted(strange)} is not among values = {self.values}")
        return self

    def model_at(self, value: Any) -> dict[str, Any]:
        """The model at a value of `vary`; a change that names its `kind` replaces the model whole."""
        change = self.each.get(str(value), Change()).model
        varied = {self.vary: value} if self.vary in self.model else {}
        return (change if "kind" in change else self.model | change) | varied

    def options_at(self, value: Any) -> dict[str, Any]:
        """The options of the task at a value of `vary`."""
        return self.task | ({self.vary: value} if self.vary in self.task else {})

    def train_at(self, value: Any) -> Train:
        """How a run at a value of `vary` is trained, at the published budget."""
        return Train.model_validate(self.train.model_dump() | self.each.get(str(value), Change()).train)


class Group(Strict):
    """Experiments of one data set that are trained by one stage. `experiments` have what the group shares."""

    data: Literal["neuronio", "shd", "lra"]
    experiments: dict[str, Experiment]

    @model_validator(mode="before")
    @classmethod
    def _lay_experiments_on_shared(cls, group: Any) -> Any:
        if not isinstance(group, dict) or "data" not in group:
            raise ValueError("a group needs the key `data`, beside `shared` and the names of its experiments")
        shared, own = group.get(SHARED, {}), {k: v for k, v in group.items() if k not in ("data", SHARED)}
        if not isinstance(shared, dict) or not isinstance(shared.get("neuron", {}), dict) or "model" in shared:
            raise ValueError(
                "shared: give keys of an experiment, but in place of `model` a `neuron` with the arguments of the ELMs"
            )
        again = [name for name, entry in own.items() if isinstance(entry, dict) and {"data", "neuron"} & set(entry)]
        if again:
            raise ValueError(f"{again}: move `data` to the group, and `neuron` to the group's `shared`")
        experiments = {k: _whole(group["data"], shared, v) if isinstance(v, dict) else v for k, v in own.items()}
        return {"data": group["data"], "experiments": experiments}


def _whole(data: Any, shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """An experiment's entry with what its group shares."""
    neuron = shared.get("neuron", {})
    if "values" in own and "values" in shared:  # what is shared for the group's own values alone
        theirs = set(map(str, shared["values"])) - set(map(str, own["values"]))
        shared = shared | {"each": {k: v for k, v in shared.get("each", {}).items() if k not in theirs}}
    entry = merged({k: v for k, v in shared.items() if k != "neuron"}, own)
    return {"data": data, **{k: _with_neuron(v, neuron) if k in ("model", "each") else v for k, v in entry.items()}}


def _with_neuron(entry: Any, neuron: dict[str, Any]) -> Any:
    """`neuron` under every ELM and Branch-ELM of an entry, also where it is part of a larger model."""
    if not isinstance(entry, dict):
        return entry
    entry = {key: _with_neuron(value, neuron) for key, value in entry.items()}
    return neuron | entry if entry.get("kind") in NEURONS else entry
