"""torch.fx writes a neuron down as one call, as it does with nn.LSTM: its loops are no graph."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy


def called(module: nn.Module, x: Proxy, state: Any, **options: Any) -> Proxy:
    """The call of a module of the traced model. Raises TypeError where the module is the whole model."""
    tracer: Any = x.tracer
    if tracer.root is module:
        raise TypeError(
            f"torch.fx cannot trace a {type(module).__name__} alone, which is a leaf: trace a module that holds it"
        )
    options = {name: value for name, value in options.items() if value is not None}
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (x, state), options)
