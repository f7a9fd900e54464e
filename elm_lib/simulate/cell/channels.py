"""The ion channels of the layer-5 pyramidal cell, one function a channel.

Each takes the membrane potential v (mV), its gates (0..1) and a step dt (ms), and returns the gates after
dt at constant v: a gate x relaxes to x_inf with time constant tau, x <- x_inf + (x - x_inf) exp(-dt / tau),
which is exact while v stands still; a very long dt gives the steady state. The kinetics are those of Hay et
al. 2011 (10.1371/journal.pcbi.1002107) and the sources it cites; which gates make up a conductance stands
in each docstring. All is float32 and branch-free (see `singles`); f32(...) marks a constant.
"""

from __future__ import annotations

import math

from numpy import float32 as f32

from elm_lib.simulate.cell.singles import exp, inlined, linoid, linoid_pair, logistic

Q_T = f32(2.3 ** ((34 - 21) / 10))  # measured at 21 C, run at 34 C; 2.3 times as fast every 10 K
NERNST_CA = f32(
    1e3 * 8.314462618 * 279.45 / (2 * 96485.33212)
)  # mV, RT / 2F at 279.45 K (6.3 C) as in the published runs
LOG_CA_OUTSIDE = f32(math.log(2.0))  # ln of 2 mM
CA_REST = f32(1e-4)  # mM, to which the calcium pump returns
CA_START = f32(5e-5)  # mM
LOG_CA_HALF = f32(math.log(0.00043))  # ln of 0.00043 mM, half activation of SK


@inlined
def relax(x, x_inf, rate, dt):
    """Gate after dt (ms) on the way to x_inf at a rate (1/ms)."""
    return x_inf + (x - x_inf) * exp(-rate * dt)


@inlined
def relax_ab(x, alpha, beta, dt):
    """Gate after dt (ms) for an opening rate alpha and a closing rate beta (1/ms)."""
    total = alpha + beta
    return relax(x, alpha / total, total, dt)


@inlined
def ih(v, m, dt):
    """Ih, hyperpolarisation-activated cations: g = m (Kole et al. 2006)."""
    alpha = f32(0.00643 * 11.9) * linoid(-(v + f32(154.9)) * f32(1 / 11.9))
    beta = f32(0.193) * exp(v * f32(1 / 33.1))
    return relax_ab(m, alpha, beta, dt)


@inlined
def im(v, m, dt):
    """Im, muscarinic potassium: g = m (Adams et al. 1982)."""
    e = exp(f32(0.1) * (v + f32(35.0)))
    return relax_ab(m, f32(0.0033) * Q_T * e, f32(0.0033) * Q_T / e, dt)


@inlined
def ca_hva(v, m, h, dt):
    """High-voltage activated calcium: g = m^2 h (Reuveni et al. 1993)."""
    m_alpha = f32(0.055 * 3.8) * linoid((v + f32(27.0)) * f32(1 / 3.8))
    m_beta = f32(0.94) * exp((f32(-75.0) - v) * f32(1 / 17))
    h_alpha = f32(0.000457) * exp((f32(-13.0) - v) * f32(1 / 50))
    h_beta = f32(0.0065) * logistic((v + f32(15.0)) * f32(1 / 28))
    return relax_ab(m, m_alpha, m_beta, dt), relax_ab(h, h_alpha, h_beta, dt)


@inlined
def ca_lva(v, m, h, dt):
    """Low-voltage activated calcium: g = m^2 h (Avery & Johnston 1996, Randall & Tsien 1997)."""
    u = v + f32(10.0)  # shifted for the liquid junction potential
    m_inf = logistic((u + f32(30.0)) * f32(1 / 6))
    m_tau = f32(5.0) + f32(20.0) * logistic(-(u + f32(25.0)) * f32(1 / 5))
    h_inf = logistic(-(u + f32(80.0)) * f32(1 / 6.4))
    h_tau = f32(20.0) + f32(50.0) * logistic(-(u + f32(40.0)) * f32(1 / 7))
    return relax(m, m_inf, Q_T / m_tau, dt), relax(h, h_inf, Q_T / h_tau, dt)


@inlined
def skv3_1(v, m, dt):
    """Kv3.1, fast non-inactivating potassium: g = m (Rettig et al. 1992)."""
    m_inf = logistic((v - f32(18.7)) * f32(1 / 9.7))
    rate = f32(0.25) * (f32(1.0) + exp(-(v + f32(46.56)) * f32(1 / 44.14)))  # 1 / tau, tau = 4 ms / (1 + e^..)
    return relax(m, m_inf, rate, dt)


