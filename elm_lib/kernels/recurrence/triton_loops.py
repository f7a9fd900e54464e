"""The two loops over t as persistent Triton kernels: one launch runs all T steps.

The memory stays in registers from the first step to the last. A step reads p_t (forward) or what later steps send back
(reverse), and writes one row. Both loops are the same pair of products, forward with (W_m, W_2), reverse with their
transposes:

    h = W_m u + p,  z = W_2 act(h) + b_2                 e_1 = (W_2^T e_2) * slope_1,  c = kappa (g + W_m^T e_1)

vector   a program a sample. Both matrices are laid out (d_1, d_m). So the first product sums along one axis and the
         second along the other, and each result lies where the next product reads it. The weights of a small neuron
         stay in registers (HELD). Larger ones are read again each step, from L1 or L2, CHUNK hidden units at a time.
tile     a program for 16 samples, for large batches: products run on the tensor cores, in float32 as exact as
         `torch.get_float32_matmul_precision()` asks ("highest": three TF32 products, else one).

p, slope_1 (T, B, d_1); m_all (T + 1, B, d_m); grad_m, slope_2, g_all (T, B, d_m); carry (B, d_m). Slopes become errors.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
def _activate(h, ACT: tl.constexpr):  # see ACTIVATIONS of `bptt`
    if ACT == 0:
        h = tl.where(h <= 0, 0.0, h)  # keeps NaN, which a maximum would not
    elif ACT == 1:
        h = h / (1.0 + tl.exp(-h))
    elif ACT == 3:
        h = tl.where(h <= 0, 0.0, h * h)
    return h


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_vector(
    p,
    m_all,
    kappa,
    gain,
    w_m,
    w_2t,
    b_2,
    steps,
    batch,
    D_M: tl.constexpr,
    D_1: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
    ACT: tl.constexpr,
    B: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    unit, tile = i < D_M, j[:, None] * D_M + i[None, :]
    k, g = tl.load(kappa + i, unit, 0.0), tl.load(gain + i, unit, 0.0)
    bias = tl.load(b_2 + i, unit, 0.0)
    m_t, p_t = m_all + n * D_M, p + n * D_1
    m = tl.load(m_t + i, unit, 0.0)
    if HELD:
        hidden = j < D_1
        w_in = tl.load(w_m + tile, hidden[:, None] & unit[None, :], 0.0)
        w_out = tl.load(w_2t + tile, hidden[:, None] & unit[None, :], 0.0)
        ahead = tl.load(p_t + j, hidden, 0.0)  # p of the step to come is on its way while a step computes
    for t in range(steps):
        u = k * m
        if HELD:
            h = ahead
            p_t += batch * D_1
            ahead = tl.load(p_t + j, j < tl.minimum(steps - 1 - t, 1) * D_1, 0.0)
            h = tl.where(hidden, _activate(h + tl.sum(w_in * u[None, :], 1), ACT), 0.0)
            z = bias + tl.sum(w_out * h[:, None], 0)
        else:
            products = tl.zeros([CHUNK, WIDTH], m.dtype)
            for c in range(0, D_1, CHUNK):
                hidden = c + j < D_1
                w_in = tl.load(w_m + c * D_M + tile, hidden[:, None] & unit[None, :], 0.0)
                w_out = tl.load(w_2t + c * D_M + tile, hidden[:, None] & unit[None, :], 0.0)
                h = tl.load(p_t + c + j, hidden, 0.0) + tl.sum(w_in * u[None, :], 1)
                products += w_out * tl.where(hidden, _activate(h, ACT), 0.0)[:, None]
            z = bias + tl.sum(products, 0)
            p_t += batch * D_1
        m = tl.where(unit, u + g * _tanh(B * z), 0.0)
        m_t += batch * D_M
        tl.store(m_t + i, m, unit)


@triton.jit(do_not_specialize=["steps", "batch"])
def reverse_vector(
    grad_m,
    slope_1,
    slope_2,
    g_all,
    carry,
    kappa,
    w_m,
    w_2t,
    steps,
    batch,
    D_M: tl.constexpr,
    D_1: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    unit, tile = i < D_M, j[:, None] * D_M + i[None, :]
    k = tl.load(kappa + i, unit, 0.0)
    c_i = tl.load(carry + n * D_M + i, unit, 0.0)
    last = tl.cast(steps - 1, tl.int64) * batch + n
    at_m, at_1 = last * D_M, last * D_1
    if HELD:
        hidden = j < D_1
        w_in = tl.load(w_m + tile, hidden[:, None] & unit[None, :], 0.0)
        w_out = tl.load(w_2t + tile, hidden[:, None] & unit[None, :], 0.0)
        s_1 = tl.load(slope_1 + at_1 + j, hidden, 0.0)
    d, s_2 = tl.load(grad_m + at_m + i, unit, 0.0), tl.load(slope_2 + at_m + i, unit, 0.0)
    for t in range(steps):
        g = d + c_i
        e_2 = s_2 * g
        tl.store(g_all + at_m + i, g, unit)
        tl.store(slope_2 + at_m + i, e_2, unit)
        at_m -= batch * D_M
        before = i < tl.minimum(steps - 1 - t, 1) * D_M
        d, s_2 = tl.load(grad_m + at_m + i, before, 0.0), tl.load(slope_2 + at_m + i, before, 0.0)
        if HELD:
            e_1 = tl.where(hidden, s_1 * tl.sum(w_out * e_2[None, :], 1), 0.0)
            tl.store(slope_1 + at_1 + j, e_1, hidden)
            at_1 -= batch * D_1
            s_1 = tl.load(slope_1 + at_1 + j, j < tl.minimum(steps - 1 - t, 1) * D_1, 0.0)
            back = tl.sum(w_in * e_1[:, None], 0)
        else:
            products = tl.zeros([CHUNK, WIDTH], g.dtype)
            for c in range(0, D_1, CHUNK):
                hidden = c + j < D_1
                w_in = tl.load(w_m + c * D_M + tile, hidden[:, None] & unit[None, :], 0.0)
                w_out = tl.load(w_2t + c * D_M + tile, hidden[:, None] & unit[None, :], 0.0)
                e_1 = tl.load(slope_1 + at_1 + c + j, hidden, 0.0) * tl.sum(w_out * e_2[None, :], 1)
                e_1 = tl.where(hidden, e_1, 0.0)
                tl.store(slope_1 + at_1 + c + j, e_1, hidden)
                products += w_in * e_1[:, None]
            back = tl.sum(products, 0)
            at_1 -= batch * D_1
        c_i = tl.where(unit, k * (g + back), 0.0)
    tl.store(carry + n * D_M + i, c_i, unit)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_tile(
    p,
    m_all,
    kappa,
    gain,
    w_mt,
    w_2t,
    b_2,
    steps,
    batch,
    D_M: tl.constexpr,
    D_1: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    SAMPLES: tl.constexpr,
    ACT: tl.constexpr,
    B: tl.constexpr,
    PRECISION: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    i, j = tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    unit, sample = i < D_M, n < batch
    here = sample[:, None] & unit[None, :]
    k, g = tl.load(kappa + i, unit, 0.0)[None, :], tl.load(gain + i, unit, 0.0)[None, :]
    bias = tl.load(b_2 + i, unit, 0.0)[None, :]
    m_t, p_t = m_all + n[:, None] * D_M + i[None, :], p + n[:, None] * D_1 + j[None, :]
    w_in_0, w_out_0 = w_mt + i[:, None] * D_1 + j[None, :], w_2t + j[:, None] * D_M + i[None, :]
    m = tl.load(m_t, here, 0.0)
    for _t in range(steps):
        u = k * m
        z = tl.zeros([SAMPLES, WIDTH], m.dtype)
        for c in range(0, D_1, CHUNK):
            hidden = c + j < D_1
            w_in = tl.load(w_in_0 + c, unit[:, None] & hidden[None, :], 0.0)
            w_out = tl.load(w_out_0 + c * D_M, hidden[:, None] & unit[None, :], 0.0)
            h = tl.load(p_t + c, sample[:, None] & hidden[None, :], 0.0)
            h += tl.dot(u, w_in, input_precision=PRECISION)
            h = tl.where(hidden[None, :], _activate(h, ACT), 0.0)
            z += tl.dot(h, w_out, input_precision=PRECISION)
        m = tl.where(here, u + g * _tanh(B * (z + bias)), 0.0)
        m_t += batch * D_M
        p_t += batch * D_1
        tl.store(m_t, m, here)


@triton.jit(do_not_specialize=["steps", "batch"])
def reverse_tile(
    grad_m,
    slope_1,
    slope_2,
    g_all,
    carry,
    kappa,
    w_m,
    w_2,
    steps,
    batch,
    D_M: tl.constexpr,
    D_1: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    i, j = tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    unit, sample = i < D_M, n < batch
    here = sample[:, None] & unit[None, :]
    k = tl.load(kappa + i, unit, 0.0)[None, :]
    first = n[:, None] * D_M + i[None, :]
    c_i = tl.load(carry + first, here, 0.0)
    at_m = tl.cast(steps - 1, tl.int64) * batch * D_M + first
    at_1 = (tl.cast(steps - 1, tl.int64) * batch + n[:, None]) * D_1 + j[None, :]
    w_out_0, w_in_0 = w_2 + i[:, None] * D_1 + j[None, :], w_m + j[:, None] * D_M + i[None, :]
    for _t in range(steps):
        g = tl.load(grad_m + at_m, here, 0.0) + c_i
        e_2 = tl.load(slope_2 + at_m, here, 0.0) * g
        tl.store(g_all + at_m, g, here)
        tl.store(slope_2 + at_m, e_2, here)
        back = tl.zeros([SAMPLES, WIDTH], g.dtype)
        for c in range(0, D_1, CHUNK):
            hidden = c + j < D_1
            there = sample[:, None] & hidden[None, :]
            w_out = tl.load(w_out_0 + c, unit[:, None] & hidden[None, :], 0.0)
            w_in = tl.load(w_in_0 + c * D_M, hidden[:, None] & unit[None, :], 0.0)
            e_1 = tl.load(slope_1 + at_1 + c, there, 0.0) * tl.dot(e_2, w_out, input_precision=PRECISION)
            e_1 = tl.where(there, e_1, 0.0)
            tl.store(slope_1 + at_1 + c, e_1, there)
            back += tl.dot(e_1, w_in, input_precision=PRECISION)
        c_i = tl.where(here, k * (g + back), 0.0)
        at_m -= batch * D_M
        at_1 -= batch * D_1
    tl.store(carry + first, c_i, here)
