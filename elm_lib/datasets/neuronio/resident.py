"""A whole NeuronIO data set on one device, a bit a channel and ms: batches are cut there, with no transfer and no
wait."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet, channel_sign
from elm_lib.support.errors import DataError

BYTES = -(-N_CHANNELS // 8)  # a ms of input


class DenseBatch(NamedTuple):
    """B windows of T ms; see `batches.Batch` for what each is."""

    x: Tensor  # float32 (B, T, 1278)
    spike: Tensor  # float32 (B, T)
    voltage: Tensor  # float32 (B, T)


class Resident:
    """Simulations of equal length D, one after another: row n D + t is ms t of simulation n.

    Takes 165 bytes a ms: 1 MB for a simulation of 6 s. Raises DataError when lengths differ.
    """

    def __init__(self, simulations: SimulationSet, device: str) -> None:
        durations = {simulations.duration_ms(n) for n in range(len(simulations))}
        if len(durations) != 1:
            raise DataError(f"simulations of {sorted(durations)} ms in one set: a resident set needs equal lengths")
        self.duration_ms = durations.pop()
        rows = len(simulations) * self.duration_ms
        self.bits = torch.empty(rows, BYTES, dtype=torch.uint8, device=device)
        self.spikes = torch.empty(rows, dtype=torch.uint8, device=device)
        self.voltage = torch.empty(rows, device=device)
        self._bit = torch.arange(8, dtype=torch.uint8, device=device)
        dense = torch.empty(self.duration_ms, BYTES * 8, dtype=torch.uint8, device=device)
        for n in range(len(simulations)):
            at = slice(n * self.duration_ms, (n + 1) * self.duration_ms)
            file, k = simulations[n]
            row_ptr, channel, _, _ = file.window(k, 0, self.duration_ms)
            entry = np.repeat(np.arange(self.duration_ms), np.diff(row_ptr)) * (BYTES * 8) + channel
            dense.zero_().view(-1)[torch.from_numpy(entry).to(device)] = 1
            self.bits[at] = (dense.view(-1, BYTES, 8) << self._bit).sum(-1, dtype=torch.uint8)
            spike, voltage = simulations.targets(n)
            self.spikes[at] = torch.from_numpy(spike).to(device)
            self.voltage[at] = torch.from_numpy(voltage).to(device)
        self._sign = torch.from_numpy(channel_sign(np.arange(N_CHANNELS))).to(device)

    @staticmethod
    def size(simulations: SimulationSet) -> int:
        """Bytes that a set takes."""
        return sum(simulations.duration_ms(n) for n in range(len(simulations))) * (BYTES + 5)

    def batch(self, first_row: Tensor, window_ms: int) -> DenseBatch:
        """The windows that start at the rows first_row, int64 (B,)."""
        rows = first_row[:, None] + torch.arange(window_ms, device=first_row.device)
        bits = (self.bits[rows].unsqueeze(-1) >> self._bit) & 1  # (B, T, BYTES, 8)
        x = bits.flatten(-2)[..., :N_CHANNELS] * self._sign
        return DenseBatch(x, self.spikes[rows].float(), self.voltage[rows])
