"""The synapse filter s_t = kappa s_{t-1} + i_t over all t at once: it does not depend on the memory.

Within a chunk of C steps the filter is a lower-triangular matrix, L_ij = kappa^(i-j); between chunks it is another, as one
number a trace is carried. Powers of kappa are exp(-n rate), rate = delta_t / tau_s, so nothing is multiplied up.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64  # steps


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
