"""What a model costs, as in Tables S8 to S10: trainable parameters, and FLOPs of inference on one sample."""

from __future__ import annotations

from torch import nn

from elm_lib.models.lstm import LSTM
from elm_lib.models.snn import SNN
from elm_lib.neuron import ELM, BranchELM


def parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def count(model: nn.Module, steps: int = 500) -> int:
    """FLOPs for `steps` time steps (500 ms on NeuronIO), of the equations as written, each evaluated at every step.

    A multiply-add counts 2, a transcendental 1.

    ELM   synapses: rectify, weight, decay, add (4 each; 6 on branches, with mask and branch sum)
          MLP: 2 in out, bias, activation; memory: timescale, decay, update; read-out 2 d_m d_o
    LSTM  8 n (d_s + n), 13 n elementwise, read-out
    SNN   rectify, weight and add each synapse (3); decay, reset, threshold, low-pass (8 a neuron)
    Raises TypeError for other modules.
    """
    if isinstance(model, LSTM):
        n = model.hidden_size
        return steps * (8 * n * (model.input_size + n) + 13 * n + (2 * n + 1) * (model.d_o or 0))
    if isinstance(model, SNN):
        return steps * model.n * (3 * model.source.shape[1] + 8)
    if hasattr(model, "flops"):  # a model that knows its own rule
        return model.flops(steps, count)
    if not isinstance(model, ELM):
        raise TypeError(f"no FLOP rule for {type(model).__name__}: add one to elm_lib/flops.py")
    synapses = (6 if isinstance(model, BranchELM) else 4) * model.n_synapse
    products = sum(2 * layer.in_features * layer.out_features for layer in model.mlp)
    elementwise = sum(layer.out_features for layer in model.mlp) + sum(layer.out_features for layer in model.mlp[:-1])
    memory = (4 + 2 + 1 + 1 + 2 + 2) * model.d_m  # tau_m by sigmoid, kappa_m, kappa_m m, tanh, gain, update
    read_out = (2 * model.d_m + 1) * (model.d_o or 0)
    return steps * (synapses + products + elementwise + memory + read_out)
