"""What a neuron takes as input and state. Whatever else comes is refused in one sentence that names the conversion.

While torch.jit.trace records, a shape is a tensor and is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class State(NamedTuple):
    """What a neuron remembers: traces s (B, n_trace) and memory m (B, d_m); without a batch (n_trace,) and (d_m,).

    It owns its tensors. m takes the place of `h_n[-1]` of nn.LSTM: it is the memory at each sequence's own end.
    """

    s: Tensor
    m: Tensor


STATE = "give the state that a call returned, or None for zeros"


def check_tensor(x: Any, like: Tensor, what: str = "x") -> None:
    """Raise TypeError unless x is a dense tensor, ValueError unless it has the dtype and device of `like`.

    Under autocast any floating dtype of at most 32 bits will do.
    """
    if isinstance(x, np.ndarray):
        raise TypeError(f"{what} is a numpy array: give torch.from_numpy({what}).to({like.dtype})")
    if not isinstance(x, Tensor):
        kind = type(x).__name__
        known = isinstance(x, list | tuple)
        remedy = f"torch.tensor({what}, dtype={like.dtype})" if known else "a torch.Tensor"
        raise TypeError(f"{what} is a {kind}: give {remedy}")
    if x.is_nested:
        raise TypeError(
            f"{what} is a nested tensor: give torch.nested.to_padded_tensor({what}, 0.0) and its lengths=, "
            "or a PackedSequence"
        )
    if x.layout != torch.strided:
        raise TypeError(f"{what} is sparse ({x.layout}): give {what}.to_dense(), or elm_lib.Spikes")
    if x.device != like.device:
        raise ValueError(f"{what} is on {x.device}, the neuron on {like.device}: give {what}.to('{like.device}')")
    if x.dtype != like.dtype and not _cast_by_autocast(x):
        raise ValueError(
            f"{what} is {x.dtype}, the neuron {like.dtype}: give {what}.to({like.dtype}), "
            "or convert the neuron by neuron.to(dtype)"
        )


def check_exported(x: Any, lengths: Any) -> None:
    """Raise TypeError for what a program for export cannot take: all but a tensor, and lengths."""
    if lengths is not None or not isinstance(x, Tensor):
        raise TypeError(
            "an exported neuron takes a tensor and no lengths: give x.dense(), and select from y afterwards"
        )


def _cast_by_autocast(x: Tensor) -> bool:
    low = x.is_floating_point() and x.dtype.itemsize <= 4
    return low and not x.is_meta and torch.is_autocast_enabled(x.device.type)


def check_sequence(shape: Sequence[int], input_size: int) -> None:
    """Raise ValueError unless the shape is (B, T, input_size) with T >= 1."""
    if not torch.jit.is_tracing() and (len(shape) != 3 or shape[2] != input_size or shape[1] == 0):
        raise ValueError(
            f"x has shape {tuple(shape)} (batch first): needs 2 or 3 dimensions, at least one step, "
            f"and input_size={input_size} last"
        )


def check_step(shape: Sequence[int], input_size: int) -> None:
    """Raise ValueError unless the shape is (B, input_size) or (input_size,)."""
    if not torch.jit.is_tracing() and (len(shape) not in (1, 2) or shape[-1] != input_size):
        raise ValueError(
            f"x has shape {tuple(shape)}: step takes one step, (B, input_size) or (input_size,) with "
            f"input_size={input_size}; forward takes a sequence"
        )


def check_state(state: Any, batch: tuple[int, ...], n_trace: int, d_m: int, like: Tensor) -> None:
    """Raise unless the state is (s, m) of shapes (*batch, n_trace) and (*batch, d_m), with dtype and device of `like`.

    Raises TypeError for another type, ValueError for the rest.
    """
    if not (isinstance(state, tuple | list) and len(state) == 2):
        raise TypeError(f"state is a {type(state).__name__}: {STATE}")
    s, m = state
    if s is None or m is None:
        raise TypeError(f"state is ({_brief(s)}, {_brief(m)}): {STATE}")
    check_tensor(s, like, "state.s")
    check_tensor(m, like, "state.m")
    if not torch.jit.is_tracing() and (s.shape != (*batch, n_trace) or m.shape != (*batch, d_m)):
        raise ValueError(
            f"state has shapes {tuple(s.shape)}, {tuple(m.shape)}: expected {(*batch, n_trace)}, {(*batch, d_m)}"
        )


def _brief(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def batch_of(state: Any) -> tuple[int, ...]:
    """(B,) or () of a state (s, m); () of anything else, which `check_state` refuses."""
    pair = isinstance(state, tuple | list) and len(state) == 2 and isinstance(state[1], Tensor)
    return tuple(state[1].shape[:-1]) if pair else ()


def one_state(state: Any, hx: Any) -> Any:
    """The state, which nn.LSTM calls hx. Raises TypeError if both are given."""
    if state is not None and hx is not None:
        raise TypeError("state and hx are two names of the same argument: give one of them")
    return state if hx is None else hx
