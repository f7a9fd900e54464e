"""The loops of `elm_lib.recurrence.cpu`, compiled by numba: eight samples side by side in the lanes of a SIMD register.

numba gives LLVM scalar code to vectorise, which it does not do for small products; here the vector type is said. All that a kernel
calls is in this file, as numba's cache watches no other.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import float32 as f32
from numpy import int32 as i32

LANES = 8  # samples of a block: one AVX register of float32
ROWS = 8  # rows of the matrix at a time, each with its own accumulator

compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
# a fused multiply-add is allowed; a diverging run has to show NaN, so "nnan" and "ninf" are not
inlined = njit(forceinline=True, fastmath={"contract"}, error_model="numpy", boundscheck=False)


@intrinsic
def add_product(typing, w, u, out):
    """out += w u, summed in the order of the inner index: w (J, I), J a multiple of ROWS; u (I, LANES); out (J, LANES)."""

    def generate(context, builder, signature, arguments):
        w_, u_, out_ = (context.make_array(t)(context, builder, a) for t, a in zip(signature.args, arguments))
        rows, inner = cgutils.unpack_tuple(builder, w_.shape)
        scalar = context.get_value_type(signature.args[0].dtype)
        vector = ir.VectorType(scalar, LANES)
        width = context.get_abi_sizeof(scalar)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f{8 * width}"
        )
        u_rows, out_rows = (builder.bitcast(a.data, vector.as_pointer()) for a in (u_, out_))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(ROWS)]
        zero, step = ir.Constant(rows.type, 0), ir.Constant(rows.type, ROWS)

        def every_lane(value):
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)

        with cgutils.for_range_slice(builder, zero, rows, step) as (j, _):
            places = [builder.add(j, ir.Constant(rows.type, k)) for k in range(ROWS)]
            firsts = [builder.mul(place, inner) for place in places]
            for total, place in zip(sums, places):
                builder.store(builder.load(builder.gep(out_rows, [place]), align=width), total)
            with cgutils.for_range(builder, inner) as loop:
                u_row = builder.load(builder.gep(u_rows, [loop.index]), align=width)
                for total, first in zip(sums, firsts):
                    weight = builder.load(builder.gep(w_.data, [builder.add(first, loop.index)]))
                    builder.store(builder.call(multiply_add, [every_lane(weight), u_row, builder.load(total)]), total)
            for total, place in zip(sums, places):
                builder.store(builder.load(total), builder.gep(out_rows, [place]), align=width)
        return context.get_dummy_value()

    return types.void(w, u, out), generate


@inlined
def tanh(x):
    """tanh of a float32, absolute error below 2e-7; NaN stays NaN."""
    a = abs(x)
    a = f32(9.0) if a > f32(9.0) else a  # 1 to the last bit from there on
    y = f32(2.0) * a
    n = np.floor(y * f32(1.4426950408889634) + f32(0.5))
    f = y - n * f32(0.6931471805599453)
    series = f32(1 / 120) + f * (f32(1 / 720) + f * f32(1 / 5040))
    series = f32(0.5) + f * (f32(1 / 6) + f * (f32(1 / 24) + f * series))
    e = (f32(1.0) + f * (f32(1.0) + f * series)) * i32((i32(n) + i32(127)) << i32(23)).view(f32)  # e^2|x|
    t = f32(1.0) - f32(2.0) / (e + f32(1.0))
    return -t if x < f32(0.0) else t


@inlined
def squash(z, d_m, b, exact):
    """z <- tanh(b z) in its first d_m rows: libm's tanh where `exact`."""
    if exact:
        for i in range(d_m):
            for k in range(LANES):
                z[i, k] = math.tanh(b * z[i, k])
    else:
        for i in range(d_m):
            for k in range(LANES):
                z[i, k] = tanh(b * z[i, k])


