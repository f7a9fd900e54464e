"""The synapse filter s_t = kappa s_{t-1} + i_t over all t at once: it does not depend on the memory.

Within a chunk of C steps the filter is a lower-triangular matrix, L_ij = kappa^(i-j); between chunks one number a trace
is carried. Powers of kappa are exp(-n rate), rate = delta_t / tau_s, so nothing is multiplied up.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64  # steps


class Spikes(NamedTuple):
    """Sparse input (B, T, C): row b T + t holds channel[row_ptr[row] : row_ptr[row + 1]], each with its value.

    row_ptr int64 (B T + 1,);  channel int64 (n,);  value float (n,);  shape (B, T, C)
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
        x[self.rows() * self.shape[2] + self.channel] = self.value
        return x.view(self.shape)


def project(x: Tensor | Spikes, weight: Tensor) -> Tensor:
    """x @ weight for a dense or sparse input: (B, T, C), (C, D) -> (B, T, D). Sparse, it is a gather and a sum."""
    if isinstance(x, Tensor):
        return x @ weight
    flat = F.embedding_bag(
        x.channel, weight, x.row_ptr, mode="sum", per_sample_weights=x.value, include_last_offset=True
    )
    return flat.view(*x.shape[:2], -1)


def filter_traces(i_btd: Tensor, s_0: Tensor, rate: Tensor) -> Tensor:
    """s_t = exp(-rate) s_{t-1} + i_t.

    i_btd    (B, T, D)     input to each trace
    s_0      (B, D)        trace before the first step
    rate     () or (D,)    delta_t / tau_s
    Returns  (B, T, D)     s_1 ... s_T
    """
    batch, steps, width = i_btd.shape
    c = min(CHUNK, steps)
    n_chunk = -(-steps // c)
    chunks = F.pad(i_btd, (0, 0, 0, n_chunk * c - steps)).view(batch, n_chunk, c, width)
    lag = torch.arange(c, device=rate.device)
    lag = (lag[:, None] - lag[None, :]).to(rate.dtype)
    if rate.dim() == 0:
        lower = torch.tril(torch.exp(-rate * lag.clamp(min=0)))  # (C, C)
        within = lower @ chunks
        decay = torch.exp(-rate * torch.arange(1, c + 1, device=rate.device, dtype=rate.dtype))[:, None]  # (C, 1)
    else:
        lower = torch.tril(torch.exp(-rate[:, None, None] * lag.clamp(min=0)))  # (D, C, C)
        within = torch.einsum("dij,bnjd->bnid", lower, chunks)
        decay = torch.exp(-rate * torch.arange(1, c + 1, device=rate.device, dtype=rate.dtype)[:, None])  # (C, D)
    carried, s = [], s_0
    for k in range(n_chunk):
        carried.append(s)
        s = decay[-1] * s + within[:, k, -1]
    traces = within + decay * torch.stack(carried, 1).unsqueeze(2)
    return traces.reshape(batch, n_chunk * c, width)[:, :steps]


def last_trace(x: Tensor | Spikes, rate: Tensor) -> Tensor:
    """The trace after the last step, from zero, for one shared rate: (B, T, C) -> (B, C)."""
    batch, steps, channels = x.shape
    if isinstance(x, Tensor):
        age = torch.arange(steps - 1, -1, -1, device=x.device, dtype=x.dtype)
        return torch.einsum("t,btd->bd", torch.exp(-rate * age), x)
    b, t = x.rows().div(steps, rounding_mode="floor"), x.rows() % steps
    decayed = x.value * torch.exp(-rate * (steps - 1 - t))
    return decayed.new_zeros(batch * channels).index_add(0, b * channels + x.channel, decayed).view(batch, channels)
