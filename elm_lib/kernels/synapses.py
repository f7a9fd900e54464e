"""From the input to the memory: synapse weights, traces, branches and the input half of the MLP's first layer.

None of it depends on the memory, so it is computed for all t at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from elm_lib.kernels.affine import affine
from elm_lib.kernels.spikes import Spikes, decayed_sum, filtered_projection, thinned
from elm_lib.kernels.traces import filter_traces

# of the sum of a branch, before the MLP; the equations have none
BRANCH_ACTIVATIONS = {"none": lambda s: s, "relu": torch.relu, "sigmoid": torch.sigmoid}


def weighted(x: Tensor, w_s: Tensor) -> Tensor:
    """w_s * x with w_s (S,); or summed over the inputs of each branch with w_s (C, S): (.., C) -> (.., S)."""
    return w_s * x if w_s.dim() == 1 else x @ w_s


def branch_sums(s: Tensor, d_brch: int, phi: str = "none") -> Tensor:
    """phi of the traces added up over the d_brch synapses of each branch: (.., S) -> (.., S / d_brch)."""
    return BRANCH_ACTIVATIONS[phi](s if d_brch == 1 else s.unflatten(-1, (-1, d_brch)).sum(-1))


def branch_weights(w_s: Tensor, source: Tensor, branch: Tensor, inputs: int, branches: int) -> Tensor:
    """Weights of the branches' sums, (inputs, branches): each of n synapses reads a source and lies on a branch, (n,).

    Synapses of the same source and branch add up.
    """
    flat = w_s.new_zeros(inputs * branches).index_add(0, source * branches + branch, w_s)
    return flat.view(inputs, branches)


def input_half(
    x: Tensor | Spikes,
    s_0: Tensor,
    rate: Tensor,
    w_s: Tensor,
    d_brch: int,
    w_1: Tensor,
    b_1: Tensor,
    phi: str = "none",
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What the MLP's first layer gets from the synapses.

    x        (B, T, C)          input
    s_0      (B, S)             traces before the first step
    rate     () or (S,)         delta_t / tau_s
    w_s      (S,) or (C, S)     see `weighted`
    d_brch                      traces that a branch adds up: see `branch_sums`
    w_1, b_1 (d_1, S / d_brch)  the columns of the first layer that read them, and its bias
    phi                         what the sum of a branch goes through: see `branch_sums`
    lengths  (B,) int64         steps of each sample, 0 too; None: all T
    Returns  (T, B, d_1), and the traces after a sample's last step, (B, S), memory of their own

    A filter with one rate commutes with every sum. So without a phi x can be projected to the layer first and filtered
    there. That is faster where the layer is narrower than the traces, and x is long enough to pay for the matrix from
    inputs to layer.
    """
    batch, steps, inputs = x.shape
    if phi == "none" and rate.numel() == 1 and len(b_1) < w_1.shape[1] and batch * steps >= inputs:
        x, last = thinned(x), torch.exp(-rate * (steps if lengths is None else lengths.unsqueeze(1))) * s_0
        to_layer = w_s.unsqueeze(1) * w_1.T if w_s.dim() == 1 else w_s @ w_1.T
        s = weighted(decayed_sum(x, rate, lengths), w_s) + last
        return filtered_projection(x, to_layer, s_0 @ w_1.T, rate, b_1).transpose(0, 1), s
    if w_s.dim() == 1:
        traces = filter_traces(weighted(x if isinstance(x, Tensor) else x.dense(), w_s), s_0, rate)
    else:
        traces = filtered_projection(thinned(x), w_s, s_0, rate)
    return affine(branch_sums(traces, d_brch, phi).transpose(0, 1), w_1, b_1), after_last(traces, s_0, lengths)


def after_last(z: Tensor, z_0: Tensor, lengths: Tensor | None) -> Tensor:
    """z (B, T, D) after each sample's last step, z_0 for a sample of no step: (B, D), memory of its own.

    A view would hold all T steps for whoever keeps it, and a change in place would change the output.
    """
    if lengths is None:
        return z[:, -1].clone()
    here = z[torch.arange(len(z), device=z.device), (lengths - 1).clamp(min=0)]
    return torch.where((lengths > 0).unsqueeze(1), here, z_0)


def in_stretches(
    run: Callable, x: Tensor | Spikes, s: Tensor, m: Tensor, lengths: Tensor | None, steps: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """run(x, s, m, lengths) -> output (T, B, .), s, m in stretches of so many steps of x (B, T, C); None: in one go.

    lengths  (B,) int64, or None: see `input_half`
    Backward runs each stretch once more, and holds the activations of one at a time.
    """
    if steps is None:
        return run(x, s, m, lengths)
    outputs = []
    for t in range(0, x.shape[1], steps):
        end = min(t + steps, x.shape[1])
        piece = x[:, t:end] if isinstance(x, Tensor) else x.window(t, end)
        left = None if lengths is None else (lengths - t).clamp(0, end - t)
        y, s, m = checkpoint(run, piece, s, m, left, use_reentrant=False, preserve_rng_state=False)
        outputs.append(y)
    return torch.cat(outputs), s, m
