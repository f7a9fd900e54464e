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
from elm_lib.simulate.cell.densities import APICAL, AXON, BASAL, BRANCH_POINT, SOMA
from elm_lib.simulate.cell.morphology import Cell
from elm_lib.simulate.cell.singles import cached, inlined, log

LANES = 16
V_INIT = -76.0  # mV
E_PAS, E_K, E_NA, E_IH = f32(-90.0), f32(-85.0), f32(50.0), f32(-45.0)  # mV
E_EXC, E_GABA = f32(0.0), f32(-80.0)  # mV
LONG = 1e9  # ms: a step that long is the steady state

# rows of the state of one node; synapses keep the two exponentials of each conductance, in uS
(
    AMPA_RISE,
    AMPA_FALL,
    NMDA_RISE,
    NMDA_FALL,
    GABA_RISE,
    GABA_FALL,
    IH,
    IM,
    SK,
    KV,
    CA,
    I_CA,
    HVA_M,
    HVA_H,
    LVA_M,
    LVA_H,
    NA_M,
    NA_H,
    NAP_M,
    NAP_H,
    KT_M,
    KT_H,
    KP_M,
    KP_H,
    N_STATE,
) = (i * LANES for i in range(25))
SYNAPSE_TAU = np.array([0.3, 3.0, 2.0, 70.0, 0.2, 8.0])  # ms, rise and fall of AMPA, NMDA, GABA_A
PEAK = {"ampa": 4e-4, "nmda": 4e-4, "gaba": 1e-3}  # uS, of one event

# columns of the conductances of one node, uS
CONDUCTANCES = (
    "pas",
    "ih",
    "im",
    "sk_e2",
    "skv3_1",
    "ca_hva",
    "ca_lva",
    "nats2_t",
    "nata_t",
    "nap_et2",
    "k_tst",
    "k_pst",
)
(G_PAS, G_IH, G_IM, G_SK, G_KV, G_HVA, G_LVA, G_NATS, G_NATA, G_NAP, G_KT, G_KP) = range(12)


@inlined
def leak(v, diagonal, rhs, base, g):
    """Start the node's row: C / dt + axial conductances + leak."""
    for n in range(LANES):
        diagonal[n] = base + g
        rhs[n] = -g * (v[n] - E_PAS)


@inlined
def decayed(g, keep):
    """g keep, and zero below 1e-20 uS: arithmetic with subnormal numbers would be a hundred times slower."""
    g = g * keep
    return f32(0.0) if g < f32(1e-20) else g


@inlined
def synapses(v, s, diagonal, rhs, keep):
    """AMPA, NMDA and GABA_A: decay by one step, then their currents. keep (6): e^(-dt / tau)."""
    for n in range(LANES):
        ampa_rise, ampa_fall = decayed(s[AMPA_RISE + n], keep[0]), decayed(s[AMPA_FALL + n], keep[1])
        nmda_rise, nmda_fall = decayed(s[NMDA_RISE + n], keep[2]), decayed(s[NMDA_FALL + n], keep[3])
        gaba_rise, gaba_fall = decayed(s[GABA_RISE + n], keep[4]), decayed(s[GABA_FALL + n], keep[5])
        s[AMPA_RISE + n], s[AMPA_FALL + n] = ampa_rise, ampa_fall
        s[NMDA_RISE + n], s[NMDA_FALL + n] = nmda_rise, nmda_fall
        s[GABA_RISE + n], s[GABA_FALL + n] = gaba_rise, gaba_fall
        v_n = v[n]
        open_ = channels.magnesium_block(v_n)
        g_ampa, g_nmda, g_gaba = ampa_fall - ampa_rise, (nmda_fall - nmda_rise) * open_, gaba_fall - gaba_rise
        driving = v_n - E_EXC
        # NMDA's slope has a second part, since the block depends on v
        diagonal[n] += g_ampa + g_nmda * (f32(1.0) + f32(0.08) * (f32(1.0) - open_) * driving) + g_gaba
        rhs[n] -= (g_ampa + g_nmda) * driving + g_gaba * (v_n - E_GABA)


@inlined
def sag(v, s, diagonal, rhs, g, dt):
    """Ih."""
    for n in range(LANES):
        m = channels.ih(v[n], s[IH + n], dt)
        s[IH + n] = m
        diagonal[n] += g * m
        rhs[n] -= g * m * (v[n] - E_IH)


