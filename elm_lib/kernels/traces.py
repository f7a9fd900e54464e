"""The synapse filter s_t = kappa s_{t-1} + i_t for all t at once, which does not depend on the memory.

Within a chunk of C steps the filter is a product with a lower-triangular matrix, L_ij = kappa^(i-j). Between chunks one
number a trace is carried: another such product. Powers of kappa are exp(-n rate) with rate = delta_t / tau_s, so that
no rounding errors multiply up. On a CPU a compiled loop does the same step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.kernels.autograd import in_memory, transformed
from elm_lib.kernels.optional import there

CHUNK = 64  # steps


def filter_traces(i_btd: Tensor, s_0: Tensor, rate: Tensor) -> Tensor:
    """s_t = exp(-rate) s_{t-1} + i_t.

    i_btd    (B, T, D)     input to each trace
    s_0      (B, D)        trace before the first step
    rate     () or (D,)    delta_t / tau_s
    Returns  (B, T, D)     s_1 ... s_T
    """
    if not rate.requires_grad and compiled(i_btd):
        kappa, s_0 = (a.to(i_btd.dtype) for a in (torch.exp(-rate).expand(i_btd.shape[2]), s_0))
        return _Filter.apply(i_btd, s_0, kappa.contiguous(), False)
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
    # the trace before each chunk, from what every earlier chunk ends with: the same filter, a chunk a step
    chunk_lag = torch.arange(n_chunk, device=rate.device)
    chunk_lag = ((chunk_lag[:, None] - 1 - chunk_lag[None, :]) * c).to(rate.dtype)  # (n_chunk, n_chunk)
    since_start = torch.arange(n_chunk, device=rate.device, dtype=rate.dtype)[:, None] * c
    ends = within[:, :, -1]  # (B, n_chunk, D)
    if rate.dim() == 0:
        carried = torch.tril(torch.exp(-rate * chunk_lag.clamp(min=0)), -1) @ ends
    else:
        between = torch.tril(torch.exp(-rate[:, None, None] * chunk_lag.clamp(min=0)), -1)
        carried = torch.einsum("dkn,bnd->bkd", between, ends)
    carried = carried + torch.exp(-rate * since_start) * s_0.unsqueeze(1)
    traces = within + decay * carried.unsqueeze(2)
    return traces.reshape(batch, n_chunk * c, width)[:, :steps]


def compiled(x: Tensor) -> bool:
    """Whether compiled loops serve this tensor."""
    fits = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return fits and not transformed() and in_memory(x) and there("numba")


def loops() -> Any:
    """The compiled loops, `elm_lib.kernels.loops`."""
    from elm_lib.kernels import loops

    return loops


def rows_of(x_btd: Tensor) -> tuple[np.ndarray, int, int]:
    """(B, T, D) as a 2-D numpy array of rows, and how many rows apart two samples and two steps are."""
    batch, steps, width = x_btd.shape
    if x_btd.transpose(0, 1).is_contiguous():
        return x_btd.detach().transpose(0, 1).reshape(batch * steps, width).numpy(), 1, batch
    return x_btd.detach().contiguous().reshape(batch * steps, width).numpy(), steps, 1


class _Filter(torch.autograd.Function):
    """s_t = kappa s_{t-1} + i_t from the first step on or, backwards, from the last: each is the other's gradient."""

    @staticmethod
    def forward(i_btd, s_0, kappa, backwards):
        batch, steps, width = i_btd.shape
        out = i_btd.new_empty(steps, batch, width).transpose(0, 1)  # the recurrence reads time first
        loops().leak(
            *rows_of(i_btd), kappa.detach().numpy(), s_0.detach().contiguous().numpy(), *rows_of(out), backwards
        )
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[2])
        ctx.backwards = inputs[3]

    @staticmethod
    def backward(ctx, grad):
        (kappa,) = ctx.saved_tensors
        grad_i = _Filter.apply(grad, torch.zeros_like(grad[:, 0]), kappa, not ctx.backwards)
        return grad_i, kappa * grad_i[:, -1 if ctx.backwards else 0], None, None
