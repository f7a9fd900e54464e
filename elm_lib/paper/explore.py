"""What the notebook `explore` computes with a trained neuron: lesions, receptive fields, a simulated twin.

The simulation is that of Figure 4: input spikes, soma voltage and output spikes (`elm_lib.datasets.neuronio.example`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elm_lib.datasets.neuronio import generated
from elm_lib.datasets.neuronio.metrics import START_MS, spike_scores, voltage_scores
from elm_lib.datasets.neuronio.schema import N_CHANNELS, SOMA_CAP_MV, channel_sign, unscale_voltage
from elm_lib.neuron import Parameters, elm_step
from elm_lib.simulate.cell import l5pc
from elm_lib.simulate.cell.densities import APICAL, BASAL
from elm_lib.simulate.cell.inputs import to_indptr
from elm_lib.simulate.cell.morphology import Cell

PLACES = ("everywhere", "basal", "apical", "near the soma", "far from the soma")
SHIFT = 1000.0  # a ReLU never sees less than 0 when this is added before it


def input_of(shown: dict[str, np.ndarray]) -> Tensor:
    """The stored input with its lead, (1, T, 1278): +1 an excitatory, -1 an inhibitory spike."""
    lead, start, stop = (int(shown[name]) for name in ("lead_ms", "start_ms", "stop_ms"))
    x = np.zeros((1, lead + stop - start, N_CHANNELS), np.float32)
    x[0, shown["time"], shown["channel"]] = channel_sign(shown["channel"])
    return torch.from_numpy(x)


# ---- equation 1, a step at a time ------------------------------------------------------------------------------------


def one_synapse(
    spikes_ms: Sequence[float], duration_ms: float, tau_m: float, tau_s: float, lambda_: float, delta_t: float,
    *, improved: bool = False, w_s: float = 0.5,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Equation 1 with one synapse, one memory unit, and an MLP that passes on its synapse: t (ms), x, s, delta_m, m.

    tau_m, tau_s, delta_t in ms;  improved: the update of Appendix A
    """
    steps = round(duration_ms / delta_t)
    x = torch.zeros(steps)
    for time in spikes_ms:
        x[min(int(time / delta_t), steps - 1)] += 1.0
    kappa_m = torch.exp(torch.tensor([-delta_t / tau_m]))
    gain = -torch.expm1(torch.tensor([-lambda_ * delta_t / tau_m])) if improved else lambda_ * (1 - kappa_m)
    layer = torch.tensor([[1.0, 0.0]]), torch.zeros(1)  # of [s, kappa_m m] it takes s
    kappa_s = torch.exp(torch.tensor(-delta_t / tau_s))
    p = Parameters(kappa_s, torch.tensor([w_s]), 1, kappa_m, gain, [layer], "relu", 1.0, 1.0, None)
    state, kept = (torch.zeros(1, 1), torch.zeros(1, 1)), []
    for x_t in x:
        _, state = elm_step(x_t.reshape(1, 1), state, p)
        kept.append((state[0].item(), state[1].item()))
    s, m = np.array(kept).T
    return {"t": np.arange(steps) * delta_t, "x": x.numpy(), "s": s, "delta_m": np.tanh(s), "m": m}


# ---- lesions ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def lesion(model: Any, *, units: Sequence[int] = (), branches: Sequence[int] = (), linear: bool = False) -> Any:
    """A copy of a Branch-ELM without some memory units (their m stays 0), without some branches (the MLP does not see
    them), or without the nonlinearity of its hidden layer."""
    lesioned = copy.deepcopy(model)
    first, last = lesioned.layers[0], lesioned.layers[-1]
    last.weight[list(units)] = 0.0
    last.bias[list(units)] = 0.0
    first.weight[:, list(branches)] = 0.0
    if linear:
        first.bias += SHIFT
        last.bias -= SHIFT * last.weight.sum(1)
    return lesioned


@dataclass(frozen=True)
class Tests:
    """A few simulations that no model was trained on: x (n, T, 1278), soma (n, T) mV, spike (n, T) 0/1."""

    x: Tensor
    soma: np.ndarray
    spike: np.ndarray

    @property
    def liveliest(self) -> int:
        return int(self.spike[:, START_MS:].sum(1).argmax())


def simulate_tests(cell: Cell, n: int = 4, duration_ms: int = 2500, seed: int = 5, dt_ms: float = 0.1) -> Tests:
    """Simulations as those of the test set, of another seed. Takes a few seconds of a core, as long for 1 as for 16."""
    settings = {"seed": seed, "ranges": "narrow", "dt_ms": dt_ms, "duration_ms": duration_ms}
    batch = generated.simulate_batch(cell, 0, n, settings | {"silence_synapses_hit_at_zero": False})
    x, spike = torch.zeros(n, duration_ms, N_CHANNELS), np.zeros((n, duration_ms), int)
    for k, (channel, time) in enumerate(batch["spikes"]):
        x[k, np.asarray(time, int), np.asarray(channel, int)] = torch.from_numpy(channel_sign(np.asarray(channel)))
        spike[k, np.asarray(batch["output_spikes_ms"][k], int)] = 1
    return Tests(x, np.minimum(np.asarray(batch["soma_voltage"], float)[:, :duration_ms], SOMA_CAP_MV), spike)


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> dict[str, np.ndarray]:
    """p (n, T) spike probability and v (n, T) mV of a model, from its zero state."""
    y, _ = model(x)
    return {"p": torch.sigmoid(y[..., 0]).numpy(), "v": unscale_voltage(y[..., 1].numpy())}


