"""The stretch of one simulation that Figures 2a, 4b and S9 show, as a few arrays that are small enough to keep.

n, start_ms, stop_ms   simulation, and the stretch of T = stop_ms - start_ms that is shown
lead_ms                input kept before start_ms, so that a neuron can be run from its zero state
time, channel          (n_in,) uint16: input spikes; time in ms from start_ms - lead_ms, channel 0..1277
spike                  (n_out,) uint16: output spikes from start_ms to stop_ms, in ms from start_ms
soma                   (T,) float16 mV, action potentials included
p, v                   (T,) float16: predicted spike probability, and voltage in mV; absent without a model
whole_spike, whole_soma, whole_p, whole_v   the same of the whole simulation, predicted from its start on
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from elm_lib.datasets.neuronio.batches import read_batch
from elm_lib.datasets.neuronio.schema import SimulationSet, unscale_voltage

SPAN_MS, LEAD_MS = 2000, 500
MANY = 8  # output spikes of a lively span: neither silence nor a train of bursts
Shown = dict[str, np.ndarray]


def liveliest(simulations: SimulationSet, span_ms: int, least_ms: int = LEAD_MS) -> tuple[int, int]:
    """Simulation and start (ms) of the span whose number of output spikes is nearest to 8.

    No span starts before least_ms. Without any that fits: simulation 0 at least_ms.
    """
    best = (float("inf"), 0, least_ms)
    for n in range(len(simulations)):
        spike, _ = simulations.targets(n)
        if len(spike) < least_ms + span_ms:
            continue
        counts = np.convolve(spike, np.ones(span_ms), "valid")[least_ms::50]
        k = int(np.argmin(np.abs(counts - MANY)))
        best = min(best, (abs(float(counts[k]) - MANY), n, least_ms + 50 * k))
    return best[1:]


def shown(simulations: SimulationSet, model: nn.Module | None = None) -> Shown:
    """The liveliest 2 s of a set and their whole simulation, with a model's prediction.

    Of shorter simulations it is all that comes after the first 500 ms. Takes up to 100 KB when compressed.
    """
    longest = max(simulations.duration_ms(n) for n in range(len(simulations)))
    n, start = liveliest(simulations, min(SPAN_MS, longest - LEAD_MS))
    end = simulations.duration_ms(n)
    whole = stretch(simulations, n, 0, end, model)
    found = stretch(simulations, n, start, min(start + SPAN_MS, end), model)
    return found | {f"whole_{name}": whole[name] for name in ("spike", "soma", "p", "v") if name in whole}


@torch.no_grad()
def stretch(simulations: SimulationSet, n: int, start_ms: int, stop_ms: int, model: nn.Module | None = None) -> Shown:
    """Simulation n from start_ms to stop_ms, see above. The model predicts in one go, from a zero state before the
    lead."""
    lead = min(LEAD_MS, start_ms)
    file, k = simulations[n]
    row_ptr, channel, _, _ = file.window(k, start_ms - lead, stop_ms)
    spike, _ = simulations.targets(n, start_ms, stop_ms)
    scalars = {"n": n, "start_ms": start_ms, "stop_ms": stop_ms, "lead_ms": lead}
    found: Shown = {name: np.array(value, np.int64) for name, value in scalars.items()} | {
        "time": np.repeat(np.arange(len(row_ptr) - 1), np.diff(row_ptr)).astype(np.uint16),
        "channel": channel.astype(np.uint16),
        "spike": np.flatnonzero(spike).astype(np.uint16),
        "soma": file.soma_voltage[k, start_ms:stop_ms].astype(np.float16),
    }
    if model is None:
        return found
    model.eval()
    batch = read_batch(simulations, [n], [start_ms - lead], lead + stop_ms - start_ms)
    y = model(batch.to(next(model.parameters()).device).x)[0][0, lead:].double().cpu()
    voltage = unscale_voltage(y[:, 1].numpy())
    return found | {"p": torch.sigmoid(y[:, 0]).numpy().astype(np.float16), "v": voltage.astype(np.float16)}
