"""Sparse spike input: a product with a matrix gathers rows and adds them up, without a (B, T, C) array in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data._utils.collate import default_collate_fn_map

from elm_lib.kernels.autograd import first_derivative
from elm_lib.kernels.traces import compiled, filter_traces, loops, rows_of

THIN = 16  # a dense input is worth gathering if fewer than one number in so many is not 0
WIDE = 64  # channels; with fewer it is not worth counting


class Spikes(NamedTuple):
    """Sparse input (B, T, C): row b T + t holds channel[row_ptr[row] : row_ptr[row + 1]], each with its value.

    row_ptr int64 (B T + 1,);  channel int64 (n,);  value float (n,);  shape (B, T, C), always batch first
    A channel that a row names twice adds up. Models call `check`, which says whether the numbers fit together.
    Made by `from_dense` or `from_events`; a DataLoader collates them, padding shorter ones with silence.
    """

    row_ptr: Tensor
    channel: Tensor
    value: Tensor
    shape: tuple[int, int, int]

    def __repr__(self) -> str:
        batch, steps, channels = self.shape
        n = self.channel.numel()
        share = f" ({n / (batch * steps * channels):.2%})" if min(self.shape) > 0 else ""
        kind = f"{str(self.value.dtype).removeprefix('torch.')} on {self.value.device}"
        return f"Spikes({batch} samples, {steps} steps, {channels} channels: {n} spikes{share}, {kind})"

    @classmethod
    def from_dense(cls, x: Tensor) -> Spikes:
        """The numbers of x (B, T, C) that are not 0, NaN among them. Raises ValueError for another shape or dtype."""
        if not isinstance(x, Tensor) or x.dim() != 3 or not x.is_floating_point():
            what = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"Spikes.from_dense: x is {what}: give a floating-point tensor (B, T, C)")
        batch, steps, channels = x.shape
        row, channel = x.reshape(batch * steps, channels).nonzero(as_tuple=True)
        value = x.reshape(batch * steps, channels)[row, channel]
        return cls(_row_ptr(row, batch * steps), channel, value, (batch, steps, channels))

    @classmethod
    def from_events(
        cls, sample: Any, step: Any, channel: Any, shape: tuple[int, int, int], value: Any = None
    ) -> Spikes:
        """Events in any order, each at (sample, step, channel) with a value: 1.0 each for None.

        sample, step, channel  whole numbers (n,): tensors, numpy arrays of any integer type, or lists; or one number
        shape                  (B, T, C)
        value                  (n,) real numbers; events of one place add up, as counts do
        Raises TypeError for numbers that are not whole, ValueError for one outside the shape or another count.
        """
        if len(shape) != 3 or min(shape) < 0:
            raise ValueError(f"Spikes.from_events: shape {tuple(shape)} must be (B, T, C)")
        given = {"sample": sample, "step": step, "channel": channel}
        places = dict(zip(given, torch.broadcast_tensors(*(_whole(*pair) for pair in given.items()))))
        for (name, place), size in zip(places.items(), shape):
            if place.numel() and not (0 <= int(place.min()) and int(place.max()) < size):
                raise ValueError(
                    f"Spikes.from_events: {name} from {int(place.min())} to {int(place.max())} is outside 0..{size - 1}"
                )
        where = places["channel"]
        if value is None:
            value = torch.ones(where.shape, device=where.device)
        value = np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
        value = torch.as_tensor(value, device=where.device)
        value = value if value.is_floating_point() else value.to(torch.get_default_dtype())
        if value.shape != where.shape or where.dim() > 1:
            raise ValueError(f"Spikes.from_events: {tuple(where.shape)} events, value of shape {tuple(value.shape)}")
        row = places["sample"] * shape[1] + places["step"]
        order = torch.argsort(row * shape[2] + where, stable=True).flatten()
        row, where, value = (part.reshape(-1)[order] for part in (row, where, value))
        return cls(_row_ptr(row, shape[0] * shape[1]), where, value, (int(shape[0]), int(shape[1]), int(shape[2])))

    @staticmethod
    def collate(samples: Sequence[Spikes]) -> Spikes:
        """One batch of many, in their order; shorter ones are silent at their end. For a DataLoader's collate_fn.

        Raises ValueError for none, or for different numbers of channels.
        """
        if not samples or len({one.shape[2] for one in samples}) != 1:
            found = sorted({one.shape[2] for one in samples})
            raise ValueError(f"Spikes.collate: give samples of one number of channels, got {found}")
        steps = max(one.shape[1] for one in samples)
        counts = [
            F.pad(one.row_ptr.diff().view(one.shape[0], one.shape[1]), (0, steps - one.shape[1])) for one in samples
        ]
        per_row = torch.cat(counts).flatten()
        return Spikes(
            torch.cat([per_row.new_zeros(1), per_row.cumsum(0)]),
            torch.cat([one.channel for one in samples]),
            torch.cat([one.value for one in samples]),
            (sum(one.shape[0] for one in samples), steps, samples[0].shape[2]),
        )

    def to(self, *where: Any, **options: Any) -> Spikes:
        """As `Tensor.to`: to a device, a floating-point dtype of the values, or both; non_blocking is passed on."""
        value = self.value.to(*where, **options)
        if not value.is_floating_point():
            raise ValueError(f"Spikes.to: {value.dtype}: values are real floating point")
        blocking = {name: options[name] for name in ("non_blocking",) if name in options}
        row_ptr, channel = (part.to(value.device, **blocking) for part in (self.row_ptr, self.channel))
        return Spikes(row_ptr, channel, value, self.shape)

    def rows(self) -> Tensor:
        """Row of each spike, (n,)."""
        return torch.repeat_interleave(torch.diff(self.row_ptr), output_size=self.channel.numel())

    def dense(self) -> Tensor:
        """The same input as a tensor, (B, T, C)."""
        x = self.value.new_zeros(self.shape[0] * self.shape[1] * self.shape[2])
        return x.index_add(0, self.rows() * self.shape[2] + self.channel, self.value).view(self.shape)

    def check(self, dtype: torch.dtype) -> Spikes:
        """Itself, with values of the given dtype. Raises ValueError when rows or channels lie outside the shape.

        Compiled loops trust these numbers. On a GPU reading them costs a wait, so only dtypes and sizes are checked.
        """
        row_ptr, channel, n = self.row_ptr, self.channel, self.channel.numel()
        if len(self.shape) != 3 or min(self.shape) < 0:
            raise ValueError(f"Spikes: shape {tuple(self.shape)} must be (B, T, C)")
        if row_ptr.dtype != torch.int64 or channel.dtype != torch.int64 or not self.value.dtype.is_floating_point:
            raise ValueError("Spikes: row_ptr and channel must be int64, value real floating point")
        if channel.dim() != 1 or self.value.shape != channel.shape:
            raise ValueError("Spikes: channel must have one dimension, value as many entries")
        if row_ptr.shape != (self.shape[0] * self.shape[1] + 1,):
            raise ValueError(f"Spikes: row_ptr has {row_ptr.numel()} entries: shape {tuple(self.shape)} needs B T + 1")
        if row_ptr.device.type == "cpu":
            if row_ptr[0] != 0 or row_ptr[-1] != n or bool((row_ptr.diff() < 0).any()):
                raise ValueError(f"Spikes: row_ptr must rise from 0 to the number of spikes, {n}")
            if n and not (0 <= int(channel.min()) and int(channel.max()) < self.shape[2]):
                raise ValueError(f"Spikes: a channel is outside 0..{self.shape[2] - 1}")
        return self if self.value.dtype == dtype else self._replace(value=self.value.to(dtype))

    def window(self, t0: int, t1: int) -> Spikes:
        """Steps t0 up to t1 of every sample, (B, t1 - t0, C). Raises ValueError unless 0 <= t0 <= t1 <= T."""
        batch, steps, _ = self.shape
        if not 0 <= t0 <= t1 <= steps:
            raise ValueError(f"Spikes: steps {t0} up to {t1} of {steps}")
        return self._cut(range(batch), t0, t1)

    def take(self, samples: Sequence[int] | Tensor, steps: int) -> Spikes:
        """The first so many steps of these samples, in their order, (len(samples), steps, C)."""
        return self._cut(torch.as_tensor(samples).tolist(), 0, steps)

    def _cut(self, samples: Sequence[int], t0: int, t1: int) -> Spikes:
        batch, steps, channels = self.shape
        pieces = [slice(int(self.row_ptr[b * steps + t0]), int(self.row_ptr[b * steps + t1])) for b in samples]
        counts = self.row_ptr.diff().view(batch, steps)[list(samples), t0:t1].flatten()
        return Spikes(
            torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
            torch.cat([self.channel[:0], *(self.channel[piece] for piece in pieces)]),
            torch.cat([self.value[:0], *(self.value[piece] for piece in pieces)]),
            (len(samples), t1 - t0, channels),
        )


def _row_ptr(row: Tensor, n_rows: int) -> Tensor:
    """Where each row begins among the sorted rows of the spikes, and the end of the last, (n_rows + 1,)."""
    return torch.cat([row.new_zeros(1), torch.bincount(row, minlength=n_rows).cumsum(0)])


def _whole(name: str, numbers: Any) -> Tensor:
    """Whole numbers as int64."""
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iu":
        numbers = np.ascontiguousarray(numbers, np.int64)  # torch knows neither every type nor the stride of a field
    numbers = torch.as_tensor(numbers)
    if numbers.numel() and (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool):
        raise TypeError(f"Spikes.from_events: {name} is {numbers.dtype}: give whole numbers")
    return numbers.to(torch.int64)


# a DataLoader collates Spikes with what is beside them, such as labels, without a collate_fn
default_collate_fn_map[Spikes] = lambda batch, *, collate_fn_map=None: Spikes.collate(batch)


def thinned(x: Tensor | Spikes) -> Tensor | Spikes:
    """x as `Spikes` where that is faster: a dense input of nearly all zeros on a CPU that needs no gradient."""
    if not isinstance(x, Tensor) or x.shape[-1] < WIDE or x.requires_grad or not compiled(x):
        return x
    flat = x.contiguous().view(-1, x.shape[-1])
    row_ptr = torch.zeros(len(flat) + 1, dtype=torch.int64)
    room = x.numel() // THIN + x.shape[-1]
    channel, value = torch.empty(room, dtype=torch.int64), x.new_empty(room)
    if not loops().find(flat.numpy(), row_ptr.numpy(), channel.numpy(), value.numpy()):
        return x
    n = int(row_ptr[-1])
    return Spikes(row_ptr, channel[:n], value[:n], (x.shape[0], x.shape[1], x.shape[2]))


def project(x: Tensor | Spikes, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight + bias for a dense or sparse input: (B, T, C), (C, D), (D,) -> (B, T, D)."""
    batch, width = x.shape[0], weight.shape[1]
    if isinstance(x, Spikes) and not x.value.requires_grad and compiled(x.value):
        weight = weight.to(x.value.dtype)
        nothing = weight.new_zeros(width)
        added = nothing if bias is None else bias.to(x.value.dtype)
        return _FilteredGather.apply(x, weight, weight.new_zeros(batch, width), nothing, added)
    if bias is not None:
        return project(x, weight) + bias
    if isinstance(x, Tensor):
        return x @ weight
    if x.value.is_cuda:
        return x.dense() @ weight  # a GPU multiplies zeros faster than it gathers
    flat = F.embedding_bag(
        x.channel, weight, x.row_ptr, mode="sum", per_sample_weights=x.value, include_last_offset=True
    )
    return flat.view(*x.shape[:2], width)


