"""What a model costs, as in Tables S8 to S10: trainable parameters, and FLOPs of inference on one sample.

FLOPs are those of the equations as written, each evaluated at every step. A multiply-add counts 2, a transcendental 1,
a complex product 6, a complex sum 2.
"""

from __future__ import annotations

from functools import singledispatch

from torch import nn

from elm_lib.models.elm_network import ELMNetwork
from elm_lib.models.lif import LIF
from elm_lib.models.lstm import LSTM
from elm_lib.models.s5 import S5
from elm_lib.models.snn import SNN
from elm_lib.models.tcn import TCN
from elm_lib.models.two_tower import TwoTower
from elm_lib.neuron import ELM, BranchELM


def parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@singledispatch
def count(model: nn.Module, steps: int = 500) -> int:
    """FLOPs for `steps` time steps (500 steps are 500 ms on NeuronIO). Raises TypeError for a model without a rule."""
    raise TypeError(f"no FLOP rule for {type(model).__name__}: register one in elm_lib/models/cost.py")


@count.register
def _(model: ELM, steps: int = 500) -> int:
    # rectify, weight, decay and add each synapse; on branches also mask and branch sum
    synapses = (6 if isinstance(model, BranchELM) else 4) * model.n_synapse
    products = sum(2 * layer.in_features * layer.out_features for layer in model.layers)
    biases = sum(layer.out_features for layer in model.layers)
    activations = sum(layer.out_features for layer in model.layers[:-1])
    memory = (4 + 2 + 1 + 1 + 2 + 2) * model.d_m  # tau_m by sigmoid, kappa_m, kappa_m m, tanh, gain, update
    read_out = (2 * model.d_m + 1) * (model.d_o or 0)
    return steps * (synapses + products + biases + activations + memory + read_out)


@count.register
def _(model: ELMNetwork, steps: int = 500) -> int:
    total = 0
    for layer in model.neurons:
        # weight and add each synapse; the high-pass and the output of a neuron
        each = 2 * layer.d_tree * layer.d_brch + 2 * layer.d_tree * layer.has_trace + 2 * model.d_m + 6
        each += sum(2 * weight[0].numel() + bias.shape[1] for weight, bias in zip(layer.w_p, layer.b_p))
        each += sum(bias.shape[1] for bias in list(layer.b_p)[:-1]) + (4 + 2 + 1 + 1 + 2 + 2) * model.d_m  # as ELM
        total += layer.n * each
    return steps * (total + (0 if model.w_y is None else (2 * model.w_y.in_features + 1) * model.w_y.out_features))


@count.register
def _(model: LSTM, steps: int = 500) -> int:
    n = model.hidden_size
    products, elementwise = 8 * n * (model.input_size + n), 13 * n
    return steps * (products + elementwise + (2 * n + 1) * (model.d_o or 0))


@count.register
def _(model: LIF, steps: int = 500) -> int:
    adaptation = 5 if model.adaptive else 0  # decay, add, threshold
    return steps * (2 * model.input_size + 1 + 4 + adaptation + 3)  # input; decay, reset, add, compare; outputs


@count.register
def _(model: SNN, steps: int = 500) -> int:
    synapses = 3 * model.source.shape[1]  # of a neuron: rectify, weight, add
    return steps * model.n * (synapses + 8)  # decay, reset, threshold, low-pass


@count.register
def _(model: S5, steps: int = 500) -> int:
    width, states = model.d_model, model.d_state // 2
    ssm = 4 * width * states + 2 * states * 8 + 8 * width * states + 4 * width  # B u, two directions, C h, D u
    layer = ssm + 2 * width * width + 14 * width  # gate; norm, activations, residual
    ends = 2 * model.levels.numel() + 2 * width * (model.levels.shape[1] + model.w_y.out_features) + 2 * width
    return steps * (len(model.layers) * layer + ends)


@count.register
def _(model: TCN, steps: int = 500) -> int:
    layers = [layer for layer in model.layers if isinstance(layer, nn.Conv1d)]
    products = sum(2 * layer.weight.numel() + layer.out_channels for layer in layers)
    return steps * (products + 3 * model.width * len(layers) + (2 * model.width + 1) * model.d_o)  # ReLU, normalisation


@count.register
def _(model: TwoTower, steps: int = 500) -> int:
    """A pair of texts of so many steps each."""
    first, second = (layer for layer in model.compare if isinstance(layer, nn.Linear))
    products = sum(2 * layer.in_features * layer.out_features + layer.out_features for layer in (first, second))
    features, activations = first.in_features // 2, first.out_features  # z_1 * z_2 and z_1 - z_2; ReLU
    return 2 * count(model.encoder, steps) + products + features + activations
