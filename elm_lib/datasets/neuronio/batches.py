"""Batches of NeuronIO windows for torch: sparse as they lie on disk, dense when a model asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet, channel_sign, scale_voltage
from elm_lib.kernels.spikes import Spikes
from elm_lib.support.errors import DataError

try:
    from elm_lib.datasets.neuronio import batches_cpu
except ImportError:  # numba is optional for the library alone
    batches_cpu = None  # type: ignore[assignment]  # mypy gives the name the module's type


@dataclass(frozen=True, eq=False)
class Batch:
    """B windows of T ms. Row b * T + t of the sparse input is ms t of window b:
    its spikes are channel[row_ptr[row] : row_ptr[row + 1]], with their sign.
    """

    row_ptr: torch.Tensor  # int64   (B * T + 1,)
    channel: torch.Tensor  # int64   (n_spikes,) 0..1277, ascending within a row, each at most once
    sign: torch.Tensor  # float32 (n_spikes,) +1 excitatory, -1 inhibitory
    spike: torch.Tensor  # float32 (B, T) 1 where the neuron spikes, else 0
    voltage: torch.Tensor  # float32 (B, T) capped and scaled soma voltage, see neuronio.scale_voltage
    simulation: torch.Tensor  # int64   (B,) index in the SimulationSet
    start_ms: torch.Tensor  # int64   (B,) first ms of the window

    @property
    def x(self) -> Spikes:
        """The input for a model: (B, T, 1278), sparse; `.x.dense()` makes it a float32 tensor."""
        return Spikes(self.row_ptr, self.channel, self.sign, (*self.spike.shape, N_CHANNELS))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return Batch(*(getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)))

    def pin_memory(self) -> Batch:
        return Batch(*(getattr(self, f.name).pin_memory() for f in fields(self)))


def read_batch(simulations: SimulationSet, indices: Sequence[int], starts_ms: Sequence[int], window_ms: int) -> Batch:
    """The windows [start, start + window_ms) of the given simulations, as one Batch of B = len(indices).

    A window that reaches over the end of its simulation is filled up with silence: no input, no spike, voltage target
    0. Raises DataError for damaged or non-finite content.
    """
    n = len(indices)
    spike = np.zeros((n, window_ms), np.float32)
    voltage = np.zeros((n, window_ms), np.float32)
    row_ptr = np.zeros(n * window_ms + 1, np.int64)
    channels, n_spikes = [], 0
    for b, (index, start) in enumerate(zip(indices, starts_ms, strict=True)):
        file, k = simulations[index]
        stop = min(start + window_ms, file.duration_ms)
        ptr, channel, voltage_mv, bins = file.window(k, start, stop)
        length, row = stop - start, b * window_ms
        row_ptr[row + 1 : row + length + 1] = ptr[1:] + n_spikes
        n_spikes += len(channel)
        row_ptr[row + length + 1 : row + window_ms + 1] = n_spikes
        channels.append(channel)
        spike[b, bins] = 1.0
        voltage[b, :length] = scale_voltage(voltage_mv)
    channel = np.concatenate(channels) if channels else np.zeros(0, np.uint16)
    return Batch(
        row_ptr=torch.from_numpy(row_ptr),
        channel=torch.from_numpy(channel.astype(np.int64)),
        sign=torch.from_numpy(channel_sign(channel)),
        spike=torch.from_numpy(spike),
        voltage=torch.from_numpy(voltage),
        simulation=torch.tensor(indices, dtype=torch.int64),
        start_ms=torch.tensor(starts_ms, dtype=torch.int64),
    )


class Windows:
    """Random training windows: each from a uniformly drawn simulation, at a uniform whole ms >= burn_start_ms.

    A batch is a pure function of (seed, epoch, step): it does not matter who reads it, in what order, or what was read
    before, so a resumed run goes on with exactly the batches that it would have seen.

    seed:           int >= 0
    burn_start_ms:  no window starts earlier, because each simulation starts from rest (500 ms as published)
    """

    def __init__(
        self,
        simulations: SimulationSet,
        *,
        window_ms: int = 500,
        batch_size: int = 8,
        seed: int,
        burn_start_ms: int = 500,
    ):
        self.simulations = simulations
        self.window_ms, self.batch_size, self.seed, self.burn_start_ms = (
            window_ms,
            batch_size,
            seed,
            burn_start_ms,
        )
        self._table = batches_cpu and batches_cpu.table(simulations)
        durations = np.array([simulations.duration_ms(n) for n in range(len(simulations))])
        # number of possible starts of each simulation
        self._n_starts = durations - window_ms - burn_start_ms + 1
        if self._n_starts.min() < 1:
            file, _ = simulations[int(self._n_starts.argmin())]
            raise DataError(
                f"{file.path}: {file.duration_ms} ms is too short for windows of {window_ms} ms that start at "
                f"{burn_start_ms} ms or later: simulate longer or shorten the window"
            )

    def draw(self, epoch: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Which windows batch (epoch, step) holds: indices and starts in ms, int64 (B,) each."""
        rng = np.random.default_rng([self.seed, epoch, step])
        indices = rng.integers(len(self.simulations), size=self.batch_size)
        starts_ms = self.burn_start_ms + rng.integers(self._n_starts[indices])
        return indices, starts_ms

    def batch(self, epoch: int, step: int) -> Batch:
        """Batch number `step` of `epoch`; both are only names, there is no end to either."""
        indices, starts_ms = self.draw(epoch, step)
        if self._table:
            ok, *arrays = batches_cpu.read(self._table, indices, starts_ms, self.window_ms)
            if ok:
                return Batch(*map(torch.from_numpy, (*arrays, indices, starts_ms)))
        return read_batch(self.simulations, indices.tolist(), starts_ms.tolist(), self.window_ms)
