"""What the engines of `elm_lib.kernels.network` take and return. Neurons lie in the last dimension."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

OUTPUTS = ("identity", "relu", "spike")  # compiled loops know one by its place
SHARPNESS = 10.0  # of the surrogate gradient of a spike, 1 / (1 + 10 |x|)^2, as in `elm_lib.models.snn`


class Ensemble(NamedTuple):
    """N neurons.

    kappa_m  (d_m, N)        decay of the memory a step
    gain     (d_m, N)        what one step adds at most
    w_m      (d_1, d_m, N)   columns of the first layer that read u_t
    layers   [(W, b), ...]   the layers after the first, W (O, I, N), b (O, N); the last one ends in d_m
    activation               of `elm_lib.kernels.recurrence`, after every layer but the last
    scale    (a, b)          f(z) = a tanh(b z)
    w_r, b_r (d_m, N), (N,)  read-out of a neuron
    kappa_r                  decay of the moving average a step; 1: there is none, r_t stays r_0
    output                   one of OUTPUTS
    """

    kappa_m: Tensor
    gain: Tensor
    w_m: Tensor
    layers: list[tuple[Tensor, Tensor]]
    activation: str
    scale: tuple[float, float]
    w_r: Tensor
    b_r: Tensor
    kappa_r: float
    output: str


class Feedback(NamedTuple):
    """How outputs come back to the first layer. N sources, N neurons.

    kappa  () or (d_tree, N)  decay of the traces a step; one for all, or one a branch
    send   (N, d_tree, N)     from source to branch, where each branch has its own decay; None: traces are those of the
                              sources, q_t = kappa q_{t-1} + a_{t-1}
    read   (N, d_1, N)        from source to first layer; with `send` (d_1, d_tree, N), from branch to first layer
    """

    kappa: Tensor
    send: Tensor | None
    read: Tensor


class Past(NamedTuple):
    """State of a layer: memory m (B, d_m, N), moving average r (B, N), outputs a (B, N)."""

    m: Tensor
    r: Tensor
    a: Tensor


class Masks(NamedTuple):
    """Of variational dropout, one for all steps; None: all ones. a (B, N): of what is sent; z (B, d_m, N): of z."""

    a: Tensor | None = None
    z: Tensor | None = None


class Run(NamedTuple):
    """a (T, B, N), 0 after a sample's end; the state after it; q (B, N) or (B, d_tree, N), None without feedback."""

    a: Tensor
    past: Past
    q: Tensor | None


def nothing_sent(past: Past, feedback: Feedback | None) -> Tensor | None:
    """q_0 = 0."""
    if feedback is None:
        return None
    rest = past.a.shape[1:] if feedback.send is None else feedback.send.shape[1:]
    return past.a.new_zeros(len(past.a), *rest)
