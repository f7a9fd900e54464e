"""A stream, one step at a time, with everything folded that does not change from step to step.

The state is one buffer [r | m]: r is what the MLP reads of the synapses, the traces themselves where no nonlinearity is
between. kappa_m is folded into the first layer, b of f(z) = a tanh(b z) into the last, a into the gain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elm_lib.interface import inputs
from elm_lib.interface.inputs import State
from elm_lib.kernels.recurrence import ACTIVATIONS
from elm_lib.kernels.synapses import branch_sums


class Streamer:
    """y = streamer(x): the steps of `elm_step` from a state on, without gradients.

    It keeps a copy of the parameters: what the neuron learns afterwards does not reach it.

    p       `Parameters` of the neuron
    source  (S,) which input each trace reads, or None: trace k reads input k, or w_s sums the inputs
    state   where it starts: (B, .) for B streams at once, or (n_trace,), (d_m,) for one, whose x and y have no batch
    """

    @torch.no_grad()
    def __init__(self, p: Any, input_size: int, source: Tensor | None, state: State) -> None:
        self._batched = state.m.dim() == 2
        s, m = (part if self._batched else part.unsqueeze(0) for part in state)
        self._shape = (len(m), input_size) if self._batched else (input_size,)
        self._source, self._w_s, self._kappa_s, self._kappa_m = source, p.w_s.clone(), p.kappa_s.clone(), p.kappa_m
        self._gain, self._act, self._phi = p.a * p.gain, ACTIVATIONS[p.act], p.phi
        self._d_brch = p.d_brch if p.phi != "none" else 1
        (w_1, b_1), *rest = p.w_p
        d_tree = w_1.shape[1] - m.shape[1]
        w_r, w_m = w_1[:, :d_tree], w_1[:, d_tree:] * p.kappa_m
        if p.phi == "none":  # a sum over synapses is one more product, which folds into this one
            w_r = w_r.repeat_interleave(p.d_brch, 1)
        layers = [(torch.cat([w_r, w_m], 1), b_1), *rest]
        layers[-1] = p.b * layers[-1][0], p.b * layers[-1][1]
        self._layers = [(b.clone(), w.T.contiguous()) for w, b in layers]
        self._read_out = None if p.w_y is None else (p.w_y[1].clone(), p.w_y[0].T.contiguous())
        self._z = m.new_empty(len(m), w_r.shape[1] + m.shape[1])
        self._r, self._m = self._z[:, : w_r.shape[1]], self._z[:, w_r.shape[1] :]
        self._s = self._r if p.phi == "none" else torch.empty_like(s)
        self.state = state

    @property
    def state(self) -> State:
        """After the last step; a copy. Assign one to go on from it."""
        s, m = (self._s, self._m) if self._batched else (self._s[0], self._m[0])
        return State(s.clone(), m.clone())

    @state.setter
    def state(self, state: State) -> None:
        batch = (len(self._m),) if self._batched else ()
        inputs.check_state(state, batch, self._s.shape[1], self._m.shape[1], self._m)
        self._s.copy_(state[0])
        self._m.copy_(state[1])

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """One step: x (B, input_size) or (input_size,) -> y (B, d_o) or (d_o,). Raises as `step`."""
        if type(x) is not Tensor or x.shape != self._shape or x.dtype != self._m.dtype:
            self._refuse(x)
        x = x if self._batched else x.unsqueeze(0)
        x = x if self._source is None else x[:, self._source]
        s, m = self._s, self._m
        s.mul_(self._kappa_s)
        s.addcmul_(x, self._w_s) if self._w_s.dim() == 1 else s.addmm_(x, self._w_s)
        if self._phi != "none":
            self._r.copy_(branch_sums(s, self._d_brch, self._phi))
        (bias, weight), *rest = self._layers
        z = torch.addmm(bias, self._z, weight)
        for bias, weight in rest:
            z = torch.addmm(bias, self._act(z), weight)
        m.mul_(self._kappa_m).addcmul_(self._gain, z.tanh_())
        y = m.clone() if self._read_out is None else torch.addmm(self._read_out[0], m, self._read_out[1])
        return y if self._batched else y[0]

    def _refuse(self, x: Any) -> None:
        inputs.check_tensor(x, self._m)
        if x.shape != self._shape:
            raise ValueError(f"x has shape {tuple(x.shape)}: this stream takes {self._shape}, as its state began")