def filtered_projection(
    x: Tensor | Spikes, weight: Tensor, s_0: Tensor, rate: Tensor, bias: Tensor | None = None
) -> Tensor:
    """s_t + bias of s_t = exp(-rate) s_{t-1} + x_t @ weight, for a dense or sparse input.

    x (B, T, C), weight (C, D), s_0 (B, D), rate () or (D,), bias (D,) -> for t = 1 .. T, (B, T, D)
    """
    if isinstance(x, Spikes) and not (rate.requires_grad or x.value.requires_grad) and compiled(x.value):
        kappa = torch.exp(-rate).expand(weight.shape[1])
        bias = weight.new_zeros(weight.shape[1]) if bias is None else bias
        return _FilteredGather.apply(x, *(a.to(x.value.dtype) for a in (weight, s_0, kappa, bias)))
    s = filter_traces(project(x, weight), s_0, rate)
    return s if bias is None else s + bias


def decayed_sum(x: Tensor | Spikes, rate: Tensor, lengths: Tensor | None = None) -> Tensor:
    """The trace of an input after its last step, sum_t exp(-rate (T - 1 - t)) x_t, for one shared rate: -> (B, C).

    lengths  (B,) int64: each sample's own T; None: that of x
    """
    batch, steps, channels = x.shape
    age = torch.arange(steps - 1, -1, -1, device=rate.device, dtype=rate.dtype)
    if lengths is None:
        decay = torch.exp(-rate * age)
        if isinstance(x, Tensor):
            return torch.einsum("t,btd->bd", decay, x)
        decay = decay.unsqueeze(0)
    else:
        age = age - (steps - lengths.unsqueeze(1))  # (B, T)
        decay = torch.where(age < 0, 0.0, torch.exp(-rate * age.clamp(min=0)))
        if isinstance(x, Tensor):
            return torch.einsum("bt,btd->bd", decay, x)
    if not decay.requires_grad and not x.value.requires_grad and compiled(x.value):
        out = x.value.new_zeros(batch, channels)
        loops().decayed_sum(x.row_ptr.numpy(), x.channel.numpy(), x.value.numpy(), decay.numpy(), out.numpy())
        return out
    b, t = x.rows().div(steps, rounding_mode="floor"), x.rows() % steps
    flat = x.value.new_zeros(batch * channels)
    return flat.index_add(0, b * channels + x.channel, x.value * decay.expand(batch, -1)[b, t]).view(batch, channels)


