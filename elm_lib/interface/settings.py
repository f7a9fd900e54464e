"""Hyper-parameters that travel with a state_dict, so that weights do not load into a neuron that computes otherwise.

They are JSON in a uint8 tensor, the extra state of torch.nn.Module: safetensors stores it as any other tensor.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

KEY = "_extra_state"  # torch's name


def encoded(settings: Mapping[str, Any]) -> Tensor:
    """uint8 (n,), on the CPU."""
    text = json.dumps(settings, sort_keys=True).encode()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def differences(stored: Any, settings: Mapping[str, Any]) -> str:
    """What the stored settings have otherwise, as text; "" if they agree. A setting that the file lacks is no
    difference: files of older versions lack some."""
    try:
        theirs = json.loads(bytes(stored.cpu().tolist()))
        named = dict(theirs)
    except (AttributeError, TypeError, ValueError) as error:
        return f"{KEY} is not the settings of a neuron ({error})"
    ours = json.loads(json.dumps(settings))
    differ = [
        f"{name} is {value!r} in the file, {ours.get(name, 'no setting')!r} in the neuron"
        for name, value in named.items()
        if name not in ours or ours[name] != value
    ]
    return "; ".join(differ)


def checked(module: nn.Module, state_dict: dict, prefix: str, settings: Mapping[str, Any]) -> dict:
    """The state_dict to load from. Raises RuntimeError where its settings are not those of the module, before it loads.

    Warns where it has none: then nothing tells whether the outputs are those of the neuron that was saved.
    """
    key, name = prefix + KEY, prefix.rstrip(".") or type(module).__name__
    if key in state_dict:
        differ = differences(state_dict[key], settings)
        if differ:
            raise RuntimeError(f"{name}: {differ}; build the neuron with the file's settings")
        return state_dict
    if any(name.startswith(prefix) for name in state_dict):
        warnings.warn(
            f"{name}: the state_dict has no hyper-parameters (lambda_, "
            "tau_m_bounds, ..), so nothing checks that they are this neuron's; if they are, load "
            "with_settings(state_dict, model) of elm_lib.interface.settings",
            stacklevel=4,
        )
    return {**state_dict, key: encoded(settings)}


def with_settings(state_dict: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """The state_dict with the settings of the model's neurons where it has none: the caller knows that they fit."""
    found = dict(state_dict)
    for name, value in model.state_dict().items():
        if name.split(".")[-1] == KEY:
            found.setdefault(name, value)
    return found