@inlined
def sk_e2(log_ca, z, dt):
    """SK, calcium-activated potassium: g = z; log_ca is the logarithm of [Ca] in mM (Kohler et al. 1996)."""
    return relax(z, logistic(f32(4.8) * (log_ca - LOG_CA_HALF)), f32(1.0), dt)


@inlined
def na_t(v, m, h, m_half, h_half, dt):
    """Transient sodium: g = m^3 h (Colbert & Pan 2002); NaTs2_t: half values 32, 60 mV, NaTa_t (axon): 38, 66
    mV."""
    m_up, m_down = linoid_pair((v + m_half) * f32(1 / 6))
    h_down, h_up = linoid_pair((v + h_half) * f32(1 / 6))
    m_new = relax_ab(m, f32(0.182 * 6) * Q_T * m_up, f32(0.124 * 6) * Q_T * m_down, dt)
    h_new = relax_ab(h, f32(0.015 * 6) * Q_T * h_up, f32(0.015 * 6) * Q_T * h_down, dt)
    return m_new, h_new


@inlined
def nap_et2(v, m, h, dt):
    """Persistent sodium: g = m^3 h (Magistretti & Alonso 1999); m is six times slower than NaTa_t's."""
    m_inf = logistic((v + f32(52.6)) * f32(1 / 4.6))
    up, down = linoid_pair((v + f32(38.0)) * f32(1 / 6))
    m_rate = (f32(0.182 * 6) * up + f32(0.124 * 6) * down) * Q_T * f32(1 / 6)
    h_inf = logistic(-(v + f32(48.8)) * f32(1 / 10))
    h_alpha = f32(2.88e-6 * 4.63) * linoid(-(v + f32(17.0)) * f32(1 / 4.63))
    h_beta = f32(6.94e-6 * 2.63) * linoid((v + f32(64.4)) * f32(1 / 2.63))
    return relax(m, m_inf, m_rate, dt), relax(h, h_inf, Q_T * (h_alpha + h_beta), dt)


@inlined
def k_tst(v, m, h, dt):
    """Transient potassium: g = m^4 h (Korngreen & Sakmann 2000)."""
    u = v + f32(10.0)
    m_peak, h_peak = (u + f32(71.0)) * f32(1 / 59), (u + f32(73.0)) * f32(1 / 23)
    m_tau = f32(0.34) + f32(0.92) * exp(-m_peak * m_peak)
    h_tau = f32(8.0) + f32(49.0) * exp(-h_peak * h_peak)
    m_new = relax(m, logistic(u * f32(1 / 19)), Q_T / m_tau, dt)
    return m_new, relax(h, logistic(-(u + f32(66.0)) * f32(1 / 10)), Q_T / h_tau, dt)


@inlined
def k_pst(v, m, h, dt):
    """Persistent potassium: g = m^2 h (Korngreen & Sakmann 2000)."""
    u = v + f32(10.0)
    low = f32(1.25) + f32(175.03) * exp(f32(0.026) * u)
    high = f32(1.25) + f32(13.0) * exp(f32(-0.026) * u)
    m_tau = low if u < f32(-50.0) else high
    h_peak = (u + f32(75.0)) * f32(1 / 48)
    h_tau = f32(360.0) + (f32(1010.0) + f32(24.0) * (u + f32(55.0))) * exp(-h_peak * h_peak)
    m_new = relax(m, logistic((u + f32(1.0)) * f32(1 / 12)), Q_T / m_tau, dt)
    return m_new, relax(h, logistic(-(u + f32(54.0)) * f32(1 / 11)), Q_T / h_tau, dt)


@inlined
def nernst_ca(log_ca):
    """Calcium's reversal potential (mV) from the logarithm of [Ca] in mM."""
    return NERNST_CA * (LOG_CA_OUTSIDE - log_ca)


@inlined
def calcium(ca, i_ca, gain, keep):
    """[Ca] (mM) after a step: pumped towards 1e-4 mM, fed by the calcium current i_ca (nA, inward negative).

    keep = e^(-dt / tau); gain (mM / nA) is the concentration at which a current of -1 nA would be balanced.
    """
    ca_inf = CA_REST - gain * i_ca
    return ca_inf + (ca - ca_inf) * keep


@inlined
def magnesium_block(v):
    """Unblocked fraction of NMDA channels at 1 mM Mg: 1 / (1 + e^(-0.08 v) / 3.57) (Jahr & Stevens 1990)."""
    return f32(1.0) / (f32(1.0) + exp(f32(-0.08) * v) * f32(1 / 3.57))
