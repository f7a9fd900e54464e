"""Guards for hand-written kernels: what autograd, torch.func and torch.compile may not do with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether only plain torch will do: inside torch.func.grad, vmap or the like, where a tensor has no memory for a
    loop to read; under forward-mode derivatives; while torch.jit, torch.export or torch.compile write operations down.
    """
    return torch.compiler.is_compiling() or (
        torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def in_memory(x: torch.Tensor) -> bool:
    """Whether a loop may read this tensor's numbers: it is no stand-in such as a FakeTensor or a DTensor."""
    return type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


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