def scores(predicted: dict[str, np.ndarray], tests: Tests) -> dict[str, float]:
    """AUC and RMSE (mV) from 500 ms on, without the rescaling of the released evaluation."""
    spike, soma = tests.spike[:, START_MS:], tests.soma[:, START_MS:]
    found = spike_scores(spike, predicted["p"][:, START_MS:]) | voltage_scores(soma, predicted["v"][:, START_MS:])
    return {"auc": found["auc"], "rmse": found["rmse"]}


# ---- receptive fields ------------------------------------------------------------------------------------------------


def receptive_field(model: nn.Module, shown: dict[str, np.ndarray], before_ms: int, *, quiet: bool = False) -> Tensor:
    """Mean gradient of the spike logit to the input before each output spike, (before_ms, 1278).

    The last row is the moment of the spike. quiet: at as many moments in the middle between spikes
    """
    lead, spikes = int(shown["lead_ms"]), np.sort(shown["spike"].astype(int))
    moments = (np.concatenate([[0], spikes[:-1]]) + spikes) // 2 if quiet else spikes
    x, run_in = input_of(shown)[0], max(before_ms, lead)
    windows = torch.stack([x[lead + t + 1 - run_in : lead + t + 1] for t in moments]).requires_grad_()
    y, _ = model(windows)
    (gradient,) = torch.autograd.grad(y[:, -1, 0].sum(), windows)
    return gradient.mean(0)[-before_ms:]


# ---- the biophysical twin --------------------------------------------------------------------------------------------


def channels_at(cell: Cell, place: str) -> np.ndarray:
    """Segments (0 to 638) at a place of `PLACES`; near and far are the quarters by path to the soma."""
    distance, kind = cell.distance[cell.synapse_node], cell.kind[cell.synapse_node]
    chosen = {
        "everywhere": np.ones(len(distance), bool),
        "basal": kind == BASAL,
        "apical": kind == APICAL,
        "near the soma": distance <= np.quantile(distance, 0.25),
        "far from the soma": distance >= np.quantile(distance, 0.75),
    }
    return np.flatnonzero(chosen[place])


def draw_spikes(
    cell: Cell,
    excitatory_hz: float,
    inhibitory_hz: float,
    synchrony: float,
    place: str,
    duration_ms: int,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Random input spikes, (channel, time_ms) by time: each synapse at a place fires at a rate (Hz).

    synchrony  share of the excitatory spikes that are moved to common moments, one every 50 ms
    """
    rng, segments = np.random.default_rng(seed), channels_at(cell, place)
    found = []
    for offset, rate in ((0, excitatory_hz), (1, inhibitory_hz)):
        time, which = np.nonzero(rng.random((duration_ms, len(segments))) < rate / 1000)
        if offset == 0:
            together = rng.random(len(time)) < synchrony
            time = np.where(together, np.minimum(time // 50 * 50 + 25, duration_ms - 1), time)
        found.append(np.stack([time, 2 * segments[which] + offset]))
    time, channel = np.unique(np.concatenate(found, axis=1), axis=1)
    return channel.astype(np.uint16), time


@torch.no_grad()
def beside_the_cell(
    model: nn.Module, cell: Cell, channel: np.ndarray, time_ms: np.ndarray, duration_ms: int, dt_ms: float = 0.1
) -> dict[str, np.ndarray]:
    """The cell and the model under the same input: soma (mV) and v (mV), p, (duration_ms,); spike (ms) of the cell."""
    recording = l5pc.simulate(cell, to_indptr(time_ms, duration_ms)[None], channel, dt_ms=dt_ms)
    x = torch.zeros(1, duration_ms, N_CHANNELS)
    x[0, time_ms, channel.astype(int)] = torch.from_numpy(channel_sign(channel))
    y, _ = model(x)
    return {
        "soma": recording.at_whole_ms()[0, 0],
        "spike": l5pc.output_spikes(recording.voltage[:, 0, 0], recording.time_step),
        "v": unscale_voltage(y[0, :, 1].numpy()),
        "p": torch.sigmoid(y[0, :, 0]).numpy(),
    }


# ---- what was learned ------------------------------------------------------------------------------------------------


@torch.no_grad()
def weight_by_input(model: Any) -> np.ndarray:
    """Sum of the synapse weights w_s of each input of a Branch-ELM, (1278,)."""
    found = torch.zeros(N_CHANNELS)
    found.index_add_(0, model.routing_index, model.w_s)
    return found.numpy()


def layout(cell: Cell) -> np.ndarray:
    """Where a tree diagram puts each node, (N, 2): side by side in the order of the tips, um of path from the soma
    upward, of basal branches and the axon downward."""
    n, children = len(cell.parent), [list[int]() for _ in cell.parent]
    for node in range(1, n):
        children[cell.parent[node]].append(node)
    x, tips = np.zeros(n), 0
    stack = [0]
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        stack += children[node]
    for node in reversed(order):
        if children[node]:
            x[node] = np.mean(x[children[node]])
        else:
            x[node], tips = tips, tips + 1
    below = np.zeros(n, bool)
    for node in range(1, n):  # parents stand before children
        below[node] = below[cell.parent[node]] or (cell.kind[node] not in (APICAL, 0) and cell.parent[node] == 0)
    return np.stack([x, np.where(below, -cell.distance, cell.distance)], axis=1)
