"""Which source each synapse of a layer reads. Sources 0 .. inputs - 1 are the layer's inputs, then come its neurons."""

from __future__ import annotations

import torch
from torch import Tensor


def drawn(
    inputs: int, neurons: int, d_tree: int, d_brch: int, recurrent: float, generator: torch.Generator | None = None
) -> Tensor:
    """A random connectome, int64 (neurons, d_tree, d_brch).

    Each synapse reads a neuron of its own layer with probability `recurrent`, else an input; which one is uniform.
    Draws are with replacement, so two synapses of a neuron may read one source, and some inputs may be read by none.
    """
    shape = neurons, d_tree, d_brch
    own = torch.rand(shape, generator=generator, device="cpu") < recurrent
    return torch.where(
        own,
        inputs + torch.randint(neurons, shape, generator=generator, device="cpu"),
        torch.randint(inputs, shape, generator=generator, device="cpu"),
    )


def complete(inputs: int, neurons: int, most: int, generator: torch.Generator | None = None) -> Tensor:
    """Every neuron reads every input once, in an order of its own: int64 (neurons, d_tree, inputs / d_tree).

    d_tree is the largest divisor of the number of inputs that is not above `most`.
    """
    d_tree = max(k for k in range(1, min(inputs, most) + 1) if inputs % k == 0)
    orders = [torch.randperm(inputs, generator=generator, device="cpu") for _ in range(neurons)]
    return torch.stack(orders).view(neurons, d_tree, inputs // d_tree)
