"""Guards for hand-written kernels: what autograd, torch.func and torch.compile may not do with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch


def transformed() -> bool:
    """Whether this runs inside torch.func.grad, vmap and their like: a tensor has no memory there for a loop to read."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def first_derivative(remedy: str) -> Callable:
    """Decorate a backward that is not differentiable itself: it raises RuntimeError with the remedy when asked to be.

    Without it torch would leave this part out of a second derivative, and say nothing.
    """

    def decorate(backward):
        @wraps(backward)
        def checked(ctx, *grads):
            if torch.is_grad_enabled():
                raise RuntimeError(f"no second derivative here (create_graph=True): {remedy}")
            return backward(ctx, *grads)

        return checked

    return decorate


@torch._disable_dynamo  # as torch.compiler.disable, which takes seconds to import at its first call
def beside_graph(function: Callable, *arguments):
    """function(*arguments), which torch.compile does not trace."""
    return function(*arguments)
