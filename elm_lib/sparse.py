"""Spike input as it is, sparse: a product with a matrix is a gather and a sum, no (B, T, C) array in between."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

try:
    from elm_lib import sparse_cpu
except ImportError:  # numba is optional for the library alone
    sparse_cpu = None


class Spikes(NamedTuple):
    """Sparse input (B, T, C): row b T + t holds channel[row_ptr[row] : row_ptr[row + 1]], each with its value.

    row_ptr int64 (B T + 1,);  channel int64 (n,);  value float (n,);  shape (B, T, C), always batch first
    A channel that a row names twice adds up. `check` says whether the numbers fit together; models call it.
    """

    row_ptr: Tensor
    channel: Tensor
    value: Tensor
    shape: tuple[int, int, int]

    def rows(self) -> Tensor:
        """Row of each spike, (n,)."""
        return torch.repeat_interleave(torch.diff(self.row_ptr), output_size=self.channel.numel())

    def dense(self) -> Tensor:
        """The same input as a tensor, (B, T, C)."""
        x = self.value.new_zeros(self.shape[0] * self.shape[1] * self.shape[2])
        return x.index_add(0, self.rows() * self.shape[2] + self.channel, self.value).view(self.shape)

    def check(self, dtype: torch.dtype) -> Spikes:
        """Itself, with values of the given dtype. Raises ValueError when rows or channels lie outside the shape.

        Compiled loops trust these numbers; on a GPU, where looking costs a wait, dtypes and sizes alone are looked at.
        """
        row_ptr, channel, n = self.row_ptr, self.channel, self.channel.numel()
        if row_ptr.dtype != torch.int64 or channel.dtype != torch.int64 or self.value.shape != channel.shape:
            raise ValueError("Spikes: row_ptr and channel must be int64, value as long as channel")
        if row_ptr.shape != (self.shape[0] * self.shape[1] + 1,):
            raise ValueError(f"Spikes: row_ptr has {row_ptr.numel()} entries: shape {tuple(self.shape)} needs B T + 1")
        if row_ptr.device.type == "cpu":
            if row_ptr[0] != 0 or row_ptr[-1] != n or bool((row_ptr.diff() < 0).any()):
                raise ValueError(f"Spikes: row_ptr must rise from 0 to the number of spikes, {n}")
            if n and not (0 <= int(channel.min()) and int(channel.max()) < self.shape[2]):
                raise ValueError(f"Spikes: a channel is outside 0..{self.shape[2] - 1}")
        return self if self.value.dtype == dtype else self._replace(value=self.value.to(dtype))

    def window(self, t0: int, t1: int) -> Spikes:
        """Steps t0 up to t1 of every sample, (B, t1 - t0, C)."""
        batch, steps, channels = self.shape
        pieces = [slice(int(self.row_ptr[b * steps + t0]), int(self.row_ptr[b * steps + t1])) for b in range(batch)]
        counts = self.row_ptr.diff().view(batch, steps)[:, t0:t1].flatten()
        return Spikes(
            torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
            torch.cat([self.channel[piece] for piece in pieces]),
            torch.cat([self.value[piece] for piece in pieces]),
            (batch, t1 - t0, channels),
        )


def project(x: Tensor | Spikes, weight: Tensor) -> Tensor:
    """x @ weight for a dense or sparse input: (B, T, C), (C, D) -> (B, T, D)."""
    if isinstance(x, Tensor):
        return x @ weight
    if x.value.is_cuda:
        return x.dense() @ weight  # a GPU multiplies zeros faster than it gathers
    if _compiled(x):
        flat = _Project.apply(x.row_ptr, x.channel, x.value, weight)
    else:
        flat = F.embedding_bag(
            x.channel, weight, x.row_ptr, mode="sum", per_sample_weights=x.value, include_last_offset=True
        )
    return flat.view(*x.shape[:2], -1)


def decayed_sum(x: Tensor | Spikes, rate: Tensor) -> Tensor:
    """sum_t exp(-rate (T - 1 - t)) x_t for one shared rate: (B, T, C) -> (B, C), the trace of the input after its last step."""
    batch, steps, channels = x.shape
    age = torch.arange(steps - 1, -1, -1, device=rate.device, dtype=rate.dtype)
    decay = torch.exp(-rate * age)
    if isinstance(x, Tensor):
        return torch.einsum("t,btd->bd", decay, x)
    if _compiled(x) and not decay.requires_grad:
        out = x.value.new_zeros(batch, channels)
        sparse_cpu.decayed_sum(x.row_ptr.numpy(), x.channel.numpy(), x.value.numpy(), decay.numpy(), out.numpy())
        return out
    b, t = x.rows().div(steps, rounding_mode="floor"), x.rows() % steps
    flat = x.value.new_zeros(batch * channels)
    return flat.index_add(0, b * channels + x.channel, x.value * decay[t]).view(batch, channels)


def _compiled(x: Spikes) -> bool:
    supported = x.value.dtype in (torch.float32, torch.float64)
    return sparse_cpu is not None and supported and x.value.device.type == "cpu" and not x.value.requires_grad


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, row_ptr, channel, value, weight):
        ctx.save_for_backward(row_ptr, channel, value)
        ctx.channels = weight.shape[0]
        out = weight.new_zeros(row_ptr.numel() - 1, weight.shape[1])
        sparse_cpu.gather_sum(
            row_ptr.numpy(), channel.numpy(), value.numpy(), weight.detach().contiguous().numpy(), out.numpy()
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        row_ptr, channel, value = ctx.saved_tensors
        out = grad.new_zeros(ctx.channels, grad.shape[1])
        sparse_cpu.scatter_sum(row_ptr.numpy(), channel.numpy(), value.numpy(), grad.contiguous().numpy(), out.numpy())
        return None, None, None, out
