"""A recurrent module in nn.LSTM's place: `output, state = module(x, state)`, whatever equations it runs.

It checks input and state, adds and takes away a batch, runs padded and packed sequences, and lets the hyper-parameters
travel with the state_dict. `elm_lib.neuron` fills in the equations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree

from elm_lib.interface import inputs, leaf, sequences, settings
from elm_lib.interface.inputs import State
from elm_lib.kernels.autograd import beside_graph
from elm_lib.kernels.spikes import Spikes

torch.serialization.add_safe_globals([State, Spikes])  # torch.load reads them with weights_only=True
_pytree._register_namedtuple(State, serialized_type_name="elm_lib.State")  # torch.export.save writes it


class Recurrent(nn.Module):
    """What a subclass has: the attributes below, `_one` for a step and `_run` for a sequence."""

    input_size: int
    d_m: int
    batch_first: bool
    proto_tau_m: nn.Parameter  # all else has its dtype and device

    @property
    def n_trace(self) -> int:
        """Number of traces in the state."""
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        """What the outputs depend on beside parameters, buffers and their shapes: it travels with the state_dict."""
        raise NotImplementedError

    def _one(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """x (.., input_size) -> y (.., d_o), the state after it."""
        raise NotImplementedError

    def _run(
        self, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, input_size) from s_0, m_0: output (T, B, d_o), and s, m after each sample's last step."""
        raise NotImplementedError

    @property
    def n_memory(self) -> int:
        """Number of memory units in the state."""
        return self.d_m

    @property
    def hidden_size(self) -> int:
        """d_m, under the name that nn.LSTM has for it."""
        return self.d_m

    def zero_state(self, x: Tensor | Spikes) -> State:
        """s_0 = 0, m_0 = 0 for a batch like x (B, ..)."""
        return self._zeros(x.shape[0])

    def _zeros(self, *batch: int) -> State:
        zeros = self.proto_tau_m.new_zeros
        return State(zeros(*batch, self.n_trace), zeros(*batch, self.n_memory))

    def _given(self, state: Any, *batch: int) -> State:
        """The state of a batch of this shape, (B,) or (), checked; zeros for None."""
        if state is None:
            return self._zeros(*batch)
        inputs.check_state(state, batch, self.n_trace, self.n_memory, self.proto_tau_m)
        return State(*state)

    def step(self, x: Tensor, state: State | None = None, *, hx: State | None = None) -> tuple[Tensor, State]:
        """One step of the equations, x (B, input_size) or (input_size,) -> y (B, d_o) or (d_o,), and the state.

        It is the specification of `forward`, and the way to deploy a stream: it exports by torch.export as it is.
        Raises as `forward`.
        """
        inputs.check_tensor(x, self.proto_tau_m)
        inputs.check_step(x.shape, self.input_size)
        state = self._given(inputs.one_state(state, hx), *x.shape[:-1])
        return self._one(x, state)

    def forward(
        self,
        x: Tensor | Spikes | PackedSequence,
        state: State | None = None,
        *,
        hx: State | None = None,
        lengths: Any = None,
    ) -> tuple[Any, State]:
        """Run a sequence from `state` (zeros by default).

        x        (T, B, input_size), or (B, T, input_size) with batch_first, or (T, input_size);
                 `Spikes`, which are (B, T, input_size) whatever batch_first says; or a PackedSequence
        hx       nn.LSTM's name of `state`
        lengths  (B,) whole numbers, the steps of each sample of a padded batch; what lies after them is not read
        Returns  output (T, B, d_o or d_m), or (B, T, .) with batch_first, 0 after a sample's length, packed if x is;
                 and the state after each sample's own last step, in the order of the batch
        Raises   TypeError for an x or a state of another type, ValueError on a wrong shape, dtype, device or length

        torch.compile takes a dense input into its graph, with fullgraph=True too. `Spikes`, packed sequences, lengths,
        checkpoint_steps and autocast run as they are, beside the graph.
        """
        if isinstance(x, Proxy):
            return leaf.called(self, x, state, hx=hx, lengths=lengths)
        state = inputs.one_state(state, hx)
        if torch.compiler.is_compiling() and not self._in_graph(x, lengths):
            return beside_graph(self._forward, x, state, lengths)
        return self._forward(x, state, lengths)

    def _in_graph(self, x: Any, lengths: Any) -> bool:
        """Whether torch.compile or torch.export can take this call into its graph."""
        if torch.compiler.is_exporting():
            return True
        in_one_go = lengths is None and getattr(self, "checkpoint_steps", None) is None
        return isinstance(x, Tensor) and in_one_go and not torch.is_autocast_enabled(x.device.type)

    def last(self, y: Tensor | PackedSequence, lengths: Any = None) -> Tensor:
        """The output at each sample's own last step, (B, .), of y as `forward` returns it: `y[:, -1]` with lengths."""
        return sequences.last(y, lengths, batch_first=self.batch_first)

    def _forward(self, x: Any, state: Any, lengths: Any) -> tuple[Any, State]:
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            inputs.check_exported(x, lengths)
        if isinstance(x, PackedSequence):
            return self._packed(x, state, lengths)
        if isinstance(x, Spikes):
            x = x.check(self.proto_tau_m.dtype)
        else:
            inputs.check_tensor(x, self.proto_tau_m)
            if x.dim() == 2:
                return self._single(x, state, lengths)
            x = x if self.batch_first else x.transpose(0, 1)
        inputs.check_sequence(x.shape, self.input_size)
        state = self._given(state, x.shape[0])
        if lengths is None:
            y_tbo, s, m = self._run(x, state.s, state.m, None)
        else:
            steps = sequences.checked_lengths(lengths, x.shape[0], x.shape[1])
            y_tbo, s, m = sequences.run_padded(self._run, x, state.s, state.m, steps)
        return (y_tbo.transpose(0, 1) if self.batch_first else y_tbo), State(s, m)

    def _single(self, x: Tensor, state: Any, lengths: Any) -> tuple[Tensor, State]:
        """A sequence without a batch, (T, input_size): with one, and without it again."""
        if lengths is not None:
            raise ValueError(
                "lengths are those of a batch, x has none: leave them out, or give x[:, :length] of a batch"
            )
        axis = 0 if self.batch_first else 1
        if state is not None:
            state = State(*(part.unsqueeze(0) for part in self._given(state)))
        y, (s, m) = self._forward(x.unsqueeze(axis), state, None)
        return y.squeeze(axis), State(s.squeeze(0), m.squeeze(0))

    def _packed(self, x: PackedSequence, state: Any, lengths: Any) -> tuple[PackedSequence, State]:
        if lengths is not None:
            raise ValueError("a PackedSequence knows its lengths: leave lengths out")
        inputs.check_tensor(x.data, self.proto_tau_m, "x.data")
        inputs.check_sequence((1, *x.data.shape), self.input_size)
        state = self._given(state, int(x.batch_sizes[0]))
        y, s, m = sequences.run_packed(self._run, x, *state)
        return x._replace(data=y), State(s, m)

    def get_extra_state(self) -> Tensor:
        return settings.encoded(self.settings)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to set: `_load_from_state_dict` has compared it."""

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        state_dict = settings.checked(self, state_dict, prefix, self.settings)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)
