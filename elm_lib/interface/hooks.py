"""Weights of a Linear that is read, never called: its pre-hooks run, and what cannot take effect is refused by name."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

# attributes of nn.Module that hold hooks which only a call runs
CALLED = {
    "_forward_hooks": "a forward hook",
    "_backward_hooks": "a backward hook",
    "_backward_pre_hooks": "a backward pre-hook",
}


def weights_of(name: str, layer: nn.Module) -> tuple[Tensor, Tensor]:
    """(weight (O, I), bias (O,)) of a layer, after its forward pre-hooks, which pruning and weight_norm use.

    name  what the layer is called in the neuron
    Raises TypeError for a layer that is no plain or parametrised nn.Linear with a bias; RuntimeError for a hook that
    cannot take effect: a forward or backward hook, or a forward pre-hook that reads or changes the layer's input.
    """
    kind = type(layer)
    if not isinstance(layer, nn.Linear) or kind.forward is not nn.Linear.forward or "forward" in vars(layer):
        raise TypeError(
            f"{name} is a {kind.__module__}.{kind.__name__} with a forward of its own, which would never run: the "
            "neuron reads the weights of a plain or parametrised nn.Linear; leave this layer as it is, or express the "
            "change by torch.nn.utils.parametrize"
        )
    for attribute, what in CALLED.items():
        for hook in getattr(layer, attribute).values():
            raise RuntimeError(
                f"{name} has {what}, {_named(hook)}, which would never run: the neuron reads this layer's weights and "
                "does not call it; remove the hook, or register it on the neuron or on its w_y"
            )
    for key, hook in layer._forward_pre_hooks.items():
        _run(name, layer, hook, key in layer._forward_pre_hooks_with_kwargs)
    if layer.bias is None:
        raise TypeError(f"{name} has no bias: the neuron needs one; set it to zero and freeze it instead")
    return layer.weight, layer.bias


def _run(name: str, layer: nn.Module, hook: Any, with_kwargs: bool) -> None:
    refused = f"the forward pre-hook {_named(hook)} of {name}"
    remedy = "the neuron reads this layer's weights and gives it no input; a pre-hook may set weights and nothing else"
    try:
        changed = hook(layer, (), {}) if with_kwargs else hook(layer, ())
    except (IndexError, ValueError) as error:
        raise RuntimeError(f"{refused} reads the layer's input: {remedy}") from error
    if changed is not None:
        raise RuntimeError(f"{refused} changes the layer's input: {remedy}")


def _named(hook: Any) -> str:
    return getattr(hook, "__qualname__", type(hook).__qualname__)


def is_plain(layer: nn.Module) -> bool:
    """Whether nothing runs when the weights of this layer are read."""
    return not layer._forward_pre_hooks and not parametrize.is_parametrized(layer)
