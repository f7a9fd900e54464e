"""The currents of one node of the layer-5 pyramidal cell, 16 simulations at once, one in each SIMD lane.

Each function advances the gates that it needs by one step and adds its currents, linearised at v, to the node's row of
the cable equation (see `l5pc`). Units: mV, ms, nA, uS, nF, mM. All arrays of the state end in the lane.
"""

from __future__ import annotations

from numpy import float32 as f32

from elm_lib.simulate.cell import channels
from elm_lib.simulate.cell.densities import APICAL, AXON, BASAL, BRANCH_POINT, SOMA
from elm_lib.simulate.cell.singles import inlined, log

LANES = 16
E_PAS, E_K, E_NA, E_IH = f32(-90.0), f32(-85.0), f32(50.0), f32(-45.0)  # mV
E_EXC, E_GABA = f32(0.0), f32(-80.0)  # mV

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
