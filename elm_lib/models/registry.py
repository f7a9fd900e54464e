"""From an experiment's `model:` entry in params.yaml to a torch module."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from torch import nn

from elm_lib.support.errors import ConfigError

# kind -> module, class; a module is imported when a model of its kind is built
KINDS = {
    "elm": ("elm_lib.neuron", "ELM"),
    "branch_elm": ("elm_lib.neuron", "BranchELM"),
    "elm_network": ("elm_lib.models.elm_network", "ELMNetwork"),
    "lstm": ("elm_lib.models.lstm", "LSTM"),
    "chrono_lstm": ("elm_lib.models.chrono_lstm", "ChronoLSTM"),
    "variational_lstm": ("elm_lib.models.variational_lstm", "VariationalLSTM"),
    "lif": ("elm_lib.models.lif", "LIF"),
    "snn": ("elm_lib.models.snn", "SNN"),
    "tcn": ("elm_lib.models.tcn", "TCN"),
    "s5": ("elm_lib.models.s5", "S5"),
    "two_tower": ("elm_lib.models.two_tower", "TwoTower"),
}
# What an experiment means by an argument that it leaves out, where the class has another default. Keys of runs leave
# these values out too (docs/identity.md), so they stay as they are.
LEFT_OUT: dict[str, dict[str, Any]] = {"elm": {"lambda_": 10.0}, "branch_elm": {"lambda_": 10.0}}


def model_class(model: dict[str, Any]) -> type[nn.Module]:
    """The class of a `model:` entry. Raises ConfigError for an unknown kind or argument."""
    kind = model.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"model.kind = {kind!r}: choose one of {sorted(KINDS)}")
    module, name = KINDS[kind]
    found = getattr(import_module(module), name)
    unknown = set(model) - {"kind"} - arguments_of(found)
    if unknown:
        raise ConfigError(
            f"model of kind {kind!r} has unknown keys {sorted(unknown)}: it takes {sorted(arguments_of(found))}"
        )
    return found


def arguments_of(kind: type[nn.Module]) -> set[str]:
    """Names of the arguments of a model, its parents' included where it passes them on."""
    names: set[str] = set()
    for cls in kind.__mro__:
        if "__init__" in vars(cls) and cls is not nn.Module and issubclass(cls, nn.Module):
            parameters = inspect.signature(cls.__init__).parameters
            names |= set(parameters)
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                break
    return names - {"self", "kwargs", "input_size", "d_o", "batch_first", "device", "dtype"}


def completed(model: dict[str, Any]) -> dict[str, Any]:
    """A `model:` entry with what it means by arguments that it leaves out; a model inside it too."""
    inner = {key: completed(value) for key, value in model.items() if isinstance(value, dict) and "kind" in value}
    return LEFT_OUT.get(model.get("kind", ""), {}) | model | inner


def build(model: dict[str, Any], *, input_size: int, d_o: int) -> nn.Module:
    """A batch-first model: (B, T, input_size) -> (B, T, d_o). Initial weights follow torch's global seed.

    Raises ConfigError for an unknown kind or key, and for a value that the model refuses.
    """
    options = {k: v for k, v in completed(model).items() if k != "kind"}
    kind = model_class(model)
    try:
        return kind(input_size, d_o=d_o, batch_first=True, **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"model {model}: {error}") from None
