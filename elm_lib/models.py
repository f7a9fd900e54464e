"""From an experiment's `model:` entry in params.yaml to a torch module."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from elm_lib.errors import ConfigError

# kind -> module, class; found by name, so that a run depends on its own model's code alone
BASELINES = Path(__file__).parent / "baselines"
NEURONS = {"elm": ("elm_lib.neuron", "ELM"), "branch_elm": ("elm_lib.neuron", "BranchELM")}


def kinds() -> dict[str, tuple[str, str]]:
    """Every `model.kind`: the two neurons, and each module of `elm_lib.baselines`, whose class has the module's name."""
    names = sorted(path.stem for path in BASELINES.glob("[!_]*.py"))
    return NEURONS | {name: (f"elm_lib.baselines.{name}", name.upper()) for name in names}


def model_class(model: dict[str, Any]) -> type[nn.Module]:
    """The class of a `model:` entry. Raises ConfigError when it names an unknown kind or an argument that its kind does not have."""
    kind = model.get("kind")
    if kind not in kinds():
        raise ConfigError(f"params.yaml: model.kind = {kind!r}: choose one of {sorted(kinds())}")
    module, name = kinds()[kind]
    found = getattr(import_module(module), name)
    unknown = set(model) - {"kind"} - _arguments(found)
    if unknown:
        raise ConfigError(
            f"params.yaml: model of kind {kind!r} has unknown keys {sorted(unknown)}: it takes {sorted(_arguments(found))}"
        )
    return found


def _arguments(kind: type[nn.Module]) -> set[str]:
    """Names of the arguments of a model, its parents' included where it passes them on."""
    names: set[str] = set()
    for cls in kind.__mro__:
        if "__init__" in vars(cls) and cls is not nn.Module and issubclass(cls, nn.Module):
            parameters = inspect.signature(cls.__init__).parameters
            names |= set(parameters)
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                break
    return names - {"self", "kwargs", "input_size", "d_o", "batch_first"}


def build(model: dict[str, Any], *, input_size: int, d_o: int) -> nn.Module:
    """A batch-first model: (B, T, input_size) -> (B, T, d_o). Initial weights follow torch's global seed.

    Raises ConfigError for an unknown kind or key, and for a value that the model refuses.
    """
    options = {k: v for k, v in model.items() if k != "kind"}
    try:
        return model_class(model)(input_size, d_o=d_o, batch_first=True, **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"params.yaml: model {model}: {error}") from None
