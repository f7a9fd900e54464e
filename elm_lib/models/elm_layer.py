"""A layer of ELM neurons, wired by a connectome: what `ELMNetwork` is made of.

    b_t     = kappa_b b_{t-1} + sum over a branch's synapses of w_s * [x_t, a_{t-1}][source]      branches
    dm_t    = f(MLP_n([b_t, kappa_m m_{t-1}]))             of each neuron n its own
    m_t     = kappa_m m_{t-1} + gain dm_t                  memory
    y_t     = w_r m_t                                      one number a neuron
    r_t     = kappa_r r_{t-1} + (1 - kappa_r) y_t          moving average
    a_t     = out(y_t - r_t + b_r)                         what other neurons hear

`step` says this line by line. `NetworkLayer.sequence` computes the same for all t: what the input adds at once, then
the loop over t by an engine of `elm_lib.kernels.network`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib import neuron_init
from elm_lib.kernels import network
from elm_lib.kernels.network import ACTIVATIONS, Ensemble, Feedback, Past
from elm_lib.kernels.network.engine_reference import out
from elm_lib.kernels.recurrence import SCALES
from elm_lib.kernels.spikes import Spikes, decayed_sum, filtered_projection, project, thinned
from elm_lib.models.dropout import Masks


class NeuronSettings(NamedTuple):
    """What all neurons of a network share: arguments of `ELMNetwork` by their names, the defaults filled in."""

    d_m: int
    l_mlp: int
    d_mlp: int
    activation: str
    lambda_: float
    memory_update: str
    tanh: str
    tau_m_range: tuple[float, float]
    tau_m_bounds: tuple[float, float]
    tau_m_init: str
    learn_tau_m: bool
    w_s: float | None
    delta_t: float


class LayerState(NamedTuple):
    """b (B, N, d_tree) traces of branches, r (B, N) moving averages, a (B, N) last outputs, m (B, N, d_m) memory.

    b, r, a are None where a layer has none: no tau_b, no tau_r, no synapse that reads its own neurons.
    """

    b: Tensor | None
    r: Tensor | None
    a: Tensor | None
    m: Tensor


class NetworkLayer(nn.Module):
    """N neurons that read `input_size` inputs and, where the connectome says so, each other.

    connectome  int64 (N, d_tree, d_brch): see `elm_lib.models.connectome`
    tau_b       ms: None, one value, or a tensor (d_tree,) or (N, d_tree); without it a branch keeps no trace
    tau_r       ms: None for no high-pass
    output      "identity", "relu" or "spike"
    """

    connectome: Tensor  # buffers
    tau_b: Tensor

    def __init__(
        self,
        input_size: int,
        connectome: Tensor,
        neuron: NeuronSettings,
        *,
        tau_b: float | Tensor | None,
        tau_r: float | None,
        output: str,
        recurrent_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.neuron, self.tau_r, self.output = input_size, neuron, tau_r, output
        self.n, self.d_tree, self.d_brch = connectome.shape
        self.is_recurrent = bool((connectome >= input_size).any())
        self._tau_b = None if tau_b is None else _timescales(tau_b, self.n, self.d_tree)
        self.has_trace = self._tau_b is not None
        where: dict[str, Any] = {"device": device, "dtype": neuron_init.floating(dtype)}
        empty = lambda *shape: torch.empty(shape, **where)  # noqa: E731
        self.register_buffer("connectome", connectome.to(device))
        self.register_buffer("tau_b", empty(*(() if self._tau_b is None else self._tau_b.shape)))
        self.proto_w_s = nn.Parameter(empty(*connectome.shape))
        self.proto_tau_m = nn.Parameter(empty(self.n, neuron.d_m), requires_grad=neuron.learn_tau_m)
        widths = [self.d_tree + neuron.d_m, *[neuron.d_mlp] * neuron.l_mlp, neuron.d_m]
        self.w_p = nn.ParameterList(empty(self.n, after, before) for before, after in zip(widths, widths[1:]))
        self.b_p = nn.ParameterList(empty(self.n, after) for after in widths[1:])
        self.w_r, self.b_r = nn.Parameter(empty(self.n, neuron.d_m)), nn.Parameter(empty(self.n))
        self.sent_masks = Masks(recurrent_dropout) if recurrent_dropout and self.is_recurrent else None
        self.memory_masks = Masks(memory_dropout) if memory_dropout else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew, from torch's global generator. The connectome stays.

        Layers as nn.Linear has them, for each neuron; w_s uniform in +-1 / sqrt(d_brch), or all as given.
        """
        neuron = self.neuron
        tau_m = neuron_init.spaced(neuron.tau_m_range, neuron.d_m, neuron.tau_m_init)
        self.proto_tau_m.copy_(neuron_init.to_proto(tau_m, neuron.tau_m_bounds).expand(self.n, -1))
        self.tau_b.copy_(torch.tensor(0.0) if self._tau_b is None else self._tau_b)
        if neuron.w_s is None:
            self.proto_w_s.uniform_(-1, 1).div_(math.sqrt(self.d_brch))
        else:
            self.proto_w_s.fill_(neuron.w_s)
        for weight, bias in zip(self.w_p, self.b_p):
            most = 1 / math.sqrt(weight.shape[2])
            weight.uniform_(-most, most)
            bias.uniform_(-most, most)
        self.w_r.uniform_(-1, 1).div_(math.sqrt(neuron.d_m))
        self.b_r.zero_()

    @property
    def widths(self) -> list[int]:
        """Numbers of b, r and a in the flat traces of a sample: 0 where there are none."""
        return [self.n * self.d_tree * self.has_trace, self.n * (self.tau_r is not None), self.n * self.is_recurrent]

    @property
    def n_trace(self) -> int:
        return sum(self.widths)

    @property
    def n_memory(self) -> int:
        return self.n * self.neuron.d_m

    @property
    def tau_m(self) -> Tensor:
        """Memory timescales, ms, (N, d_m)."""
        least = 1e-3 * self.neuron.delta_t
        return neuron_init.from_proto(self.proto_tau_m, self.neuron.tau_m_bounds, least=least)

    @property
    def w_s(self) -> Tensor:
        """Synapse weights (N, d_tree, d_brch): of either sign, or >= 0 where their start was given."""
        return self.proto_w_s if self.neuron.w_s is None else F.relu(self.proto_w_s)

    @property
    def kappa_r(self) -> float:
        return 1.0 if self.tau_r is None else math.exp(-self.neuron.delta_t / self.tau_r)

    def decays(self) -> tuple[Tensor, Tensor]:
        """kappa_m and gain, (N, d_m)."""
        neuron, tau_m = self.neuron, self.tau_m
        kappa_m = torch.exp(-neuron.delta_t / tau_m)
        if neuron.memory_update == "improved":
            return kappa_m, -torch.expm1(-neuron.lambda_ * neuron.delta_t / tau_m)
        return kappa_m, neuron.lambda_ * (1 - kappa_m)

    def split(self, s: Tensor, m: Tensor) -> LayerState:
        """The parts of flat traces (.., n_trace) and memory (.., N d_m)."""
        b, r, a = s.split(self.widths, -1)
        return LayerState(
            b.unflatten(-1, (self.n, self.d_tree)) if self.has_trace else None,
            r if self.tau_r is not None else None,
            a if self.is_recurrent else None,
            m.unflatten(-1, (self.n, self.neuron.d_m)),
        )

    def step(self, x: Tensor, s: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the equations, x (.., input_size), flat traces and memory -> a (.., N), traces, memory."""
        b, r, a, m = self.split(s, m)
        kappa_m, gain = self.decays()
        sources = x if a is None else torch.cat([x, a], -1)
        after = (self.w_s * sources[..., self.connectome]).sum(-1)  # (.., N, d_tree)
        if b is not None:
            after = torch.exp(-self.neuron.delta_t / self.tau_b) * b + after
        z = torch.cat([after, kappa_m * m], -1)
        for k, (weight, bias) in enumerate(zip(self.w_p, self.b_p)):
            z = ACTIVATIONS[self.neuron.activation](z) if k else z
            z = (weight @ z.unsqueeze(-1)).squeeze(-1) + bias
        scale, slope = SCALES[self.neuron.tanh]
        m = kappa_m * m + gain * (scale * torch.tanh(slope * z))
        y = (self.w_r * m).sum(-1)
        parts = [] if b is None else [after.flatten(-2)]
        x_out = y
        if r is not None:
            r = self.kappa_r * r + (1 - self.kappa_r) * y
            x_out = y - r
            parts.append(r)
        x_out = out(x_out + self.b_r, self.output)
        parts += [] if a is None else [x_out]
        return x_out, torch.cat(parts, -1) if parts else s, m.flatten(-2)

    def ensemble(self) -> Ensemble:
        """The neurons as engines take them."""
        first, *rest = self.w_p
        kappa_m, gain = (part.T for part in self.decays())
        layers = [(w.permute(1, 2, 0), b.T) for w, b in zip(rest, list(self.b_p)[1:])]
        return Ensemble(
            kappa_m,
            gain,
            first[:, :, self.d_tree :].permute(1, 2, 0),
            layers,
            self.neuron.activation,
            SCALES[self.neuron.tanh],
            self.w_r.T,
            self.b_r,
            self.kappa_r,
            self.output,
        )

    def to_branches(self) -> Tensor:
        """From source to branch, (sources, d_tree, N): synapses of one source and branch add up."""
        sources = self.input_size + self.n * self.is_recurrent
        at = self.connectome * self.n + torch.arange(self.n, device=self.connectome.device).view(-1, 1, 1)
        at = at * self.d_tree + torch.arange(self.d_tree, device=at.device).view(1, -1, 1)  # (source, n, k)
        flat = self.w_s.new_zeros(sources * self.n * self.d_tree).index_add(0, at.flatten(), self.w_s.flatten())
        return flat.view(sources, self.n, self.d_tree).transpose(1, 2)

    def to_first_layer(self) -> Tensor:
        """From source to the first layer of each neuron's MLP, (sources, d_1, N)."""
        sources = self.input_size + self.n * self.is_recurrent
        w_b = self.w_p[0][:, :, : self.d_tree].transpose(1, 2)  # (N, d_tree, d_1)
        each = self.w_s.unsqueeze(-1) * w_b.unsqueeze(2)  # (N, d_tree, d_brch, d_1)
        at = self.connectome * self.n + torch.arange(self.n, device=self.connectome.device).view(-1, 1, 1)
        d_1 = each.shape[3]
        flat = each.new_zeros(sources * self.n, d_1).index_add(0, at.flatten(), each.flatten(0, 2))
        return flat.view(sources, self.n, d_1).transpose(1, 2).contiguous()

    def sequence(
        self, x: Tensor | Spikes, s: Tensor, m: Tensor, lengths: Tensor | None, engine: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`step` for all t: x (B, T, input_size) -> a (T, B, N), traces and memory after each sample's last step."""
        state, batch = self.split(s, m), x.shape[0]
        zeros = m.new_zeros(batch, self.n)
        past = Past(
            state.m.transpose(1, 2),
            zeros if state.r is None else state.r,
            zeros if state.a is None else state.a,
        )
        own_decay = self.has_trace and self.tau_b.dim() > 0
        p, feedback, b_last = self._by_branch(x, state.b, lengths) if own_decay else self._folded(x, state.b, lengths)
        masks = network.Masks(
            None if self.sent_masks is None or not self.training else self.sent_masks.draw(zeros.shape, zeros),
            None if self.memory_masks is None or not self.training else self._memory_mask(past.m),
        )
        a, after, q = network.run(p, past, self.ensemble(), feedback, masks, lengths, engine)
        del p  # frees its memory
        parts = [b_last(q).flatten(1)] if self.has_trace else []
        parts += [after.r] * (state.r is not None) + [after.a] * (state.a is not None)
        return a, torch.cat(parts, 1) if parts else s, after.m.transpose(1, 2).flatten(1)

    def _memory_mask(self, m: Tensor) -> Tensor:
        """Scaled so that the variance of what is added to the memory stays, not its mean, which is about 0."""
        assert self.memory_masks is not None
        return self.memory_masks.draw(m.shape, m) * math.sqrt(1 - self.memory_masks.p)

    def _folded(self, x: Tensor | Spikes, b_0: Tensor | None, lengths: Tensor | None):
        """p (T, B, d_1, N), the feedback, and a function from q_T to b_T, where all branches decay alike.

        Then a branch's trace is a sum over sources, and its weight in the first layer can be multiplied in beforehand.
        """
        to_layer = self.to_first_layer()
        d_1, n = to_layer.shape[1:]
        into, bias = to_layer[: self.input_size].flatten(1), self.b_p[0].T.flatten()
        x = thinned(x)
        read = to_layer[self.input_size :] if self.is_recurrent else None
        if b_0 is None:
            if isinstance(x, Tensor):
                p = project(x.transpose(0, 1), into) + bias
            else:
                p = project(x, into, bias).transpose(0, 1)
            feedback = None if read is None else Feedback(into.new_zeros(()), None, read)
            return p.unflatten(2, (d_1, n)), feedback, None
        rate = self.neuron.delta_t / self.tau_b
        s_0 = torch.einsum("bnk,nhk->bhn", b_0, self.w_p[0][:, :, : self.d_tree]).flatten(1)
        p = filtered_projection(x, into, s_0, rate, bias).transpose(0, 1).unflatten(2, (d_1, n))

        def b_last(q: Tensor | None) -> Tensor:
            steps = x.shape[1] if lengths is None else lengths.view(-1, 1, 1)
            ways = self.to_branches().transpose(1, 2)  # (sources, N, d_tree)
            b = torch.exp(-rate * steps) * b_0
            b = b + torch.einsum("bc,cnk->bnk", decayed_sum(x, rate, lengths), ways[: self.input_size])
            return b if q is None else b + torch.einsum("bj,jnk->bnk", q, ways[self.input_size :])

        return p, None if read is None else Feedback(torch.exp(-rate), None, read), b_last

    def _by_branch(self, x: Tensor | Spikes, b_0: Tensor | None, lengths: Tensor | None):
        """The same where each branch has a timescale of its own: its trace is computed before the first layer."""
        assert b_0 is not None
        rate = (self.neuron.delta_t / self.tau_b).expand(self.n, self.d_tree)
        ways = self.to_branches()  # (sources, d_tree, N)
        into = ways[: self.input_size].transpose(1, 2).flatten(1)  # (C, N d_tree)
        traces = filtered_projection(thinned(x), into, b_0.flatten(1), rate.flatten())  # (B, T, N d_tree)
        w_b = self.w_p[0][:, :, : self.d_tree]  # (N, d_1, d_tree)
        p = torch.einsum("btnk,nhk->tbhn", traces.unflatten(2, rate.shape), w_b) + self.b_p[0].T

        def b_last(q: Tensor | None) -> Tensor:
            own = torch.arange(len(traces), device=traces.device)
            last = traces[:, -1] if lengths is None else traces[own, lengths - 1]
            last = last.unflatten(1, rate.shape)
            return last if q is None else last + q.transpose(1, 2)

        if not self.is_recurrent:
            return p, None, b_last
        return p, Feedback(torch.exp(-rate).T, ways[self.input_size :], w_b.permute(1, 2, 0)), b_last


def _timescales(tau_b: float | Tensor, n: int, d_tree: int) -> Tensor:
    """() or (d_tree,) or (N, d_tree), ms. Raises ValueError for another shape, or for a value that is not > 0."""
    tau_b = torch.as_tensor(tau_b, dtype=torch.get_default_dtype(), device="cpu").clone()
    shapes = [(), (d_tree,), (n, d_tree)]
    if tuple(tau_b.shape) not in shapes or not bool(((tau_b > 0) & tau_b.isfinite()).all()):
        raise ValueError(f"tau_b of shape {tuple(tau_b.shape)}: give None, or values > 0 (ms) of a shape of {shapes}")
    return tau_b
