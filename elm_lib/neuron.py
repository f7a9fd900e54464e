"""The Expressive Leaky Memory neuron and its branch variant (Spieler et al., ICLR 2024, equation 1 and Figure 4a).

    kappa_m = exp(-delta_t / tau_m)                 kappa_s = exp(-delta_t / tau_s)
    s_t     = kappa_s * s_{t-1} + w_s * x_t                                   synapse traces
    dm_t    = tanh(MLP_{w_p}([s_t, kappa_m * m_{t-1}]))                       integration
    m_t     = kappa_m * m_{t-1} + lambda (1 - kappa_m) * dm_t                 leaky memory
    y_t     = w_y m_t                                                         output

`elm_step` says this line by line. `ELM.forward` computes the same for a whole sequence: what does not depend on m for
all t at once (`elm_lib.kernels.synapses`), then the memory step by step (`elm_lib.kernels.recurrence`).

    >>> elm = ELM(input_size=1278, d_m=20, d_o=2, batch_first=True)
    >>> y, state = elm(torch.zeros(8, 500, 1278))            # (8, 500, 2), as nn.LSTM would return
    >>> y, state = elm(torch.zeros(8, 500, 1278), state)     # the stream goes on
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib import neuron_init
from elm_lib.interface import hooks, inputs, lstm
from elm_lib.interface.module import Recurrent, State
from elm_lib.interface.stream import Streamer
from elm_lib.kernels import ops, synapses, written
from elm_lib.kernels.recurrence import ACTIVATIONS, ENGINES, SCALES, MemoryMLP, recurrence
from elm_lib.kernels.spikes import Spikes

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class Parameters(NamedTuple):
    """What one step reads, for S traces: one a synapse, or one a branch.

    kappa_s  () or (S,)     decay of the traces a step
    w_s      (S,)           synapse weights, one trace a synapse; or (d_s, S), which sums the inputs of each branch;
                            None where x is weighted already
    d_brch                  synapse traces that a branch adds up; 1 without branches, or with one trace a branch
    kappa_m  (d_m,)         decay of the memory a step
    gain     (d_m,)         lambda (1 - kappa_m)
    w_p      [(W, b), ...]  layers of the MLP
    act, a, b               activation between the layers, and f(z) = a tanh(b z) after the last (1, 1 in the equations)
    w_y      (W, b)         read-out; None returns m
    phi                     what the sum of a branch goes through before the MLP: see `branch_sums`
    """

    kappa_s: Tensor
    w_s: Tensor | None
    d_brch: int
    kappa_m: Tensor
    gain: Tensor
    w_p: list[tuple[Tensor, Tensor]]
    act: str
    a: float
    b: float
    w_y: tuple[Tensor, Tensor] | None
    phi: str = "none"


def elm_step(x: Tensor, state: tuple[Tensor, Tensor], p: Parameters) -> tuple[Tensor, State]:
    """Equation 1: the synapses' inputs x (B, d_s), and (s, m) after the last step -> y (B, d_o), (s, m)."""
    s, m = state
    s = p.kappa_s * s + (x if p.w_s is None else synapses.weighted(x, p.w_s))  # (B, S)
    z = torch.cat([synapses.branch_sums(s, p.d_brch, p.phi), p.kappa_m * m], -1)
    *hidden, (w_out, b_out) = p.w_p
    for w, b in hidden:
        z = ACTIVATIONS[p.act](F.linear(z, w, b))  # (B, d_mlp)
    delta_m = p.a * torch.tanh(p.b * F.linear(z, w_out, b_out))  # (B, d_m)
    m = p.kappa_m * m + p.gain * delta_m
    return (m if p.w_y is None else F.linear(m, *p.w_y)), State(s, m)