@compiled
def forward(p, m_all, kappa, gain_a, w_m, w_2, b_2, silu, b, exact, first, last):
    """Samples first .. last of m_all (T + 1, B, d_m); w_m (d_1, d_m) and w_2 (d_m, d_1) have padded rows."""
    steps, _, d_1 = p.shape
    d_m = m_all.shape[2]
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((d_m, LANES), p.dtype), np.zeros((w_2.shape[0], LANES), p.dtype)
    h, m = np.zeros((w_m.shape[0], LANES), p.dtype), np.zeros((d_m, LANES), p.dtype)
    hidden = h[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                m[i, k] = m_all[0, begin + k, i]
        for t in range(steps):
            for i in range(d_m):
                for k in range(LANES):
                    u[i, k] = kappa[i] * m[i, k]
                    z[i, k] = b_2[i]
            for k in range(lanes):
                for j in range(d_1):
                    h[j, k] = p[t, begin + k, j]
            add_product(w_m, u, h)
            for j in range(d_1):
                for k in range(LANES):
                    if silu:
                        h[j, k] = h[j, k] / (one + math.exp(-h[j, k]))
                    else:
                        h[j, k] = zero if h[j, k] <= zero else h[j, k]
            add_product(w_2, hidden, z)
            squash(z, d_m, b, exact)
            for i in range(d_m):
                for k in range(LANES):
                    m[i, k] = u[i, k] + gain_a[i] * z[i, k]
            for k in range(lanes):
                for i in range(d_m):
                    m_all[t + 1, begin + k, i] = m[i, k]


@compiled
def activations(
    p, m_prev, kappa, slope, w_m, w_2, b_2, silu, b, exact, u_all, h_all, slope_1, slope_2, tanh_all, first, last
):
    """Rows first .. last, any step of any sample: all that the forward step computes from m, and its slopes."""
    d_1, d_m = p.shape[1], m_prev.shape[1]
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((d_m, LANES), p.dtype), np.zeros((w_2.shape[0], LANES), p.dtype)
    h = np.zeros((w_m.shape[0], LANES), p.dtype)
    hidden = h[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                value = kappa[i] * m_prev[begin + k, i]
                u[i, k] = value
                u_all[begin + k, i] = value
            for j in range(d_1):
                h[j, k] = p[begin + k, j]
        for i in range(d_m):
            for k in range(LANES):
                z[i, k] = b_2[i]
        add_product(w_m, u, h)
        for k in range(lanes):
            for j in range(d_1):
                x = h[j, k]
                if silu:
                    sigma = one / (one + math.exp(-x))
                    slope_1[begin + k, j] = sigma * (one + x * (one - sigma))
                    x = x * sigma
                else:
                    slope_1[begin + k, j] = one if x > zero else zero
                    x = zero if x <= zero else x
                h[j, k] = x
                h_all[begin + k, j] = x
        add_product(w_2, hidden, z)
        squash(z, d_m, b, exact)
        for k in range(lanes):
            for i in range(d_m):
                tanh_all[begin + k, i] = z[i, k]
                slope_2[begin + k, i] = slope[i] * (one - z[i, k] * z[i, k])


@compiled
def reverse(grad_m, slope_1, slope_2, g_all, carry, kappa, w_mt, w_2t, first, last):
    """Samples first .. last; w_mt (d_m, d_1) and w_2t (d_1, d_m) have padded rows."""
    steps, _, d_m = grad_m.shape
    d_1 = slope_1.shape[2]
    e_2 = np.zeros((d_m, LANES), grad_m.dtype)
    e_1, c = np.zeros((w_2t.shape[0], LANES), grad_m.dtype), np.zeros((w_mt.shape[0], LANES), grad_m.dtype)
    hidden = e_1[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        for k in range(lanes):
            for i in range(d_m):
                c[i, k] = carry[begin + k, i]
        for t in range(steps - 1, -1, -1):
            for k in range(lanes):
                n = begin + k
                for i in range(d_m):
                    g = grad_m[t, n, i] + c[i, k]
                    c[i, k] = g
                    g_all[t, n, i] = g
                    e = slope_2[t, n, i] * g
                    slope_2[t, n, i] = e
                    e_2[i, k] = e
            e_1[:] = 0
            add_product(w_2t, e_2, e_1)
            for k in range(lanes):
                n = begin + k
                for j in range(d_1):
                    e = slope_1[t, n, j] * e_1[j, k]
                    slope_1[t, n, j] = e
                    e_1[j, k] = e
            add_product(w_mt, hidden, c)
            for i in range(d_m):
                for k in range(LANES):
                    c[i, k] *= kappa[i]
        for k in range(lanes):
            for i in range(d_m):
                carry[begin + k, i] = c[i, k]
