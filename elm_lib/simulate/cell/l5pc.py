"""The layer-5 pyramidal cell in time: 16 simulations at once, one in each SIMD lane.

One step from t to t + dt is NEURON's fixed step:

1.  every current is linearised at v(t) with the gates of t, i = i(v) + g (v(t + dt) - v);
2.  the cable equation is solved for v(t + dt) implicitly,
        (C / dt + g + sum of axial conductances) dv - (axial conductances) (dv of the neighbours)
            = -i + axial currents,
    by elimination from the tips of the tree to the soma and back (Hines 1984): 2 N operations, exact;
3.  calcium, gates and synapses advance by dt at the new v.

Step 3 and step 1 of the next round are one pass over the nodes. Units: mV, ms, nA, uS, nF, mM. All arrays
of the state end in the lane: v[node, lane].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import float32 as f32

from elm_lib.simulate.cell import channels
from elm_lib.simulate.cell.currents import (
    AMPA_FALL,
    AMPA_RISE,
    CA,
    CONDUCTANCES,
    GABA_FALL,
    GABA_RISE,
    LANES,
    N_STATE,
    NMDA_FALL,
    NMDA_RISE,
    advance_and_linearise,
)
from elm_lib.simulate.cell.morphology import Cell
from elm_lib.simulate.cell.singles import cached, inlined

V_INIT = -76.0  # mV
LONG = 1e9  # ms: a step that long is the steady state
SYNAPSE_TAU = np.array([0.3, 3.0, 2.0, 70.0, 0.2, 8.0])  # ms, rise and fall of AMPA, NMDA, GABA_A
PEAK = {"ampa": 4e-4, "nmda": 4e-4, "gaba": 1e-3}  # uS, of one event


@inlined
def solve_tree(parent, axial, v, diagonal, rhs):
    """v += dv, the solution of the tree's equations (Hines 1984). diagonal and rhs are used up."""
    for c in range(len(parent) - 1, 0, -1):
        v_c, d_c, r_c = v[c], diagonal[c], rhs[c]
        p, a = parent[c], axial[c]
        v_p, d_p, r_p = v[p], diagonal[p], rhs[p]
        for n in range(LANES):
            i_axial = a * (v_p[n] - v_c[n])
            inverse = f32(1.0) / d_c[n]
            r_n = (r_c[n] + i_axial) * inverse
            d_c[n] = a * inverse
            r_c[n] = r_n
            d_p[n] -= a * a * inverse
            r_p[n] += a * r_n - i_axial
    for n in range(LANES):
        rhs[0, n] /= diagonal[0, n]
        v[0, n] += rhs[0, n]
    for c in range(1, len(parent)):
        v_c, d_c, r_c, r_p = v[c], diagonal[c], rhs[c], rhs[parent[c]]
        for n in range(LANES):
            dv = r_c[n] + d_c[n] * r_p[n]
            r_c[n] = dv
            v_c[n] += dv


@inlined
def add_events(indptr, channel, t, synapse_node, weight, s):
    """Input spikes of ms t: both exponentials of the synapse jump. weight (3): uS for AMPA, NMDA, GABA_A."""
    for n in range(indptr.shape[0]):
        for e in range(indptr[n, t], indptr[n, t + 1]):
            s_c = s[synapse_node[channel[e] >> 1]]
            if channel[e] & 1:
                s_c[GABA_RISE + n] += weight[2]
                s_c[GABA_FALL + n] += weight[2]
            else:
                s_c[AMPA_RISE + n] += weight[0]
                s_c[AMPA_FALL + n] += weight[0]
                s_c[NMDA_RISE + n] += weight[1]
                s_c[NMDA_FALL + n] += weight[1]


@cached
def run(
    parent,
    kind,
    axial,
    base,
    g,
    ca_gain,
    ca_keep,
    synapse_node,
    weight,
    synapse_keep,
    indptr,
    channel,
    inject_node,
    inject,
    dt,
    steps_per_ms,
    v,
    s,
    diagonal,
    rhs,
    record,
    trace,
):
    """All steps; trace[step, k, lane] = v of node record[k] after `step` steps."""
    duration_ms = indptr.shape[1] - 1
    no_keep = np.ones_like(ca_keep)
    no_gain = np.zeros_like(ca_gain)
    advance_and_linearise(
        kind, base, g, no_gain, no_keep, synapse_keep, v, s, diagonal, rhs, f32(LONG)
    )  # steady state at v
    step = 0
    for t in range(duration_ms):
        add_events(indptr, channel, t, synapse_node, weight, s)
        for _ in range(steps_per_ms):
            for k in range(len(record)):
                trace[step, k] = v[record[k]]
            if inject_node >= 0:
                for n in range(inject.shape[0]):
                    rhs[inject_node, n] += inject[n, t]
            solve_tree(parent, axial, v, diagonal, rhs)
            advance_and_linearise(kind, base, g, ca_gain, ca_keep, synapse_keep, v, s, diagonal, rhs, dt)
            step += 1
    for k in range(len(record)):
        trace[step, k] = v[record[k]]


@dataclass(frozen=True)
class Recording:
    """Voltage of one batch. time_step: ms; voltage (float32, steps + 1, recorded nodes, simulations): mV."""

    time_step: float
    voltage: np.ndarray

    def at_whole_ms(self) -> np.ndarray:
        """Voltage at 0, 1, .. ms, (recorded nodes, simulations, duration_ms)."""
        every = round(1.0 / self.time_step)
        return np.ascontiguousarray(np.moveaxis(self.voltage[:-1:every], 0, -1))


