"""The Expressive Leaky Memory neuron and its branch variant (Spieler et al., ICLR 2024, equation 1 and Figure 4a).

    kappa_m = exp(-delta_t / tau_m)                 kappa_s = exp(-delta_t / tau_s)
    s_t     = kappa_s * s_{t-1} + w_s * x_t                                   synapse traces
    dm_t    = tanh(MLP_{w_p}([s_t, kappa_m * m_{t-1}]))                       integration
    m_t     = kappa_m * m_{t-1} + lambda (1 - kappa_m) * dm_t                 leaky memory
    y_t     = w_y m_t                                                         output

`step` says this line by line. `forward` computes the same for a whole sequence: what does not depend on m (traces,
branch sums, the half of the MLP's first layer that reads s) runs over all t at once, and `elm_lib.kernels.recurrence` does the rest.

    >>> elm = ELM(input_size=1278, d_m=20, d_o=2, batch_first=True)
    >>> y, state = elm(torch.zeros(8, 500, 1278))            # (8, 500, 2), as nn.LSTM would return
    >>> y, state = elm(torch.zeros(8, 500, 1278), state)     # and the stream goes on
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from elm_lib.kernels.affine import affine
from elm_lib.kernels.recurrence import ENGINES, MemoryMLP, recurrence
from elm_lib.kernels.recurrence.engine_reference import ACTIVATIONS
from elm_lib.kernels.spikes import Spikes, decayed_sum, filtered_projection, thinned
from elm_lib.kernels.traces import filter_traces
from elm_lib.neuron_init import choice, kaiming, route, spaced, to_proto, whole_number

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

SCALES = {"tanh": (1.0, 1.0), "scaled": (1.7159, 2.0 / 3.0)}  # f(z) = a tanh(b z)
UPDATES = ("original", "improved")
State = tuple[Tensor, Tensor]


@torch._disable_dynamo  # torch.compiler.disable, whose import takes seconds, at the first call
def _beside_graph(function, *arguments):
    return function(*arguments)


class ELM(nn.Module):
    """ELM neuron. A drop-in for `nn.LSTM`: `output, state = elm(x, state)`.

    input_size    d_s, number of input channels (one synapse each)
    d_m           memory units (`hidden_size` of an LSTM)
    d_o           outputs; None returns the memory m itself, (.., d_m), as nn.LSTM returns its hidden state
    l_mlp, d_mlp  hidden layers (0: linear integration) and their width (default 2 d_m)
    lambda_       scale of the memory update: Table S1 has 10 for NeuronIO and recommends 5
    tau_m_init    "linspace" or "logspace" over tau_m_range, ms
    tau_m_bounds  ms; tau_m = lo + (hi - lo) sigmoid(.), learned unless learn_tau_m is False
    tau_s         ms: one value, or one a synapse (input_size,)
    w_s           initial synapse weight; learned only if learn_w_s, kept >= 0 by a ReLU
    delta_t       ms between two inputs
    memory_update "original" lambda (1 - kappa_m), or "improved" 1 - exp(-lambda delta_t / tau_m) (Appendix A)
    tanh          "tanh" as in the equations, "scaled" 1.7159 tanh(2x/3) as in the released code
    batch_first   (B, T, input_size) rather than (T, B, input_size); a sequence without a batch is (T, input_size)
    engine        of `elm_lib.kernels.recurrence`
    checkpoint_steps  bounds the memory of training: only the states every so many steps are kept, and backward runs
                  each stretch once more; None keeps m and the first layer's sums of all steps

    The state is (s, m): traces (B, input_size) and memory (B, d_m). Raises ValueError for any argument out of range.
    """

    def __init__(
        self,
        input_size: int,
        d_m: int = 20,
        d_o: int | None = None,
        *,
        l_mlp: int = 1,
        d_mlp: int | None = None,
        activation: str = "relu",
        lambda_: float = 10.0,
        tau_m_range: tuple[float, float] = (1.0, 100.0),
        tau_m_bounds: tuple[float, float] = (0.0, 500.0),
        tau_m_init: str = "linspace",
        learn_tau_m: bool = True,
        tau_s: float | Tensor = 5.0,
        w_s: float = 0.5,
        learn_w_s: bool = False,
        delta_t: float = 1.0,
        memory_update: str = "original",
        tanh: str = "tanh",
        batch_first: bool = False,
        engine: str = "auto",
        checkpoint_steps: int | None = None,
    ) -> None:
        super().__init__()
        d_mlp = 2 * d_m if d_mlp is None else d_mlp
        d_out = 1 if d_o is None else d_o
        for name, value, least in (
            ("input_size", input_size, 1),
            ("d_m", d_m, 1),
            ("d_o", d_out, 1),
            ("d_mlp", d_mlp, 1),
            ("l_mlp", l_mlp, 0),
        ):
            whole_number(name, value, least)
        for name, value in (("delta_t", delta_t), ("lambda_", lambda_)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name}={value}: must be a finite number > 0")
        if not 0 <= w_s < math.inf:
            raise ValueError(f"w_s={w_s}: must be a finite number >= 0")
        if checkpoint_steps is not None:
            whole_number("checkpoint_steps", checkpoint_steps, 1)
        self.input_size, self.d_m, self.d_o, self.l_mlp, self.d_mlp = input_size, d_m, d_o, l_mlp, d_mlp
        self.checkpoint_steps = checkpoint_steps
        choice("engine", engine, ("auto", *ENGINES))
        self.lambda_, self.delta_t, self.batch_first, self.engine = lambda_, delta_t, batch_first, engine
        self.activation = choice("activation", activation, ACTIVATIONS)
        self.memory_update = choice("memory_update", memory_update, UPDATES)
        self.tanh = choice("tanh", tanh, SCALES)

        self.tau_m_bounds = tuple(tau_m_bounds)
        tau_m = spaced(tau_m_range, d_m, choice("tau_m_init", tau_m_init, ("linspace", "logspace")))
        self.proto_tau_m = nn.Parameter(to_proto(tau_m, self.tau_m_bounds), requires_grad=learn_tau_m)
        self.proto_w_s = nn.Parameter(torch.full((self.n_synapse,), float(w_s)), requires_grad=learn_w_s)
        self.register_buffer("tau_s", self._check_tau_s(tau_s))
        widths = [self.d_tree + d_m, *[self.d_mlp] * l_mlp, d_m]
        self.mlp = nn.ModuleList(kaiming(nn.Linear(i, o)) for i, o in zip(widths, widths[1:], strict=False))
        self.w_y = kaiming(nn.Linear(d_m, d_o)) if d_o else None

    # ---- parameters in the paper's symbols -------------------------------------------------------------------

    @property
    def n_synapse(self) -> int:
        return self.input_size

    @property
    def d_tree(self) -> int:
        """Number of values that reach the MLP from the synapses: d_s here, branches in `BranchELM`."""
        return self.input_size

    @property
    def tau_m(self) -> Tensor:
        """Memory timescales, ms, (d_m,): inside tau_m_bounds by a scaled sigmoid."""
        lo, hi = self.tau_m_bounds
        tau_m = lo + (hi - lo) * torch.sigmoid(self.proto_tau_m)
        return tau_m.clamp(min=1e-3 * self.delta_t)  # kappa_m is 0 there; at tau_m = 0 its gradient would be 0 / 0

    @property
    def kappa_m(self) -> Tensor:
        return torch.exp(-self.delta_t / self.tau_m)

    @property
    def gain(self) -> Tensor:
        """What multiplies dm_t, (d_m,)."""
        return self._gain(self.tau_m, self.kappa_m)

    def _gain(self, tau_m: Tensor, kappa_m: Tensor) -> Tensor:
        if self.memory_update == "original":
            return self.lambda_ * (1 - kappa_m)
        return -torch.expm1(-self.lambda_ * self.delta_t / tau_m)

    @property
    def w_s(self) -> Tensor:
        """Synapse weights >= 0, (n_synapse,)."""
        return F.relu(self.proto_w_s)

    # ---- one step, as the paper writes it --------------------------------------------------------------------

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One time step: x (B, input_size) -> y (B, d_o), (s, m). The specification of `forward`; also for streaming."""
        s, m = state if state is not None else self.zero_state(x)
        kappa_m, kappa_s = self.kappa_m, torch.exp(-self.delta_t / self.tau_s)
        s = kappa_s * s + self._synapse_input(x)
        z = torch.cat([self._to_tree(s), kappa_m * m], -1)
        for layer in self.mlp[:-1]:
            z = ACTIVATIONS[self.activation](layer(z))
        a, b = SCALES[self.tanh]
        delta_m = a * torch.tanh(b * self.mlp[-1](z))
        m = kappa_m * m + self.gain * delta_m
        return self._read_out(m), (s, m)

    def _synapse_input(self, x: Tensor | Spikes) -> Tensor:
        """w_s * x_t, in the space in which traces are kept: (.., input_size) -> (.., n_trace)."""
        return self.w_s * (x if isinstance(x, Tensor) else x.dense())

    def _to_tree(self, s: Tensor) -> Tensor:
        """Traces to what the MLP reads: (.., n_trace) -> (.., d_tree)."""
        return s

    def _read_out(self, m: Tensor) -> Tensor:
        return m if self.w_y is None else self.w_y(m)

    # ---- a whole sequence ------------------------------------------------------------------------------------

    def forward(self, x: Tensor | Spikes, state: State | None = None) -> tuple[Tensor, State]:
        """Run a sequence from `state` (zeros by default).

        x        (T, B, input_size), or (B, T, input_size) with batch_first, or (T, input_size);
                 or `Spikes`, which are (B, T, input_size) whatever batch_first says
        Returns  output, (T, B, .) or (B, T, .) as batch_first says, with d_o (or d_m) last, and the state (s, m) after
                 the last step.
        Raises   ValueError on a wrong shape, or a state of another batch size or width.

        Under torch.compile it runs as it is, beside the compiled graph.
        """
        return _beside_graph(self._forward, x, state) if torch.compiler.is_compiling() else self._forward(x, state)

    def _forward(self, x: Tensor | Spikes, state: State | None) -> tuple[Tensor, State]:
        if not isinstance(x, Spikes):
            if x.dim() == 2:  # no batch: add one, take it away again
                axis = 0 if self.batch_first else 1
                state = None if state is None else (state[0].unsqueeze(0), state[1].unsqueeze(0))
                y, (s, m) = self._forward(x.unsqueeze(axis), state)
                return y.squeeze(axis), (s.squeeze(0), m.squeeze(0))
            x = x if self.batch_first else x.transpose(0, 1)
        else:
            x = x.check(self.proto_tau_m.dtype)
        if len(x.shape) != 3 or x.shape[2] != self.input_size or x.shape[1] == 0:
            raise ValueError(
                f"x has shape {tuple(x.shape)} (batch first): needs 2 or 3 dimensions, at least one step, and input_size={self.input_size} last"
            )
        if state is not None and not (isinstance(state, tuple | list) and len(state) == 2):
            raise ValueError(f"state is {type(state).__name__}: give the (s, m) that a call returned")
        s_0, m_0 = self.zero_state(x) if state is None else state
        if m_0.shape != (x.shape[0], self.d_m) or s_0.shape != (x.shape[0], self.n_trace):
            raise ValueError(
                f"state has shapes {tuple(s_0.shape)}, {tuple(m_0.shape)}: expected {(x.shape[0], self.n_trace)}, {(x.shape[0], self.d_m)}"
            )
        y_tbo, s, m = self._checkpointed(x, s_0, m_0) if self.checkpoint_steps else self._stretch(x, s_0, m_0)
        return (y_tbo.transpose(0, 1) if self.batch_first else y_tbo), (s, m)

    def _stretch(self, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, input_size) from s_0, m_0: output (T, B, d_o), and s, m after the last step."""
        p_tbh, s = self._input_half(x, s_0)
        tau_m = self.tau_m
        kappa_m = torch.exp(-self.delta_t / tau_m)
        gain = self._gain(tau_m, kappa_m)
        m_tbm = recurrence(p_tbh, m_0, kappa_m, gain, self._memory_mlp(), self.engine)
        del p_tbh  # nobody reads it again
        return self._read_out(m_tbm), s, m_tbm[-1]

    def _checkpointed(self, x: Tensor | Spikes, s: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same in stretches of checkpoint_steps, of which backward holds one at a time."""
        outputs = []
        for t in range(0, x.shape[1], self.checkpoint_steps):
            end = min(t + self.checkpoint_steps, x.shape[1])
            piece = x[:, t:end] if isinstance(x, Tensor) else x.window(t, end)
            y, s, m = checkpoint(self._stretch, piece, s, m, use_reentrant=False, preserve_rng_state=False)
            outputs.append(y)
        return torch.cat(outputs), s, m

    @property
    def n_trace(self) -> int:
        """Number of traces in the state."""
        return self.n_synapse

    def zero_state(self, x: Tensor | Spikes) -> State:
        """s_0 = 0, m_0 = 0 for a batch like x (B, ..)."""
        zeros = self.proto_tau_m.new_zeros
        return zeros(x.shape[0], self.n_trace), zeros(x.shape[0], self.d_m)

    def _memory_mlp(self) -> MemoryMLP:
        first, *rest = self.mlp
        return MemoryMLP(
            first.weight[:, self.d_tree :],
            [(layer.weight, layer.bias) for layer in rest],
            self.activation,
            SCALES[self.tanh],
        )

    def _input_half(self, x: Tensor | Spikes, s_0: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, T, input_size) -> what the first layer gets from the synapses, (T, B, d_1), and the last trace.

        A filter with one tau_s commutes with every sum: where the first layer is narrower than the tree, and x long enough to
        pay for one matrix from inputs to layer, x is projected to the layer first and filtered there. Otherwise the traces are.
        """
        w_1, b_1 = self.mlp[0].weight[:, : self.d_tree], self.mlp[0].bias
        rate = self.delta_t / self.tau_s
        if self.tau_s.numel() == 1 and len(b_1) < self.d_tree and x.shape[0] * x.shape[1] >= self.input_size:
            x, last = thinned(x), torch.exp(-rate * x.shape[1]) * s_0
            if self._branch_sums is None:
                to_layer, s = self.w_s.unsqueeze(1) * w_1.T, decayed_sum(x, rate) * self.w_s
            else:
                to_tree = self._branch_sums()
                to_layer, s = to_tree @ w_1.T, decayed_sum(x, rate) @ to_tree
            return filtered_projection(x, to_layer, self._to_tree(s_0) @ w_1.T, rate, b_1).transpose(0, 1), s + last
        traces = self._traces(x, s_0, rate)
        return affine(self._to_tree(traces).transpose(0, 1), w_1, b_1), traces[:, -1]

    def _traces(self, x: Tensor | Spikes, s_0: Tensor, rate: Tensor) -> Tensor:
        """The synapse traces s_1 .. s_T, (B, T, n_trace)."""
        return filter_traces(self._synapse_input(x), s_0, rate)

    _branch_sums = None  # (input_size, d_tree) as a method, where synapses are summed

    # ---- construction ----------------------------------------------------------------------------------------

    def _check_tau_s(self, tau_s: float | Tensor) -> Tensor:
        tau_s = torch.as_tensor(tau_s, dtype=torch.get_default_dtype()).clone()
        if (
            tau_s.dim() > 1
            or (tau_s.dim() == 1 and tau_s.numel() not in self._tau_s_sizes())
            or not bool(((tau_s > 0) & tau_s.isfinite()).all())
        ):
            raise ValueError(
                f"tau_s of shape {tuple(tau_s.shape)}: give one value > 0 or a vector of {self._tau_s_sizes()} values > 0 (ms)"
            )
        return tau_s if tau_s.numel() > 1 else tau_s.reshape(())

    def _tau_s_sizes(self) -> tuple[int, ...]:
        return (1, self.n_synapse)


class BranchELM(ELM):
    """ELM whose synapses are first summed along d_tree branches of d_brch synapses each (Figure 4a). w_s is learned.

    routing  "neighbourhood"  branch b takes d_brch neighbouring inputs from b * ceil(input_size / d_tree); past the end: masked
             "random"         every synapse takes an input at random, without repetition within a branch while there are enough;
                              drawn from routing_seed, or from torch's global generator; stored in the state_dict
             "none"           synapse i takes input i; d_tree * d_brch must equal input_size
    tau_s    ms: one value, one a branch (d_tree,), or one a synapse (d_tree * d_brch,)
    The state is (s, m) with branch traces (B, d_tree), or synapse traces if tau_s has one value a synapse.
    Other arguments as `ELM`.
    """

    def __init__(
        self,
        input_size: int,
        d_m: int = 20,
        d_o: int | None = None,
        *,
        d_tree: int = 45,
        d_brch: int = 100,
        routing: str = "neighbourhood",
        routing_seed: int | None = None,
        learn_w_s: bool = True,
        **kwargs,
    ) -> None:
        self._d_tree, self.d_brch = d_tree, d_brch
        for name, value in (("input_size", input_size), ("d_tree", d_tree), ("d_brch", d_brch)):
            whole_number(name, value, 1)
        self.routing = choice("routing", routing, ("neighbourhood", "random", "none"))
        indices, mask = route(routing, input_size, d_tree, d_brch, routing_seed)
        super().__init__(input_size, d_m, d_o, learn_w_s=learn_w_s, **kwargs)
        self.register_buffer("routing_index", indices.flatten())  # (n_synapse,) input of each synapse
        self.register_buffer("routing_mask", mask.flatten())  # (n_synapse,) False: no input there
        self.register_buffer("branch_of", torch.arange(d_tree).repeat_interleave(d_brch), persistent=False)

    @property
    def n_synapse(self) -> int:
        return self._d_tree * self.d_brch

    @property
    def d_tree(self) -> int:
        return self._d_tree

    @property
    def n_trace(self) -> int:
        return self.n_synapse if self._per_synapse else self.d_tree

    @property
    def _per_synapse(self) -> bool:
        return self.tau_s.numel() == self.n_synapse and self.n_synapse > self.d_tree

    @property
    def w_s(self) -> Tensor:
        """Synapse weights >= 0, (d_tree * d_brch,); 0 where a synapse has no input."""
        w_s = F.relu(self.proto_w_s)
        return torch.where(self.routing_mask, w_s, torch.zeros_like(w_s))

    def _tau_s_sizes(self) -> tuple[int, ...]:
        return (1, self.d_tree, self.n_synapse)

    def _branch_sums(self) -> Tensor:
        """Weights of the branch sums, (input_size, d_tree); inputs that a branch reads twice add up."""
        w_s = self.w_s
        entry = self.routing_index * self.d_tree + self.branch_of
        branch_sums = w_s.new_zeros(self.input_size * self.d_tree).index_add(0, entry, w_s)
        return branch_sums.view(self.input_size, self.d_tree)

    def _synapse_input(self, x: Tensor | Spikes) -> Tensor:
        x = x if isinstance(x, Tensor) else x.dense()
        return self.w_s * x[..., self.routing_index] if self._per_synapse else x @ self._branch_sums()

    def _traces(self, x: Tensor | Spikes, s_0: Tensor, rate: Tensor) -> Tensor:
        if self._per_synapse:
            return super()._traces(x, s_0, rate)
        return filtered_projection(thinned(x), self._branch_sums(), s_0, rate)

    def _to_tree(self, s: Tensor) -> Tensor:
        return s.unflatten(-1, (self.d_tree, self.d_brch)).sum(-1) if self._per_synapse else s
