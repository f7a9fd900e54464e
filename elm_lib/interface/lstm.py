"""What nn.LSTM calls otherwise: a TypeError that names the equivalent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

KEYWORDS = {
    "hidden_size": "say d_m, the number of memory units",
    "num_layers": "stack neurons instead: a second one whose input_size is the d_m (or d_o) of the first",
    "bidirectional": "run a second neuron on x.flip(time) and join the two outputs",
    "bias": "every layer of the neuron has a bias; freeze it at zero to do without",
    "proj_size": "say d_o, the number of outputs of the read-out w_y",
    "dropout": "put nn.Dropout between neurons",
}

P = ParamSpec("P")
S = TypeVar("S")


def explained(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorate an __init__: arguments of nn.LSTM that it does not have are refused with what stands for them."""

    @wraps(init)
    def checked(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        kind = type(self).__name__
        if len(args) > 2:
            raise TypeError(
                f"{kind}({', '.join(map(repr, args))}): nn.LSTM has num_layers in the third place, the neuron takes "
                f"input_size and d_m by place and the rest by name: write d_o={args[2]!r} for that many outputs"
            )
        for name in kwargs.keys() & KEYWORDS.keys():
            raise TypeError(f"{kind} has no {name}: {KEYWORDS[name]}")
        init(self, *args, **kwargs)

    return checked