def simulate(
    cell: Cell,
    indptr: np.ndarray,
    channel: np.ndarray,
    *,
    dt_ms: float,
    record: np.ndarray | None = None,
    inject_node: int = -1,
    inject_nA: np.ndarray | None = None,
    peak_uS: dict[str, float] = PEAK,
) -> Recording:
    """Up to 16 simulations of `cell` from -76 mV, all gates at rest.

    indptr (int64, n, duration_ms + 1), channel (uint16): input spikes as in the `neuronio` schema.
    dt_ms: a whole fraction of 1 ms. record (int): nodes, the soma by default.
    inject_node, inject_nA (n, duration_ms): a current into one node, constant over each ms.
    peak_uS: peak conductance of one event at each kind of synapse.
    Raises ValueError for a wrong dt or shape, FloatingPointError if a voltage is not finite.
    """
    n, duration_ms = indptr.shape[0], indptr.shape[1] - 1
    steps_per_ms = round(1.0 / dt_ms)
    if steps_per_ms < 1 or abs(steps_per_ms * dt_ms - 1.0) > 1e-9:
        raise ValueError(f"dt_ms = {dt_ms}: 1 ms has to be a whole number of steps, such as 0.025, 0.05 or 0.1")
    if not 1 <= n <= LANES:
        raise ValueError(f"{n} simulations in one batch: 1 to {LANES} fit the lanes")
    record = np.zeros(1, np.int32) if record is None else np.asarray(record, np.int32)
    inject = np.zeros((n, duration_ms), np.float32) if inject_nA is None else np.asarray(inject_nA, np.float32)

    nodes = len(cell.parent)
    v = np.full((nodes, LANES), V_INIT, np.float32)
    s = np.zeros((nodes, N_STATE), np.float32)
    s[:, CA : CA + LANES] = channels.CA_START
    trace = np.empty((duration_ms * steps_per_ms + 1, len(record), LANES), np.float32)
    run(
        cell.parent,
        cell.kind,
        cell.axial.astype(np.float32),
        *membrane(cell, dt_ms),
        cell.synapse_node,
        event_weights(cell, peak_uS),
        np.exp(-dt_ms / SYNAPSE_TAU).astype(np.float32),
        np.asarray(indptr, np.int64),
        np.asarray(channel, np.uint16),
        inject_node,
        inject,
        np.float32(dt_ms),
        steps_per_ms,
        v,
        s,
        np.zeros_like(v),
        np.zeros_like(v),
        record,
        trace,
    )
    if not np.isfinite(trace[-1, :, :n]).all():
        raise FloatingPointError(
            f"the simulation diverged: voltage {trace[-1, :, :n].ravel()[:4]} mV after {duration_ms} ms"
        )
    return Recording(1.0 / steps_per_ms, trace[:, :, :n])


def membrane(cell: Cell, dt_ms: float) -> tuple[np.ndarray, ...]:
    """Per node, float32: C / dt + axial conductances (uS), conductances (uS), calcium gain (mM / nA), calcium
    kept in one step."""
    um2_to_cm2 = 1e-8
    area = cell.area * um2_to_cm2
    base = cell.densities["cm"] * area * 1e3 / dt_ms  # uF -> nF; nF / ms = uS
    base[1:] += cell.axial[1:]
    np.add.at(base, cell.parent[1:], cell.axial[1:])
    g = np.stack([cell.densities[name] * area * 1e6 for name in CONDUCTANCES], axis=1)  # S -> uS

    # ca' = -1e4 gamma i / (2 F 0.1 um) - (ca - 1e-4 mM) / tau, i in mA/cm2
    faraday, shell_um = 96485.33212, 0.1  # C/mol
    tau = cell.densities["ca_decay"]
    has_ca = tau > 0
    gain, keep = np.zeros(len(area)), np.ones(len(area))
    per_nA = 1e-6 / area[has_ca]  # mA/cm2
    gain[has_ca] = tau[has_ca] * 1e4 * cell.densities["ca_gamma"][has_ca] / (2 * faraday * shell_um) * per_nA
    keep[has_ca] = np.exp(-dt_ms / tau[has_ca])
    return tuple(x.astype(np.float32) for x in (base, g, gain, keep))


def event_weights(cell: Cell, peak_uS: dict[str, float] = PEAK) -> np.ndarray:
    """Jump of both exponentials at one event (uS, float32, (3,)) that lets the conductance peak as wanted:
    AMPA, NMDA, GABA_A."""
    rise, fall = SYNAPSE_TAU[::2], SYNAPSE_TAU[1::2]
    t_peak = rise * fall / (fall - rise) * np.log(fall / rise)
    at_peak = np.exp(-t_peak / fall) - np.exp(-t_peak / rise)
    factor = cell.reconstruction.excitatory_weight
    return (np.array([peak_uS["ampa"] * factor, peak_uS["nmda"] * factor, peak_uS["gaba"]]) / at_peak).astype(
        np.float32
    )


def output_spikes(voltage: np.ndarray, time_step: float) -> np.ndarray:
    """Times (ms) of the soma's action potentials: local maxima above -25 mV of its voltage (steps + 1,) on a
    grid of 1/8 ms."""
    grid = np.arange(0.0, (len(voltage) - 1) * time_step, 0.125)
    v = np.interp(grid, np.arange(len(voltage)) * time_step, voltage)
    peak = (v[1:-1] > v[:-2]) & (v[1:-1] >= v[2:]) & (v[1:-1] > -25.0)
    return grid[1:-1][peak]
