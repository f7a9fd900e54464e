"""Networks of ELM neurons in nn.LSTM's place (Spieler, Martius and Levina 2026, arXiv:2605.12049).

    >>> network = ELMNetwork(input_size=700, num_neurons=57, d_m=9, d_o=20, batch_first=True)
    >>> y, state = network(torch.zeros(8, 500, 700))            # (8, 500, 20)
    >>> y, state = network(torch.zeros(8, 500, 700), state)     # the stream goes on

The equations stand in `elm_lib.models.elm_layer`. What is taken from that paper, and what is not, stands in
docs/networks.md.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from elm_lib import neuron_init
from elm_lib.interface import inputs, lstm
from elm_lib.interface.inputs import State
from elm_lib.interface.module import Recurrent
from elm_lib.kernels.network import ACTIVATIONS, ENGINES, OUTPUTS
from elm_lib.kernels.recurrence import SCALES
from elm_lib.kernels.spikes import Spikes
from elm_lib.models.connectome import complete, drawn
from elm_lib.models.dropout import Masks
from elm_lib.models.elm_layer import LayerState, NetworkLayer, NeuronSettings
from elm_lib.models.elm_stream import NetworkStreamer

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class ELMNetwork(Recurrent):
    """Layers of ELM neurons. A drop-in for `nn.LSTM`: `output, state = network(x, state)`.

    input_size      number of input channels
    num_neurons     N, neurons of a layer; each has one output (`hidden_size` of an LSTM)
    num_layers      each layer reads the outputs of the one before, at the same step
    d_o             outputs; None returns the outputs of the last layer's neurons, (.., N), or (.., 2 N) bidirectional
    read_out        "linear" w_y on those, or "neurons": d_o more neurons, each of which reads all of them once
    d_m             memory units of a neuron
    l_mlp, d_mlp    hidden layers of a neuron's MLP (0: linear integration) and their width (default 2 d_m)
    d_tree, d_brch  branches of a neuron (default 2 d_mlp), and synapses of a branch (default d_tree)
    recurrent       probability that a synapse reads a neuron of its own layer, one step before, in place of an input.
                    None: N / (N + inputs), so that every source is as likely. 0: neurons do not hear each other
    bidirectional   two sets of neurons a layer, the second of which reads the sequence from its end
    dropout         probability that an output of a layer, but the last one, is dropped at a step, as in nn.LSTM
    input_dropout, recurrent_dropout, memory_dropout
                    variational: one mask a sample for all steps, of input channels, of what neurons send each other
                    and of MLP outputs (Gal and Ghahramani 2016, arXiv:1512.05287)
    output          of a neuron: "relu"; "spike", 1 above 0, with the surrogate gradient 1 / (1 + 10 |x|)^2; "identity"
    tau_r           ms, high-pass of each neuron's read-out: a moving average is subtracted; None: no high-pass
    tau_b           ms, trace of a branch: one value, or a tensor (d_tree,) with one a branch, or (N, d_tree); None: a
                    branch passes its input on within a step
    activation      of the MLPs: "relu2" (the square of a ReLU), "relu" or "silu"
    w_s             None: synapses of either sign, which start uniform in +-1 / sqrt(d_brch); a number: where synapses
                    start, which stay >= 0 by a ReLU
    tau_m_range, tau_m_bounds, tau_m_init, learn_tau_m, lambda_, memory_update, tanh, delta_t, batch_first  as `ELM`
    engine          of `elm_lib.kernels.network`
    routing_seed    of the connectomes; None: torch's global generator
    device, dtype   of parameters and buffers, as for nn.LSTM

    The state is a `State`: s holds traces, moving averages and last outputs of all layers, m their memory; `states`
    takes them apart. Dropout is drawn from generators of the network's own (`elm_lib.models.dropout.Masks`): torch's
    seed does not change it. `step` and `streamer` never drop.
    Raises ValueError for any argument out of range, TypeError for one that only nn.LSTM has.
    """

    kind = "elm_network"

    @lstm.explained_by(lstm.NETWORK_KEYWORDS, at_most=3)
    def __init__(
        self,
        input_size: int,
        num_neurons: int,
        num_layers: int = 1,
        *,
        d_o: int | None = None,
        read_out: str = "linear",
        d_m: int = 10,
        l_mlp: int = 1,
        d_mlp: int | None = None,
        d_tree: int | None = None,
        d_brch: int | None = None,
        recurrent: float | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output: str = "relu",
        tau_r: float | None = 5.0,
        tau_b: float | Tensor | None = None,
        activation: str = "relu2",
        w_s: float | None = None,
        tau_m_range: tuple[float, float] = (1.0, 1000.0),
        tau_m_bounds: tuple[float, float] | None = (0.1, 3162.3),
        tau_m_init: str = "logspace",
        learn_tau_m: bool = False,
        lambda_: float = 5.0,
        memory_update: str = "improved",
        tanh: str = "scaled",
        delta_t: float = 1.0,
        batch_first: bool = False,
        engine: str = "auto",
        routing_seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_mlp = 2 * d_m if d_mlp is None else d_mlp
        d_tree = 2 * d_mlp if d_tree is None else d_tree
        d_brch = d_tree if d_brch is None else d_brch
        neuron_init.check_whole(1, input_size=input_size, num_neurons=num_neurons, num_layers=num_layers, d_m=d_m)
        neuron_init.check_whole(1, d_mlp=d_mlp, d_tree=d_tree, d_brch=d_brch)
        neuron_init.check_whole(1, optional=True, d_o=d_o)
        neuron_init.check_whole(0, l_mlp=l_mlp)
        given = {} if tau_r is None else {"tau_r": tau_r}
        neuron_init.check_scales(0.0 if w_s is None else w_s, delta_t=delta_t, lambda_=lambda_, **given)
        if recurrent is not None and not 0 <= recurrent < 1:
            raise ValueError(f"recurrent={recurrent}: a probability must be at least 0 and below 1, or None")
        if read_out == "neurons" and d_o is None:
            raise ValueError("read_out='neurons' needs d_o, the number of read-out neurons")
        self.input_size, self.num_neurons, self.num_layers, self.d_m, self.d_o = (
            input_size,
            num_neurons,
            num_layers,
            d_m,
            d_o,
        )
        self.bidirectional, self.batch_first, self.delta_t = bidirectional, batch_first, delta_t
        self.engine = neuron_init.choice("engine", engine, ("auto", *ENGINES))
        self.read_out = neuron_init.choice("read_out", read_out, ("linear", "neurons"))
        self._output = neuron_init.choice("output", output, OUTPUTS)
        self.neuron = NeuronSettings(
            d_m,
            l_mlp,
            d_mlp,
            neuron_init.choice("activation", activation, ACTIVATIONS),
            lambda_,
            neuron_init.choice("memory_update", memory_update, ("original", "improved")),
            neuron_init.choice("tanh", tanh, SCALES),
            (float(tau_m_range[0]), float(tau_m_range[1])),
            (float(tau_m_bounds[0]), float(tau_m_bounds[1]))
            if tau_m_bounds is not None
            else (float(tau_m_range[0]), float(tau_m_range[1])),
            tau_m_init,
            learn_tau_m,
            w_s,
            delta_t,
        )
        self.tau_r = tau_r
        where: dict[str, Any] = {"device": device, "dtype": neuron_init.floating(dtype)}
        generator = None if routing_seed is None else torch.Generator().manual_seed(routing_seed)
        ways = 1 + bool(bidirectional)
        layers, width = [], input_size
        for _ in range(num_layers):
            share = num_neurons / (num_neurons + width) if recurrent is None else recurrent
            for _ in range(ways):
                wiring = drawn(width, num_neurons, d_tree, d_brch, share, generator)
                layers.append(
                    NetworkLayer(
                        width,
                        wiring,
                        self.neuron,
                        tau_b=tau_b,
                        tau_r=tau_r,
                        output=output,
                        recurrent_dropout=recurrent_dropout,
                        memory_dropout=memory_dropout,
                        **where,
                    )
                )
            width = ways * num_neurons
        if read_out == "neurons":
            wiring = complete(width, cast(int, d_o), d_tree, generator)
            options: dict[str, Any] = dict(tau_b=None, tau_r=None, output="identity", memory_dropout=memory_dropout)
            layers.append(NetworkLayer(width, wiring, self.neuron, **options, **where))
        self.layers = nn.ModuleList(layers)
        self.w_y = neuron_init.kaiming(nn.Linear(width, d_o, **where)) if d_o and read_out == "linear" else None
        self.dropout = Masks(dropout) if dropout else None
        self.input_masks = Masks(input_dropout) if input_dropout else None

    def reset_parameters(self) -> None:
        """Start anew: weights drawn from torch's global generator. The connectomes stay."""
        for layer in self.neurons:
            layer.reset_parameters()
        if self.w_y is not None:
            self.w_y.reset_parameters()

    @property
    def neurons(self) -> list[NetworkLayer]:
        """The layers of neurons, those of the read-out last."""
        return cast("list[NetworkLayer]", list(self.layers))

    @property
    def proto_tau_m(self) -> nn.Parameter:  # type: ignore[override]
        """Of the first layer: all else has its dtype and device."""
        return self.neurons[0].proto_tau_m

    @property
    def hidden_size(self) -> int:
        """num_neurons, under the name that nn.LSTM has for it."""
        return self.num_neurons

    @property
    def n_trace(self) -> int:
        return sum(layer.n_trace for layer in self.neurons)

    @property
    def n_memory(self) -> int:
        return sum(layer.n_memory for layer in self.neurons)

    def extra_repr(self) -> str:
        neuron = self.neuron
        first = self.neurons[0]
        return (
            f"{self.input_size}, num_neurons={self.num_neurons}, num_layers={self.num_layers}, d_o={self.d_o}, "
            f"read_out={self.read_out!r}, bidirectional={self.bidirectional}, d_m={neuron.d_m}, l_mlp={neuron.l_mlp}, "
            f"d_mlp={neuron.d_mlp}, d_tree={first.d_tree}, d_brch={first.d_brch}, activation={neuron.activation!r}, "
            f"output={self._output!r}, tau_r={self.tau_r}, delta_t={self.delta_t:g}, batch_first={self.batch_first}"
        )

    @property
    def settings(self) -> dict[str, Any]:
        neuron = self.neuron._asdict()
        own = ("activation", "lambda_", "memory_update", "tanh", "delta_t")
        return {
            "kind": self.kind,
            **{name: float(neuron[name]) if name in ("lambda_", "delta_t") else neuron[name] for name in own},
            "tau_m_bounds": list(self.neuron.tau_m_bounds),
            "signed": self.neuron.w_s is None,
            "tau_r": None if self.tau_r is None else float(self.tau_r),
            "output": self._output,
            "read_out": self.read_out,
            "bidirectional": bool(self.bidirectional),
        }

    def states(self, state: State) -> list[LayerState]:
        """A state layer by layer; of a bidirectional network first the forward, then the backward neurons of each."""
        return [layer.split(*part) for layer, part in zip(self.neurons, self._divided(state), strict=True)]

    def _divided(self, state: State) -> list[tuple[Tensor, Tensor]]:
        traces = state.s.split([layer.n_trace for layer in self.neurons], -1)
        memories = state.m.split([layer.n_memory for layer in self.neurons], -1)
        return list(zip(traces, memories, strict=True))

    def streamer(self, state: State | None = None, *, batch: int | None = None) -> NetworkStreamer:
        """`y = streamer(x)`, a step at a time and fast: see `ELM.streamer`. Raises ValueError if bidirectional."""
        self._check_forward("a stream")
        shape = inputs.batch_of(state) if state is not None else () if batch is None else (batch,)
        given = self._given(state, *shape)
        return NetworkStreamer(self.neurons, self.w_y, self._divided(given), self.input_size, given)

    def _check_forward(self, what: str) -> None:
        if self.bidirectional:
            raise ValueError(f"{what} cannot run backward from its end: build the network with bidirectional=False")

    def _in_graph(self, x: Any, lengths: Any) -> bool:
        return torch.compiler.is_exporting()

    def _one(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        self._check_forward("a step")
        after = []
        for layer, (s, m) in zip(self.neurons, self._divided(state), strict=True):
            x, *part = layer.step(x, s, m)
            after.append(part)
        s, m = (torch.cat(parts, -1) for parts in zip(*after))
        return (x if self.w_y is None else self.w_y(x)), State(s, m)

    def _run(
        self, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if torch.jit.is_tracing():
            raise TypeError("a network of neurons has no TorchScript form: export it to .pt2 or .onnx")
        if torch.compiler.is_exporting():
            return self._scanned(cast(Tensor, x), s_0, m_0)
        if self.input_masks is not None and self.training:
            x = _masked(x, self.input_masks.draw((x.shape[0], self.input_size), m_0))
        parts, after, ways = self._divided(State(s_0, m_0)), [], 1 + bool(self.bidirectional)
        layers = self.neurons
        for k in range(0, self.num_layers * ways, ways):
            outputs = []
            for way in range(ways):
                given = x if way == 0 else _from_end(x, lengths)
                a, *state = layers[k + way].sequence(given, *parts[k + way], lengths, self.engine)  # a (T, B, N)
                outputs.append(a if way == 0 else _from_end(a.transpose(0, 1), lengths).transpose(0, 1))
                after.append(state)
            y = outputs[0] if ways == 1 else torch.cat(outputs, 2)
            if self.dropout is not None and self.training and k + ways < self.num_layers * ways:
                y = y * self.dropout.draw(y.shape, y)
            x = y.transpose(0, 1)
        if self.read_out == "neurons":
            y, *state = layers[-1].sequence(x, *parts[-1], lengths, self.engine)
            after.append(state)
        s, m = (torch.cat(part, 1) for part in zip(*after))
        return (y if self.w_y is None else self.w_y(y)), s.to(s_0.dtype), m

    def _scanned(self, x: Tensor, s_0: Tensor, m_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`_run` for torch.export: a loop over plain operations, which runs without this package."""
        from torch._higher_order_ops.scan import scan  # slow to import

        def combine(state: Any, x_t: Tensor) -> Any:
            y, (s, m) = self._one(x_t, State(*state))
            return (s.clone(), m.clone()), y.clone()

        (s, m), y = scan(combine, (s_0, m_0), x.transpose(0, 1), dim=0)
        return y, s, m


def _from_end(x: Tensor | Spikes, lengths: Tensor | None) -> Tensor:
    """x (B, T, C) with each sample's own steps in reverse; what lies after them stays."""
    x = x if isinstance(x, Tensor) else x.dense()
    if lengths is None:
        return x.flip(1)
    step = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - step
    order = torch.where(back >= 0, back, step)  # (B, T)
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), order]


def _masked(x: Tensor | Spikes, mask: Tensor) -> Tensor | Spikes:
    """x (B, T, C) times a mask (B, C)."""
    if isinstance(x, Tensor):
        return x * mask.unsqueeze(1)
    sample = x.rows().div(x.shape[1], rounding_mode="floor")
    return x._replace(value=x.value * mask[sample, x.channel])