class _FilteredGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Spikes, weight, s_0, kappa, bias):
        batch, steps, channels = x.shape
        kappa = kappa.contiguous()
        out = weight.new_empty(steps, batch, weight.shape[1]).transpose(0, 1)  # the recurrence reads time first
        flat, b_stride, t_stride = rows_of(out)
        loops().gather(
            x.row_ptr.numpy(),
            x.channel.numpy(),
            x.value.numpy(),
            weight.detach().contiguous().numpy(),
            kappa.numpy(),
            s_0.detach().contiguous().numpy(),
            bias.detach().clone().numpy(),  # a parameter: `numpy()` would pin its storage, which FSDP frees
            flat,
            b_stride,
            t_stride,
        )
        ctx.save_for_backward(x.row_ptr, x.channel, x.value, kappa)
        ctx.channels = channels
        return out

    @staticmethod
    @first_derivative("give the input as a tensor, and engine='reference'")
    def backward(ctx, grad):
        row_ptr, channel, value, kappa = ctx.saved_tensors
        out, state = grad.new_zeros(ctx.channels, grad.shape[2]), grad.new_empty(grad.shape[0], grad.shape[2])
        flat, b_stride, t_stride = rows_of(grad)
        loops().scatter(
            row_ptr.numpy(),
            channel.numpy(),
            value.numpy(),
            flat,
            b_stride,
            t_stride,
            kappa.numpy(),
            state.numpy(),
            out.numpy(),
        )
        return None, out, state, None, grad.sum((0, 1)) if ctx.needs_input_grad[4] else None