class ELM(Recurrent):
    """ELM neuron. A drop-in for `nn.LSTM`: `output, state = elm(x, state)`.

    input_size    d_s, number of input channels (one synapse each)
    d_m           memory units (`hidden_size` of an LSTM)
    d_o           outputs; None returns the memory m itself, (.., d_m), as nn.LSTM returns its hidden state
    l_mlp, d_mlp  hidden layers (0: linear integration) and their width (default 2 d_m)
    lambda_       scale of the memory update: Table S1 recommends 5, and has 10 for NeuronIO
    tau_m_init    "linspace" or "logspace" over tau_m_range, ms
    tau_m_bounds  ms; tau_m = lo + (hi - lo) sigmoid(.), learned unless learn_tau_m is False. None: those of tau_m_range
    tau_s         ms: one value, or one a synapse (input_size,)
    w_s           initial synapse weight; learned only if learn_w_s, kept >= 0 by a ReLU
    delta_t       ms between two inputs
    memory_update "original" lambda (1 - kappa_m), or "improved" 1 - exp(-lambda delta_t / tau_m) (Appendix A)
    tanh          "tanh" as in the equations, "scaled" 1.7159 tanh(2x/3) as in the released code
    batch_first   (B, T, input_size) rather than (T, B, input_size); a sequence without a batch is (T, input_size)
    engine        of `elm_lib.kernels.recurrence`
    checkpoint_steps  bounds the memory of training: only the states every so many steps are kept, and backward runs
                  each stretch once more; None keeps m and the first layer's sums of all steps
    device, dtype of parameters and buffers, as for nn.LSTM

    The defaults suit spikes, 1 ms a step; `for_sequences` has those for dense sequences. The state is a `State`.
    The layers of `mlp` are read and never called: pruning and parametrisations work, other hooks are refused.
    Raises ValueError for any argument out of range, TypeError for one that only nn.LSTM has.
    """

    tau_s: Tensor  # buffer
    kind = "elm"

    @lstm.explained
    def __init__(
        self,
        input_size: int,
        d_m: int = 20,
        *,
        d_o: int | None = None,
        l_mlp: int = 1,
        d_mlp: int | None = None,
        activation: str = "relu",
        lambda_: float = 5.0,
        tau_m_range: tuple[float, float] = (1.0, 100.0),
        tau_m_bounds: tuple[float, float] | None = (0.0, 500.0),
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_mlp = 2 * d_m if d_mlp is None else d_mlp
        neuron_init.check_whole(1, input_size=input_size, d_m=d_m, d_mlp=d_mlp)
        neuron_init.check_whole(1, optional=True, d_o=d_o, checkpoint_steps=checkpoint_steps)
        neuron_init.check_whole(0, l_mlp=l_mlp)
        neuron_init.check_scales(w_s, delta_t=delta_t, lambda_=lambda_)
        self.input_size, self.d_m, self.d_o, self.l_mlp, self.d_mlp = input_size, d_m, d_o, l_mlp, d_mlp
        self.lambda_, self.delta_t, self.batch_first = lambda_, delta_t, batch_first
        self.checkpoint_steps = checkpoint_steps
        self.engine = neuron_init.choice("engine", engine, ("auto", *ENGINES))
        self.activation = neuron_init.choice("activation", activation, ACTIVATIONS)
        self.memory_update = neuron_init.choice("memory_update", memory_update, ("original", "improved"))
        self.tanh = neuron_init.choice("tanh", tanh, SCALES)

        low, high = tau_m_range if tau_m_bounds is None else tau_m_bounds
        self.tau_m_bounds = (low, high)
        tau_m = neuron_init.spaced(tau_m_range, d_m, tau_m_init)
        tau_s = neuron_init.timescales(tau_s, {1, self.d_tree, self.n_synapse})
        proto_tau_m = neuron_init.to_proto(tau_m, self.tau_m_bounds)
        self._start = neuron_init.Start(proto_tau_m, float(w_s), tau_s, tau_s.numel())
        where: Any = {"device": device, "dtype": neuron_init.floating(dtype)}
        self.proto_tau_m = nn.Parameter(torch.empty(d_m, **where), requires_grad=learn_tau_m)
        self.proto_w_s = nn.Parameter(torch.empty(self.n_synapse, **where), requires_grad=learn_w_s)
        self.register_buffer("tau_s", torch.empty(self._start.tau_s.shape, **where))
        widths = [self.d_tree + d_m, *[d_mlp] * l_mlp, d_m]
        self.mlp = nn.ModuleList(neuron_init.kaiming(nn.Linear(*pair, **where)) for pair in zip(widths, widths[1:]))
        self.w_y = neuron_init.kaiming(nn.Linear(d_m, d_o, **where)) if d_o else None
        self._fill()

    @classmethod
    def for_sequences(cls, input_size: int, d_m: int, length: int, **options: Any) -> ELM:
        """A neuron for dense sequences of about `length` steps, where an nn.LSTM would stand.

        Synapses pass their input on within a step (tau_s 0.2, w_s 1), the memory spans the sequence (tau_m from one
        step to all, evenly spaced, bounded by twice the length). Times are in steps; any option may be given another
        value.
        """
        neuron_init.check_whole(1, length=length)
        recipe: dict[str, Any] = dict(
            lambda_=5.0, tau_s=0.2, w_s=1.0, tau_m_range=(1.0, float(max(length, 2))), delta_t=1.0
        )
        recipe["tau_m_bounds"] = (0.0, 2 * recipe["tau_m_range"][1])
        return cls(input_size, d_m, **recipe | options)

    @torch.no_grad()
    def _fill(self) -> None:
        """What is set, not drawn: timescales and synapse weights as they start."""
        self.proto_tau_m.copy_(self._start.proto_tau_m)
        self.proto_w_s.fill_(self._start.w_s)
        self.tau_s.copy_(self._start.tau_s)

    def reset_parameters(self) -> None:
        """Start anew: timescales and synapse weights as given, weights drawn from torch's global generator."""
        self._fill()
        for layer in [*self.layers, *([] if self.w_y is None else [self.w_y])]:
            layer.reset_parameters()

    def extra_repr(self) -> str:
        tau_s = self._start.tau_s
        start = f"{float(tau_s.min()):g}" + ("" if tau_s.dim() == 0 else f" to {float(tau_s.max()):g}")
        low, high = self.tau_m_bounds
        return (
            f"{self.input_size}, d_m={self.d_m}, d_o={self.d_o}, l_mlp={self.l_mlp}, d_mlp={self.d_mlp}, "
            f"activation={self.activation!r}, lambda_={self.lambda_:g}, memory_update={self.memory_update!r}, "
            f"tanh={self.tanh!r}, tau_m_bounds=({low:g}, {high:g}), tau_s={start}, delta_t={self.delta_t:g}, "
            f"batch_first={self.batch_first}"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What the outputs depend on beside parameters, buffers and their shapes: it travels with the state_dict."""
        return {
            "kind": self.kind,
            "activation": self.activation,
            "lambda_": float(self.lambda_),
            "delta_t": float(self.delta_t),
            "tau_m_bounds": [float(bound) for bound in self.tau_m_bounds],
            "memory_update": self.memory_update,
            "tanh": self.tanh,
        }

    @property
    def layers(self) -> list[nn.Linear]:
        """Layers of the MLP."""
        return cast("list[nn.Linear]", list(self.mlp))  # torch calls what is in a ModuleList a Module

    @property
    def n_synapse(self) -> int:
        return self.input_size

    @property
    def d_tree(self) -> int:
        """Values that reach the MLP from the synapses: d_s here, branches in `BranchELM`."""
        return self.input_size

    @property
    def n_trace(self) -> int:
        """Number of traces in the state."""
        return self.n_synapse

    @property
    def tau_m(self) -> Tensor:
        """Memory timescales, ms, (d_m,): inside tau_m_bounds, learned through a sigmoid."""
        return neuron_init.from_proto(self.proto_tau_m, self.tau_m_bounds, least=1e-3 * self.delta_t)

    @property
    def w_s(self) -> Tensor:
        """Synapse weights >= 0, (n_synapse,)."""
        return F.relu(self.proto_w_s)

    @property
    def _phi(self) -> str:
        """What the sum of a branch goes through."""
        return "none"

    def _trace_weights(self) -> tuple[Tensor, int]:
        """w_s and d_brch of `Parameters`."""
        return self.w_s, 1

    @property
    def _source(self) -> Tensor | None:
        """Which input each trace reads, (d_s,); None: trace k reads input k, or w_s sums the inputs."""
        return None

    def _trace_input(self, x: Tensor | Spikes) -> Tensor | Spikes:
        """The x_t of `elm_step`: (.., input_size) -> (.., d_s)."""
        if self._source is None:
            return x
        return (x if isinstance(x, Tensor) else x.dense())[..., self._source]

    def step_parameters(self, read_out: bool = True) -> Parameters:
        """The parameters of `elm_step`, from what is learned and what is set; without read_out w_y is None.

        Raises TypeError or RuntimeError where a layer has what cannot take effect: see `interface.hooks`.
        """
        kappa_s, tau_m = torch.exp(-self.delta_t / self.tau_s), self.tau_m
        kappa_m = torch.exp(-self.delta_t / tau_m)
        improved = self.memory_update == "improved"
        gain = -torch.expm1(-self.lambda_ * self.delta_t / tau_m) if improved else self.lambda_ * (1 - kappa_m)
        w_p = [hooks.weights_of(f"mlp.{k}", layer) for k, layer in enumerate(self.mlp)]
        w_y = hooks.weights_of("w_y", self.w_y) if read_out and self.w_y is not None else None
        act, (a, b) = self.activation, SCALES[self.tanh]
        return Parameters(kappa_s, *self._trace_weights(), kappa_m, gain, w_p, act, a, b, w_y, self._phi)

    def _one(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        x_t = cast(Tensor, self._trace_input(x))  # of a tensor it makes a tensor
        m, after = elm_step(x_t, state, self.step_parameters(read_out=False))
        return (m.clone() if self.w_y is None else self.w_y(m)), after

    def streamer(self, state: State | None = None, *, batch: int | None = None) -> Streamer:
        """`y = streamer(x)`, a step at a time and fast: for inference on a stream, or on `batch` streams at once.

        state  where it starts, (B, .) for a batch; zeros for None
        The parameters are copied. x and y have a batch only if the state has one.
        """
        shape = inputs.batch_of(state) if state is not None else () if batch is None else (batch,)
        return Streamer(self.step_parameters(), self.input_size, self._source, self._given(state, *shape))

    def _run(
        self, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, input_size) from s_0, m_0: output (T, B, d_o), and s, m after each sample's last step."""
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            return self._written(cast(Tensor, x), s_0, m_0)
        y, s, m = synapses.in_stretches(self._stretch, x, s_0, m_0, lengths, self.checkpoint_steps)
        return y, s.to(s_0.dtype), m

    def _written(self, x: Tensor, s_0: Tensor, m_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`_run` for torch.export and torch.jit.trace."""
        p = self.step_parameters(read_out=False)
        i_tbs = synapses.weighted(cast(Tensor, self._trace_input(x)), cast(Tensor, p.w_s)).transpose(0, 1)
        if torch.compiler.is_exporting():
            p = p._replace(w_s=None)
            m_tbm, s, m = written.scanned(lambda i, state: elm_step(i, state, p), i_tbs, s_0, m_0)
        else:
            m_tbm, s, m = written.scripted(p, i_tbs, s_0, m_0)
        return (m_tbm if self.w_y is None else self.w_y(m_tbm)), s, m

    def _stretch(
        self, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        p = self.step_parameters(read_out=False)
        (w_1, b_1), *rest = p.w_p
        rate_s, w_in = self.delta_t / self.tau_s, w_1[:, : self.d_tree]
        if torch.compiler.is_compiling():
            return self._in_operations(cast(Tensor, self._trace_input(x)), s_0, m_0, p)
        p_tbh, s = synapses.input_half(
            self._trace_input(x), s_0, rate_s, cast(Tensor, p.w_s), p.d_brch, w_in, b_1, p.phi, lengths
        )
        mlp = MemoryMLP(w_1[:, self.d_tree :], rest, p.act, (p.a, p.b))
        m_tbm = recurrence(p_tbh, m_0, p.kappa_m, p.gain, mlp, self.engine)
        del p_tbh  # frees its memory before the read-out needs some
        m = synapses.after_last(m_tbm.transpose(0, 1), m_0, lengths)
        return (m_tbm if self.w_y is None else self.w_y(m_tbm)), s, m

    def _in_operations(self, x: Tensor, s_0: Tensor, m_0: Tensor, p: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """`_stretch` for torch.compile."""
        (w_1, b_1), *rest = p.w_p
        rate_s, w_s = self.delta_t / self.tau_s, cast(Tensor, p.w_s)
        p_tbh, s = ops.input_half_op(x, s_0, rate_s, w_s, p.d_brch, w_1[:, : self.d_tree], b_1, p.phi)
        layers = [tensor for layer in rest for tensor in layer]
        m_all, _ = ops.recurrence_op(
            p_tbh, m_0, p.kappa_m, p.gain, w_1[:, self.d_tree :], layers, p.act, p.a, p.b, self.engine
        )
        return (m_all[1:] if self.w_y is None else self.w_y(m_all[1:])), s, m_all[-1].clone()


class BranchELM(ELM):
    """ELM whose synapses are first summed along d_tree branches of d_brch synapses each (Figure 4a). w_s is learned.

    routing  "neighbourhood"  branch b reads d_brch neighbouring inputs from b * ceil(input_size / d_tree) on; synapses
                              past the last input are masked
             "random"         every synapse reads an input at random, without repetition within a branch while there
                              are enough; drawn from routing_seed, or torch's global generator; kept in the state_dict.
                              As in the released code, some inputs may be read by no synapse
             "covering"       as "random", and every input is read d_tree * d_brch // input_size times at least
             "none"           synapse i reads input i; d_tree * d_brch must equal input_size
    branch_activation  what the sum of each branch goes through before the MLP: "none" as in the equations, "relu",
                       "sigmoid" (Figure S6)
    tau_s    ms: one value, one a branch (d_tree,), or one a synapse (d_tree * d_brch,)
    The state is (s, m) with branch traces (B, d_tree), or synapse traces if tau_s has one value a synapse.
    Other arguments as `ELM`.
    """

    routing_index: Tensor  # buffers
    routing_mask: Tensor
    kind = "branch_elm"

    @lstm.explained
    def __init__(
        self,
        input_size: int,
        d_m: int = 20,
        *,
        d_o: int | None = None,
        d_tree: int = 45,
        d_brch: int = 100,
        routing: str = "neighbourhood",
        routing_seed: int | None = None,
        branch_activation: str = "none",
        learn_w_s: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **kwargs,
    ) -> None:
        neuron_init.check_whole(1, input_size=input_size, d_tree=d_tree, d_brch=d_brch)
        self._d_tree, self.d_brch, self._routing_seed = d_tree, d_brch, routing_seed
        self.routing = neuron_init.choice("routing", routing, ("neighbourhood", "random", "covering", "none"))
        self.branch_activation = neuron_init.choice("branch_activation", branch_activation, synapses.BRANCH_ACTIVATIONS)
        indices, mask = neuron_init.route(routing, input_size, d_tree, d_brch, routing_seed)
        super().__init__(input_size, d_m, d_o=d_o, learn_w_s=learn_w_s, device=device, dtype=dtype, **kwargs)
        self.register_buffer("routing_index", indices.flatten().to(self.tau_s.device))  # (n_synapse,) its input
        self.register_buffer("routing_mask", mask.flatten().to(self.tau_s.device))  # (n_synapse,) False: no input there

    def reset_parameters(self) -> None:
        """As `ELM.reset_parameters`; a random routing is drawn again, from routing_seed if there is one."""
        drawn = neuron_init.route(self.routing, self.input_size, self.d_tree, self.d_brch, self._routing_seed)
        with torch.no_grad():
            for buffer, value in zip((self.routing_index, self.routing_mask), drawn, strict=True):
                buffer.copy_(value.flatten())
        super().reset_parameters()

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, d_tree={self.d_tree}, d_brch={self.d_brch}, routing={self.routing!r}, "
            f"branch_activation={self.branch_activation!r}"
        )

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {
            "d_tree": int(self.d_tree),
            "d_brch": int(self.d_brch),
            "routing": self.routing,
            "branch_activation": self.branch_activation,
        }

    @property
    def n_synapse(self) -> int:
        return self._d_tree * self.d_brch

    @property
    def d_tree(self) -> int:
        return self._d_tree

    @property
    def branch_of(self) -> Tensor:
        """Branch of each synapse, (n_synapse,)."""
        return torch.arange(self.d_tree, device=self.routing_index.device).repeat_interleave(self.d_brch)

    @property
    def _phi(self) -> str:
        return self.branch_activation

    @property
    def n_trace(self) -> int:
        return self.n_synapse if self._per_synapse else self.d_tree

    @property
    def _per_synapse(self) -> bool:
        """Whether each synapse has a trace of its own. Otherwise a branch has one, as its synapses share tau_s."""
        return self._start.n_tau_s == self.n_synapse and self.n_synapse > self.d_tree

    @property
    def w_s(self) -> Tensor:
        """Synapse weights >= 0, (d_tree * d_brch,); 0 where a synapse has no input."""
        return torch.where(self.routing_mask, F.relu(self.proto_w_s), 0.0)

    def _trace_weights(self) -> tuple[Tensor, int]:
        if self._per_synapse:
            return self.w_s, self.d_brch
        return synapses.branch_weights(self.w_s, self.routing_index, self.branch_of, self.input_size, self.d_tree), 1

    @property
    def _source(self) -> Tensor | None:
        return self.routing_index if self._per_synapse else None
