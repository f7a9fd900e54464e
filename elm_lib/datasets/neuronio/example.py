"""The simulation that figures show, with a model's prediction, as a few arrays that are small enough to keep."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from elm_lib.datasets.neuronio.batches import read_batch
from elm_lib.datasets.neuronio.schema import SimulationSet, unscale_voltage

SPAN_MS, LEAD_MS = 2000, 500  # shown, and before it: a model starts from a zero state
MANY = 8  # output spikes of a lively span: neither silence nor a train of bursts


def liveliest(simulations: SimulationSet, span_ms: int, least_ms: int = LEAD_MS) -> tuple[int, int]:
    """Simulation and start (ms) of the span whose number of output spikes is nearest to 8.

    No span starts before least_ms. Without any that fits: simulation 0 at least_ms.
    """
    best = (float("inf"), 0, least_ms)
    for n in range(len(simulations)):
        spike, _ = simulations.targets(n)
        if len(spike) < span_ms:
            continue
        counts = np.convolve(spike, np.ones(span_ms), "valid")[least_ms::50]
        if len(counts):
            k = int(np.argmin(np.abs(counts - MANY)))
            best = min(best, (abs(float(counts[k]) - MANY), n, least_ms + 50 * k))
    return best[1:]


@torch.no_grad()
def shown(model: nn.Module, simulations: SimulationSet) -> dict[str, np.ndarray]:
    """The liveliest 2 s of a set and the 500 ms before them, and what a model predicts, in one go from a zero state.

    n            int64    ()  simulation
    first_ms, start_ms, stop_ms  int64 ()  the arrays cover first_ms up to stop_ms, figures show start_ms up to stop_ms
    time, channel  uint16 (n_spikes,)  input spikes: ms since first_ms, and channel
    soma         float16  (T,)  mV, capped at -55 mV
    spike        uint16   (n_out,)  output spikes, ms since first_ms
    p, voltage   float16  (T,)  predicted spike probability and voltage in mV
    Of shorter simulations, all that comes after the first 500 ms is shown. Takes up to 100 KB when compressed.
    """
    longest = max(simulations.duration_ms(n) for n in range(len(simulations)))
    span = min(SPAN_MS, longest - LEAD_MS)
    n, start = liveliest(simulations, span)
    first, stop = start - LEAD_MS, min(start + span, simulations.duration_ms(n))
    file, k = simulations[n]
    row_ptr, channel, _, bins = file.window(k, first, stop)
    _, target = simulations.targets(n, first, stop)
    model.eval()
    batch = read_batch(simulations, [n], [first], stop - first).to(next(model.parameters()).device)
    y = model(batch.x)[0][0].double().cpu()
    return {
        "n": np.int64(n),
        "first_ms": np.int64(first),
        "start_ms": np.int64(start),
        "stop_ms": np.int64(stop),
        "time": np.repeat(np.arange(stop - first), np.diff(row_ptr)).astype(np.uint16),
        "channel": channel.astype(np.uint16),
        "soma": unscale_voltage(target.astype(np.float64)).astype(np.float16),
        "spike": bins.astype(np.uint16),
        "p": torch.sigmoid(y[:, 0]).numpy().astype(np.float16),
        "voltage": unscale_voltage(y[:, 1].numpy()).astype(np.float16),
    }
