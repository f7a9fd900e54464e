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
# What another group costs, in steps of one sample. Measured on one core: 1.7 ms forward and backward for a call of one
# step, and 1.3 us for each further step of a sample (32 inputs, d_m 20)
OVERHEAD = 1300


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
    if bool((lengths == steps).all()):
        return Result(*run(x, s_0, m_0, None))
    order = torch.argsort(lengths, descending=True, stable=True)
    if isinstance(x, Spikes):
        y, s, m, row = _in_groups(run, x.take, s_0, m_0, lengths, order)
    else:
        time_first = not x.is_contiguous() and x.transpose(0, 1).is_contiguous()
        a, b = (1, batch) if time_first else (steps, 1)  # rows between two samples, and between two steps
        flat = (x.transpose(0, 1) if time_first else x).reshape(-1, x.shape[2])
        places = torch.arange(batch, device="cpu") * a
        y, s, m, row = _in_groups(
            run,
            lambda samples, t: _rows(flat, places[samples].unsqueeze(1) + _own(t, lengths[samples]) * b),
            s_0,
            m_0,
            lengths,
            order,
        )
    y = torch.cat([y, y.new_zeros(1, y.shape[1])])
    step, rank = _places(lengths[order])
    row = torch.full((steps, batch), len(y) - 1, device="cpu").index_put_((step, order[rank]), row)
    return Result(_rows(y, row), s, m)


def run_packed(run: Run, x: PackedSequence, s_0: Tensor, m_0: Tensor) -> Result:
    """run(x, s, m, lengths) on a PackedSequence; s_0, m_0, s, m in the caller's order, y in that of x.data."""
    falling, first = _packed_lengths(x)
    order = torch.arange(len(falling), device="cpu") if x.sorted_indices is None else x.sorted_indices.cpu()
    rank = torch.argsort(order)
    lengths = falling[rank]
    y, s, m, row = _in_groups(
        run,
        lambda samples, t: _rows(x.data, first[_own(t, lengths[samples])] + rank[samples].unsqueeze(1)),
        s_0,
        m_0,
        lengths,
        order,
    )
    return Result(_rows(y, row), s, m)


def _packed_lengths(x: PackedSequence) -> tuple[Tensor, Tensor]:
    """Lengths of the sorted samples, (B,), and the row at which each step begins, (T,)."""
    sizes = x.batch_sizes
    return (sizes.unsqueeze(1) > torch.arange(int(sizes[0]), device="cpu")).sum(0), sizes.cumsum(0) - sizes


def _own(steps: int, lengths: Tensor) -> Tensor:
    """Steps 0, 1, .. of samples of these lengths, (B, steps); a sample that has ended repeats its last.

    So nothing but a sample's own input is read: padding may hold anything, NaN too.
    """
    return torch.minimum(torch.arange(steps, device="cpu"), lengths.unsqueeze(1) - 1)


def _rows(flat: Tensor, rows: Tensor) -> Tensor:
    """flat (N, D) at rows (..), -> (.., D)."""
    return flat.index_select(0, rows.flatten().to(flat.device)).view(*rows.shape, -1)


def _in_groups(
    run: Run, piece: Callable, s_0: Tensor, m_0: Tensor, lengths: Tensor, order: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run samples in groups of like length.

    piece(samples, T)  the input of these samples, (B, T, C)
    order              the samples, of falling length
    Returns  outputs as rows (n, .), s and m of all samples, and in which row each step of each sample is, in the order
             of `_places`
    """
    device, falling = m_0.device, lengths[order]
    results, base, of_rank = [], 0, torch.empty(2, len(order), dtype=torch.int64, device="cpu")
    for first, end in groups(falling.tolist()) if device.type == "cpu" else [(0, len(order))]:
        samples, longest, width = order[first:end], int(falling[first]), end - first
        own, here = lengths[samples], samples.to(device)
        y, s, m = run(piece(samples, longest), s_0.index_select(0, here), m_0.index_select(0, here), own.to(device))
        results.append((y.flatten(0, 1), s, m))
        of_rank[0, first:end] = base + torch.arange(width, device="cpu")  # row of its first step
        of_rank[1, first:end] = width  # rows from a step to the next
        base += longest * width
    y, s, m = (torch.cat(part) for part in zip(*results, strict=True))
    back = torch.argsort(order).to(device)
    step, rank = _places(falling)
    return y, s.index_select(0, back), m.index_select(0, back), of_rank[0, rank] + step * of_rank[1, rank]


def _places(falling: Tensor) -> tuple[Tensor, Tensor]:
    """Step and rank of each row of a packed sequence whose samples have these falling lengths, (N,) each."""
    there = torch.arange(int(falling[0]), device="cpu").unsqueeze(1) < falling
    step, rank = there.nonzero(as_tuple=True)
    return step, rank


def last(y: Tensor | PackedSequence, lengths: Any = None, *, batch_first: bool) -> Tensor:
    """The output at each sample's own last step, (B, .): what `h_n[-1]` of nn.LSTM is used for.

    y        (T, B, .), (B, T, .) with batch_first, or a PackedSequence, which knows its lengths
    lengths  (B,), or None for the last step of all
    """
    if isinstance(y, PackedSequence):
        falling, first = _packed_lengths(y)
        rows = first[falling - 1] + torch.arange(len(falling), device="cpu")
        return _rows(y.data, rows if y.unsorted_indices is None else rows[y.unsorted_indices.cpu()])
    y = y if batch_first else y.transpose(0, 1)
    if lengths is None:
        return y[:, -1]
    at = checked_lengths(lengths, *y.shape[:2]).to(y.device) - 1
    return y[torch.arange(len(at), device=y.device), at]
