"""What an experiment asks of a model and a task, tried before anything is made or trained."""

from __future__ import annotations

import inspect
import json
import operator
import types
from functools import cache, reduce
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from elm_lib.datasets import task_class
from elm_lib.models.registry import build, model_class
from elm_lib.support.errors import ConfigError

_BUILT: set[str] = set()  # what was built in this process


def check_options(data: str, options: dict[str, Any]) -> dict[str, int]:
    """What a model of the task needs: `Task.sizes`. Raises ConfigError for an option that the task does not have, for
    one that is missing, and for a value of another type or out of range."""
    sizes = task_class(data).sizes
    known = inspect.signature(sizes).parameters
    needed = {name for name, parameter in known.items() if parameter.default is parameter.empty}
    for what, names in (("unknown", set(options) - set(known)), ("missing", needed - set(options))):
        if names:
            raise ConfigError(f"task: {sorted(names)} is {what}: the options of {data} are {list(known)}")
    for name, value in options.items():
        _check_type(f"task.{name}", value, _hint(sizes, name))
    return sizes(**options)


def check_types(model: dict[str, Any]) -> None:
    """Raises ConfigError for an unknown kind or argument of a model, and for a value of another type."""
    if not isinstance(model, dict):
        raise ConfigError(f"model = {model!r}: give its kind and its arguments")
    kind: Any = model_class(model)
    for name, value in model.items():
        if isinstance(value, dict) and "kind" in value:
            check_types(value)
        elif name != "kind":
            _check_type(f"model.{name}", value, _hint(kind, name))


def check_model(model: dict[str, Any], sizes: dict[str, int]) -> None:
    """Build a model once, and drop it. Raises ConfigError for a value that it refuses. Torch's random numbers stay."""
    check_types(model)
    key = json.dumps([model, sizes], sort_keys=True, default=str)
    if key not in _BUILT:
        with torch.random.fork_rng(devices=[]):
            build(model, **sizes)
        _BUILT.add(key)


@cache
def _hint(function: Any, name: str) -> Any:
    """The annotation of an argument of a class or a function, without tensors, which YAML does not have; else Any."""
    classes = function.__mro__ if isinstance(function, type) else ()
    owners = [vars(cls)["__init__"] for cls in classes[:-1] if "__init__" in vars(cls)] or [function]
    hint = next((hints[name] for hints in map(get_type_hints, owners) if name in hints), Any)
    if get_origin(hint) in (Union, types.UnionType):
        return reduce(operator.or_, (part for part in get_args(hint) if part is not torch.Tensor))
    return hint


@cache
def _adapter(hint: Any) -> TypeAdapter:
    return TypeAdapter(hint, config=None if hint is Any else ConfigDict(strict=True, allow_inf_nan=False))


def _check_type(name: str, value: Any, hint: Any) -> None:
    try:
        _adapter(hint).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"{name} = {value!r}: {reason}") from None
