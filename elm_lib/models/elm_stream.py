"""A network of ELM neurons on a stream, one step at a time, with everything folded that does not change between steps.

What a source sends to the first layer is one matrix, if branches keep no trace. With traces it is one to the branches,
and one from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elm_lib.interface import inputs
from elm_lib.interface.inputs import State
from elm_lib.kernels.network.engine_reference import out
from elm_lib.kernels.recurrence.engine_reference import ACTIVATIONS
from elm_lib.models.elm_layer import NetworkLayer


class NetworkStreamer:
    """y = streamer(x): the steps of `ELMNetwork.step` from a state on, without gradients.

    It keeps a copy of the parameters: what the network learns afterwards does not reach it.

    parts  flat traces and memory of each layer, and `state` the same as one: (B, .), or without a batch
    """

    @torch.no_grad()
    def __init__(
        self,
        layers: Sequence[NetworkLayer],
        w_y: nn.Linear | None,
        parts: Sequence[tuple[Tensor, Tensor]],
        input_size: int,
        state: State,
    ) -> None:
        self._batched = state.m.dim() == 2
        self._like, self._shape = state.m, (len(state.m), input_size) if self._batched else (input_size,)
        self._layers = [_Layer(layer) for layer in layers]
        self._w_y = None if w_y is None else (w_y.bias.clone(), w_y.weight.T.contiguous())
        self._sizes = [s.shape[-1] for s, _ in parts], [m.shape[-1] for _, m in parts]
        self.state = state

    @property
    def state(self) -> State:
        """After the last step; a copy. Assign one to go on from it."""
        s, m = (torch.cat(part, 1) for part in zip(*(layer.state() for layer in self._layers)))
        return State(s, m) if self._batched else State(s[0], m[0])

    @state.setter
    def state(self, state: State) -> None:
        batch = (self._shape[0],) if self._batched else ()
        inputs.check_state(state, batch, sum(self._sizes[0]), sum(self._sizes[1]), self._like)
        s, m = (part if self._batched else part.unsqueeze(0) for part in state)
        for layer, *part in zip(self._layers, s.split(self._sizes[0], 1), m.split(self._sizes[1], 1)):
            layer.start(*part)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """One step: x (B, input_size) or (input_size,) -> y (B, d_o) or (d_o,). Raises as `ELMNetwork.step`."""
        if type(x) is not Tensor or x.shape != self._shape or x.dtype != self._like.dtype:
            self._refuse(x)
        x = x if self._batched else x.unsqueeze(0)
        for layer in self._layers:
            x = layer(x)
        y = x.clone() if self._w_y is None else torch.addmm(self._w_y[0], x, self._w_y[1])
        return y if self._batched else y[0]

    def _refuse(self, x: Any) -> None:
        inputs.check_tensor(x, self._like)
        if x.shape != self._shape:
            raise ValueError(f"x has shape {tuple(x.shape)}: this stream takes {self._shape}, as its state began")


class _Layer:
    """One layer. Neurons come first, (N, B, .), as torch.baddbmm takes them."""

    def __init__(self, layer: NetworkLayer) -> None:
        self._layer, first = layer, layer.w_p[0]
        self._kappa_m, self._gain = (part.unsqueeze(1).clone() for part in layer.decays())  # (N, 1, d_m)
        self._w_u = first[:, :, layer.d_tree :].transpose(1, 2).contiguous()
        self._rest = [
            (b.unsqueeze(1).clone(), w.transpose(1, 2).contiguous())
            for w, b in zip(list(layer.w_p)[1:], list(layer.b_p)[1:])
        ]
        self._b_1, self._n = layer.b_p[0].unsqueeze(1).clone(), layer.n
        self._act = ACTIVATIONS[layer.neuron.activation]
        self._scale, self._slope = layer.ensemble().scale
        self._w_r, self._b_r, self._kappa_r = layer.w_r.unsqueeze(2).clone(), layer.b_r.clone(), layer.kappa_r
        if layer.has_trace:  # (sources, N d_tree), then the branches' part of the first layer
            self._into = layer.to_branches().transpose(1, 2).flatten(1).contiguous()
            self._w_b = first[:, :, : layer.d_tree].transpose(1, 2).contiguous()
            kappa_b = torch.exp(-layer.neuron.delta_t / layer.tau_b)
            self._kappa_b = kappa_b.expand(layer.n, layer.d_tree).flatten().clone()
        else:  # (sources, N d_1)
            self._into = layer.to_first_layer().transpose(1, 2).flatten(1).contiguous()

    def start(self, s: Tensor, m: Tensor) -> None:
        state = self._layer.split(s, m)
        self._m = state.m.transpose(0, 1).clone()  # (N, B, d_m)
        self._b, self._r, self._a = (None if part is None else part.flatten(1).clone() for part in state[:3])

    def state(self) -> tuple[Tensor, Tensor]:
        parts = [part for part in (self._b, self._r, self._a) if part is not None]
        m = self._m.transpose(0, 1).flatten(1)
        return torch.cat(parts, 1) if parts else m.new_empty(len(m), 0), m.clone()

    def __call__(self, x: Tensor) -> Tensor:
        sources = x if self._a is None else torch.cat([x, self._a], 1)
        came = sources @ self._into
        if self._b is not None:
            self._b = torch.addcmul(came, self._b, self._kappa_b)
            z = torch.baddbmm(self._b_1, self._b.view(len(x), self._n, -1).transpose(0, 1), self._w_b)
        else:
            z = came.view(len(x), self._n, -1).transpose(0, 1) + self._b_1
        u = self._kappa_m * self._m
        z = torch.baddbmm(z, u, self._w_u)
        for bias, weight in self._rest:
            z = torch.baddbmm(bias, self._act(z), weight)
        self._m = torch.addcmul(u, self._gain, self._scale * torch.tanh(self._slope * z))
        y = torch.bmm(self._m, self._w_r).squeeze(2).T  # (B, N)
        if self._r is not None:
            self._r = self._kappa_r * self._r + (1 - self._kappa_r) * y
            y = y - self._r
        a = out(y + self._b_r, self._layer.output)
        if self._a is not None:
            self._a = a
        return a
