"""What nn.LSTM calls otherwise: a TypeError that names the equivalent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

KEYWORDS = {
    "hidden_size": "say d_m, the number of memory units",
    "num_layers": "stack neurons instead: a second one whose input_size is the d_m (or d_o) of the first; or take "
    "elm_lib.ELMNetwork, which has num_layers",
    "bidirectional": "run a second neuron on x.flip(time) and join the two outputs; or take elm_lib.ELMNetwork, which "
    "has bidirectional",
    "bias": "every layer of the neuron has a bias; freeze it at zero to do without",
    "proj_size": "say d_o, the number of outputs of the read-out w_y",
    "dropout": "put nn.Dropout between neurons",
}
NETWORK_KEYWORDS = {
    "hidden_size": "say num_neurons, each of which has one output",
    "bias": "every layer of a neuron has a bias; freeze it at zero to do without",
    "proj_size": "say d_o, the number of outputs of the read-out",
}

P = ParamSpec("P")
S = TypeVar("S")


def explained_by(
    keywords: dict[str, str], at_most: int
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], None]]:
    """Decorate an __init__ of `at_most` arguments by place: those of nn.LSTM that it does not have are refused with
    what stands for them."""

    def explained(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(init)
        def checked(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
            kind = type(self).__name__
            if len(args) > at_most:
                given = f"{kind}({', '.join(map(repr, args))})"
                if at_most == 2:
                    raise TypeError(
                        f"{given}: nn.LSTM has num_layers in the third place, the neuron takes input_size and d_m by "
                        f"place and the rest by name: write d_o={args[2]!r} for that many outputs"
                    )
                raise TypeError(f"{given}: input_size, num_neurons and num_layers by place, the rest by name")
            for name in kwargs.keys() & keywords.keys():
                raise TypeError(f"{kind} has no {name}: {keywords[name]}")
            init(self, *args, **kwargs)

        return checked

    return explained


explained = explained_by(KEYWORDS, at_most=2)  # of one neuron
