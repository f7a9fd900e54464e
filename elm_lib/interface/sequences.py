"""Sequences of different lengths: padded with `lengths`, or packed as torch.nn.utils.rnn does.

Samples are sorted by length and run in groups of like length, so that little time is spent on padding. Every group goes
through the same kernels as a batch of equal lengths. A result depends on no padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from elm_lib.kernels.spikes import Spikes

BLOCK = 8  # samples that the compiled loops take together
CUTS = 64  # places at most where a batch is divided
# What another group costs, in steps of one sample. Measured: 0.7 ms forward and backward, at 0.8 us a step on one core
OVERHEAD = 900


Run = Callable[[Any, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]


class Result(NamedTuple):
    """y as rows (T, B, .), or the data of a PackedSequence (N, .); s (B, n_trace), m (B, d_m) at each sample's end."""

    y: Tensor
    s: Tensor
    m: Tensor


def checked_lengths(lengths: Any, batch: int, steps: int) -> Tensor:
    """int64 (B,) on the CPU. Raises TypeError unless they are whole numbers, ValueError for another count or range."""
    lengths = torch.as_tensor(lengths, device="cpu")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths are {lengths.dtype}: give whole numbers, one a sample")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}: give one a sample, ({batch},)")
    if batch and not 1 <= int(lengths.min()) <= int(lengths.max()) <= steps:
        raise ValueError(f"lengths from {int(lengths.min())} to {int(lengths.max())}: must be in 1..{steps}, the steps")
    return lengths.to(torch.int64)


def groups(lengths: list[int]) -> list[tuple[int, int]]:
    """Where to divide samples of falling lengths: [first, end) of each group, of the least cost in all.

    A group costs its longest length times its samples, rounded up to blocks, and OVERHEAD.
    """
    n = len(lengths)
    stride = BLOCK * max(1, -(-n // (BLOCK * CUTS)))
    at = [*range(0, n, stride), n]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for j in range(1, len(at)):
        costs = [(best[i][0] + OVERHEAD + lengths[at[i]] * BLOCK * -(-(at[j] - at[i]) // BLOCK), i) for i in range(j)]
        best.append(min(costs))
    found, j = [], len(at) - 1
    while j > 0:
        found.append((at[best[j][1]], at[j]))
        j = best[j][1]
    return found[::-1]


def run_padded(run: Run, x: Tensor | Spikes, s_0: Tensor, m_0: Tensor, lengths: Tensor) -> Result:
    """run(x, s, m, lengths) -> y (T, B, .), s, m on a padded batch (B, T, C); y is 0 after a sample's end."""
    batch, steps = x.shape[0], x.shape[1]
    order = torch.argsort(lengths, descending=True, stable=True)

    def piece(samples: Tensor, longest: int) -> Tensor | Spikes:
        if isinstance(x, Spikes):
            return x.take(samples, longest)
        return x[:, :longest].index_select(0, samples.to(x.device))

    y, s, m, row = _in_groups(run, piece, s_0, m_0, lengths, order)
    y = torch.cat([y, y.new_zeros(1, *y.shape[1:])])
    row = torch.full((steps, batch), len(y) - 1, device="cpu").index_put_(_places(lengths[order], order), row)
    return Result(y.index_select(0, row.flatten().to(y.device)).view(steps, batch, -1), s, m)


def run_packed(run: Run, x: PackedSequence, s_0: Tensor, m_0: Tensor) -> Result:
    """run(x, s, m, lengths) on a PackedSequence; s_0, m_0, s, m in the caller's order, y in that of x.data."""
    sizes = x.batch_sizes
    batch = int(sizes[0])
    lengths = (sizes.unsqueeze(1) > torch.arange(batch, device="cpu")).sum(0)  # falling, of the sorted samples
    first = sizes.cumsum(0) - sizes
    order = torch.arange(batch, device="cpu") if x.sorted_indices is None else x.sorted_indices.cpu()
    rank = torch.argsort(order)

    def piece(samples: Tensor, longest: int) -> Tensor:
        places = first[:longest] + rank[samples].unsqueeze(1)  # (Bg, T)
        there = torch.arange(longest, device="cpu") < lengths[rank[samples]].unsqueeze(1)
        rows = torch.where(there, places, 0).to(x.data.device)
        return x.data.index_select(0, rows.flatten()).view(*rows.shape, -1)

    y, s, m, row = _in_groups(run, piece, s_0, m_0, lengths[rank], order)
    return Result(y.index_select(0, row.to(y.device)), s, m)


def _in_groups(
    run: Run, piece: Callable, s_0: Tensor, m_0: Tensor, lengths: Tensor, order: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All outputs as rows (n, .), s and m of all samples, and of each step of each sample, in the order of
    `_places`, where its output lies in the rows."""
    device, falling = m_0.device, lengths[order]
    parts = groups(falling.tolist()) if device.type == "cpu" else [(0, len(order))]
    results, base, of_sample, width = [], 0, torch.empty(2, len(order), dtype=torch.int64, device="cpu"), 0
    for first, end in parts:
        samples, longest = order[first:end], int(falling[first])
        inner, here = lengths[samples], samples.to(device)
        x = piece(samples, longest)
        if isinstance(x, Tensor) and int(inner[-1]) < longest:
            after = torch.arange(longest, device="cpu") >= inner.unsqueeze(1)
            x = x.masked_fill(after.unsqueeze(-1).to(device), 0.0)  # padding may hold anything, NaN too
        y, s, m = run(x, s_0.index_select(0, here), m_0.index_select(0, here), inner.to(device))
        results.append((y.flatten(0, 1), s, m))
        width = end - first
        of_sample[0, first:end] = base + torch.arange(width, device="cpu")
        of_sample[1, first:end] = width
        base += longest * width
    y, s, m = (torch.cat(part) for part in zip(*results, strict=True))
    back = torch.argsort(order).to(device)
    step, sample = _sorted_places(falling)
    return y, s.index_select(0, back), m.index_select(0, back), of_sample[0, sample] + step * of_sample[1, sample]


def _sorted_places(falling: Tensor) -> tuple[Tensor, Tensor]:
    """Step and rank of each row of a packed sequence whose samples have these falling lengths, (N,) each."""
    there = torch.arange(int(falling[0]), device="cpu").unsqueeze(1) < falling
    step, rank = there.nonzero(as_tuple=True)
    return step, rank


def _places(falling: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Step and sample of each row, in the order of `_sorted_places`."""
    step, rank = _sorted_places(falling)
    return step, order[rank]


def last(y: Tensor | PackedSequence, lengths: Any = None, *, batch_first: bool) -> Tensor:
    """The output at each sample's own last step, (B, .): what `h_n[-1]` of nn.LSTM is used for.

    y        (T, B, .), (B, T, .) with batch_first, or a PackedSequence, which knows its lengths
    lengths  (B,), or None for the last step of all
    """
    if isinstance(y, PackedSequence):
        sizes = y.batch_sizes
        lengths = (sizes.unsqueeze(1) > torch.arange(int(sizes[0]), device="cpu")).sum(0)
        rows = (sizes.cumsum(0) - sizes)[lengths - 1] + torch.arange(len(lengths), device="cpu")
        rows = rows if y.unsorted_indices is None else rows[y.unsorted_indices.cpu()]
        return y.data.index_select(0, rows.to(y.data.device))
    y = y if batch_first else y.transpose(0, 1)
    if lengths is None:
        return y[:, -1]
    at = checked_lengths(lengths, *y.shape[:2]).to(y.device) - 1
    return y[torch.arange(len(at), device=y.device), at]