@inlined
def calcium_and_potassium(v, s, diagonal, rhs, g, ca_gain, ca_keep, dt):
    """Im, SK, Kv3.1, both calcium currents and the calcium they bring in."""
    g_im, g_sk, g_kv, g_hva, g_lva = g[G_IM], g[G_SK], g[G_KV], g[G_HVA], g[G_LVA]
    for n in range(LANES):
        v_n = v[n]
        ca = channels.calcium(s[CA + n], s[I_CA + n], ca_gain, ca_keep)
        log_ca = log(ca)
        im = channels.im(v_n, s[IM + n], dt)
        kv = channels.skv3_1(v_n, s[KV + n], dt)
        sk = channels.sk_e2(log_ca, s[SK + n], dt)
        hva_m, hva_h = channels.ca_hva(v_n, s[HVA_M + n], s[HVA_H + n], dt)
        lva_m, lva_h = channels.ca_lva(v_n, s[LVA_M + n], s[LVA_H + n], dt)
        s[CA + n], s[IM + n], s[KV + n], s[SK + n] = ca, im, kv, sk
        s[HVA_M + n], s[HVA_H + n], s[LVA_M + n], s[LVA_H + n] = hva_m, hva_h, lva_m, lva_h

        g_k = g_im * im + g_kv * kv + g_sk * sk
        g_ca = g_hva * hva_m * hva_m * hva_h + g_lva * lva_m * lva_m * lva_h
        i_ca = g_ca * (v_n - channels.nernst_ca(log_ca))
        s[I_CA + n] = i_ca
        diagonal[n] += g_k + g_ca
        rhs[n] -= g_k * (v_n - E_K) + i_ca


@inlined
def sodium(v, s, diagonal, rhs, g, m_half, h_half, dt):
    """Transient sodium: NaTs2_t or, in the axon, NaTa_t."""
    for n in range(LANES):
        m, h = channels.na_t(v[n], s[NA_M + n], s[NA_H + n], m_half, h_half, dt)
        s[NA_M + n], s[NA_H + n] = m, h
        g_na = g * m * m * m * h
        diagonal[n] += g_na
        rhs[n] -= g_na * (v[n] - E_NA)


@inlined
def axon_only(v, s, diagonal, rhs, g, dt):
    """Persistent sodium, transient and persistent potassium."""
    g_nap, g_kt, g_kp = g[G_NAP], g[G_KT], g[G_KP]
    for n in range(LANES):
        v_n = v[n]
        nap_m, nap_h = channels.nap_et2(v_n, s[NAP_M + n], s[NAP_H + n], dt)
        kt_m, kt_h = channels.k_tst(v_n, s[KT_M + n], s[KT_H + n], dt)
        kp_m, kp_h = channels.k_pst(v_n, s[KP_M + n], s[KP_H + n], dt)
        s[NAP_M + n], s[NAP_H + n] = nap_m, nap_h
        s[KT_M + n], s[KT_H + n], s[KP_M + n], s[KP_H + n] = kt_m, kt_h, kp_m, kp_h
        g_na = g_nap * nap_m * nap_m * nap_m * nap_h
        g_k = g_kt * kt_m * kt_m * kt_m * kt_m * kt_h + g_kp * kp_m * kp_m * kp_h
        diagonal[n] += g_na + g_k
        rhs[n] -= g_na * (v_n - E_NA) + g_k * (v_n - E_K)


@inlined
def advance_and_linearise(kind, base, g, ca_gain, ca_keep, synapse_keep, v, s, diagonal, rhs, dt):
    """Gates, calcium and synapses over dt (ms) at v; then the matrix and the right-hand side for the next
    step."""
    for c in range(len(kind)):
        v_c, s_c, d_c, r_c, g_c = v[c], s[c], diagonal[c], rhs[c], g[c]
        where = kind[c]
        leak(v_c, d_c, r_c, base[c], g_c[G_PAS])
        if where == BRANCH_POINT:
            continue
        sag(v_c, s_c, d_c, r_c, g_c[G_IH], dt)
        if where == BASAL or where == APICAL:
            synapses(v_c, s_c, d_c, r_c, synapse_keep)
        if where != BASAL:
            calcium_and_potassium(v_c, s_c, d_c, r_c, g_c, ca_gain[c], ca_keep[c], dt)
        if where == SOMA or where == APICAL:
            sodium(v_c, s_c, d_c, r_c, g_c[G_NATS], f32(32.0), f32(60.0), dt)
        elif where == AXON:
            sodium(v_c, s_c, d_c, r_c, g_c[G_NATA], f32(38.0), f32(66.0), dt)
            axon_only(v_c, s_c, d_c, r_c, g_c, dt)


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
