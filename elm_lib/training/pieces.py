"""Into how many pieces a batch is split on a GPU: as few as its free memory allows. Each piece is launched apart."""

from __future__ import annotations

import math

import torch
from torch import nn

from elm_lib.training.loop import random_parts
from elm_lib.training.optimisation import Train

SPARE = 1.25  # memory that is kept free: batches differ in length, other runs share the GPU


def needed(peak: int, pieces: int, free: int) -> int:
    """The fewest pieces that fit, at most `pieces`.

    peak  bytes that one of `pieces` takes: memory grows with the samples of a piece
    free  bytes
    """
    return min(pieces, max(1, math.ceil(SPARE * peak * pieces / max(free, 1))))


def fewest(task, model: nn.Module, train: Train, device: str) -> int:
    """The fewest pieces that fit on this GPU now: the last piece of the published split is tried, its memory measured.

    On a CPU as published: fewer pieces save no time there, and results keep their bits.
    """
    if train.accumulate == 1 or not device.startswith("cuda"):
        return train.accumulate
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for part in random_parts(model):
        part.reseed(0, 0, 0)
    piece, _ = task.batch(0, 0).pieces(train.accumulate)[-1]  # samples are in order of length
    task.loss(model, piece.to(device)).backward()
    peak = torch.cuda.max_memory_allocated() - before
    model.zero_grad(set_to_none=True)
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return needed(peak, train.accumulate, torch.cuda.mem_get_info()[0] + unused)
