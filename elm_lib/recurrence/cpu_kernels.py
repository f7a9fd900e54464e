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

LANES = 8  # samples of a block: one AVX register of float32
ROWS = 8  # rows of the matrix at a time, each with its own accumulator
STEPS = 64  # summed in float32 before they are added to a float64

compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
# a fused multiply-add is allowed; a diverging run has to show NaN, so "nnan" and "ninf" are not
INDEX = ir.IntType(32)


def _vector(context, dtype) -> ir.VectorType:
    return ir.VectorType(context.get_value_type(dtype), LANES)


def _bytes(context, dtype) -> int:
    return context.get_abi_sizeof(context.get_value_type(dtype))


def _function(builder, name: str, vector: ir.VectorType, n_arguments: int):
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    kind = ir.FunctionType(vector, [vector] * n_arguments)
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f{bits}")


def _every_lane(builder, value):
    vector = ir.VectorType(value.type, LANES)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(INDEX, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))


@intrinsic
def add_product(typing, w, u, out):
    """out += w u, summed in the order of the inner index: w (J, I), J a multiple of ROWS; u (I, LANES); out (J, LANES)."""

    def generate(context, builder, signature, arguments):
        w_, u_, out_ = (context.make_array(t)(context, builder, a) for t, a in zip(signature.args, arguments))
        rows, inner = cgutils.unpack_tuple(builder, w_.shape)
        vector, width = _vector(context, signature.args[0].dtype), _bytes(context, signature.args[0].dtype)
        multiply_add = _function(builder, "fmuladd", vector, 3)
        u_rows, out_rows = (builder.bitcast(a.data, vector.as_pointer()) for a in (u_, out_))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(ROWS)]
        zero, step = ir.Constant(rows.type, 0), ir.Constant(rows.type, ROWS)
        with cgutils.for_range_slice(builder, zero, rows, step) as (j, _):
            places = [builder.add(j, ir.Constant(rows.type, k)) for k in range(ROWS)]
            firsts = [builder.mul(place, inner) for place in places]
            for total, place in zip(sums, places):
                builder.store(builder.load(builder.gep(out_rows, [place]), align=width), total)
            with cgutils.for_range(builder, inner) as loop:
                u_row = builder.load(builder.gep(u_rows, [loop.index]), align=width)
                for total, first in zip(sums, firsts):
                    weight = builder.load(builder.gep(w_.data, [builder.add(first, loop.index)]))
                    factors = _every_lane(builder, weight)
                    builder.store(builder.call(multiply_add, [factors, u_row, builder.load(total)]), total)
            for total, place in zip(sums, places):
                builder.store(builder.load(total), builder.gep(out_rows, [place]), align=width)
        return context.get_dummy_value()

    return types.void(w, u, out), generate


def _transposed(builder, rows: list) -> list:
    """Eight vectors of eight, rows for columns: each stage exchanges blocks of 1, 2, 4 with the neighbour across the diagonal."""
    for s in (1, 2, 4):
        for i in range(LANES):
            if not i & s:
                a, b = rows[i], rows[i + s]
                upper = [j if not j & s else LANES + j - s for j in range(LANES)]
                lower = [j + s if not j & s else LANES + j for j in range(LANES)]
                rows[i], rows[i + s] = (
                    builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INDEX, LANES), order))
                    for order in (upper, lower)
                )
    return rows


def _block_mover(inwards: bool):
    @intrinsic
    def move(typing, array, row, lanes):
        """Rows row .. row + LANES - 1 of array (N, J), J // LANES * LANES numbers of each, from or to lanes (J.., LANES)."""

        def generate(context, builder, signature, arguments):
            array_, lanes_ = (context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2))
            length = cgutils.unpack_tuple(builder, array_.shape)[1]
            vector, width = _vector(context, signature.args[0].dtype), _bytes(context, signature.args[0].dtype)
            zero, step = ir.Constant(length.type, 0), ir.Constant(length.type, LANES)
            whole = builder.mul(builder.sdiv(length, step), step)
            table = builder.bitcast(lanes_.data, vector.as_pointer())
            starts = [
                builder.gep(array_.data, [builder.mul(builder.add(arguments[1], ir.Constant(length.type, k)), length)])
                for k in range(LANES)
            ]
            with cgutils.for_range_slice(builder, zero, whole, step) as (j, _):
                outside = [builder.bitcast(builder.gep(start, [j]), vector.as_pointer()) for start in starts]
                inside = [builder.gep(table, [builder.add(j, ir.Constant(length.type, k))]) for k in range(LANES)]
                source, target = (outside, inside) if inwards else (inside, outside)
                moved = _transposed(builder, [builder.load(pointer, align=width) for pointer in source])
                for pointer, value in zip(target, moved):
                    builder.store(value, pointer, align=width)
            return context.get_dummy_value()

        return types.void(array, types.intp, lanes), generate

    return move


_blocks_in, _blocks_out = _block_mover(True), _block_mover(False)


@njit(inline="always")
def take(array, row, n, lanes):
    """lanes[j, k] = array[row + k, j] for n samples k."""
    whole = 0
    if n == LANES:
        _blocks_in(array, row, lanes)
        whole = array.shape[1] // LANES * LANES
    for k in range(n):
        for j in range(whole, array.shape[1]):
            lanes[j, k] = array[row + k, j]


@njit(inline="always")
def give(lanes, n, array, row):
    """array[row + k, j] = lanes[j, k] for n samples k."""
    whole = 0
    if n == LANES:
        _blocks_out(array, row, lanes)
        whole = array.shape[1] // LANES * LANES
    for k in range(n):
        for j in range(whole, array.shape[1]):
            array[row + k, j] = lanes[j, k]


@intrinsic
def squash_lanes(typing, z, d_m, b):
    """z <- tanh(b z) in its first d_m rows, float32: absolute error below 2e-7; NaN stays NaN."""

    def generate(context, builder, signature, arguments):
        if signature.args[0].dtype != types.float32:
            return context.get_dummy_value()  # `squash` is exact there
        z_ = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = _vector(context, signature.args[0].dtype)
        integers = ir.VectorType(ir.IntType(32), LANES)
        rows = builder.bitcast(z_.data, vector.as_pointer())
        factor = _every_lane(builder, arguments[2])
        floor, fabs, copysign = (
            _function(builder, *f) for f in (("floor", vector, 1), ("fabs", vector, 1), ("copysign", vector, 2))
        )
        fused = _function(builder, "fmuladd", vector, 3)

        def number(value):
            return ir.Constant(vector, [float(np.float32(value))] * LANES)

        def whole(value):
            return ir.Constant(integers, [value] * LANES)

        with cgutils.for_range(builder, arguments[1]) as loop:
            place = builder.gep(rows, [loop.index])
            x = builder.fmul(builder.load(place, align=4), factor)
            a = builder.call(fabs, [x])
            a = builder.select(
                builder.fcmp_ordered(">", a, number(9.0)), number(9.0), a
            )  # 1 to the last bit from there on
            y = builder.fadd(a, a)
            n = builder.call(floor, [builder.call(fused, [y, number(1.4426950408889634), number(0.5)])])
            n = builder.select(builder.fcmp_ordered("ord", n, n), n, number(0.0))  # f carries the NaN
            f = builder.call(fused, [n, number(-0.6931471805599453), y])
            series = number(1 / 5040)
            for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
                series = builder.call(fused, [f, series, number(coefficient)])
            exponent = builder.shl(builder.add(builder.fptosi(n, integers), whole(127)), whole(23))
            e = builder.fmul(series, builder.bitcast(exponent, vector))  # e^2|x|
            t = builder.fsub(number(1.0), builder.fdiv(number(2.0), builder.fadd(e, number(1.0))))
            builder.store(builder.call(copysign, [t, x]), place, align=4)
        return context.get_dummy_value()

    return types.void(z, d_m, b), generate


@njit(inline="always")
def squash(z, d_m, b, exact):
    """z <- tanh(b z) in its first d_m rows: libm's tanh where `exact`."""
    if exact:
        for i in range(d_m):
            for k in range(LANES):
                z[i, k] = math.tanh(b * z[i, k])
    else:
        squash_lanes(z, d_m, b)


@compiled
def forward(p, m_all, batch, kappa, gain_a, w_m, w_2, b_2, silu, b, exact, first, last):
    """Samples first .. last: rows t batch + n of m_all ((T + 1) B, d_m) from row n on; p (T B, d_1). w_m (d_1, d_m) and
    w_2 (d_m, d_1) have padded rows."""
    d_1, d_m = p.shape[1], m_all.shape[1]
    steps = p.shape[0] // batch
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((d_m, LANES), p.dtype), np.zeros((w_2.shape[0], LANES), p.dtype)
    h, m = np.zeros((w_m.shape[0], LANES), p.dtype), np.zeros((d_m, LANES), p.dtype)
    hidden = h[:d_1]
    for begin in range(first, last, LANES):
        lanes = min(LANES, last - begin)
        take(m_all, begin, lanes, m)
        for t in range(steps):
            row = t * batch + begin
            for i in range(d_m):
                for k in range(LANES):
                    u[i, k] = kappa[i] * m[i, k]
                    z[i, k] = b_2[i]
            take(p, row, lanes, h)
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
            give(m, lanes, m_all, row + batch)


@compiled
def reverse(
    p, m_prev, grad_m, carry, kappa, slope, w_m, w_2, b_2, w_mt, w_2t, silu, b, exact, h_all, e_2_all, grad_p, sums, first, last
):  # fmt: skip
    """Back through time for samples first .. last. Rows t B + n: p, h_all, grad_p (T B, d_1), the others (T B, d_m); carry (B, d_m).

    Every step is done forward once more from m_prev. Fills h_all (what the second layer reads), e_2_all and grad_p (dL/d the
    outputs of the second and the first layer), sums (blocks, 2, d_m) float64 (dL/dkappa; the sum of g tanh), and leaves dL/dm_0
    in carry. w_m, w_2 and their transposes have padded rows.
    """
    d_1, d_m, batch = p.shape[1], m_prev.shape[1], carry.shape[0]
    steps = p.shape[0] // batch
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    m, u, g, e_2 = np.zeros((4, d_m, LANES), p.dtype)
    z, c = np.zeros((w_2.shape[0], LANES), p.dtype), np.zeros((w_mt.shape[0], LANES), p.dtype)
    h, e_1 = np.zeros((w_m.shape[0], LANES), p.dtype), np.zeros((w_2t.shape[0], LANES), p.dtype)
    steep = np.ones((d_1, LANES), p.dtype)
    part = np.zeros((2, d_m, LANES), p.dtype)
    hidden, errors = h[:d_1], e_1[:d_1]
    for begin in range(first, last, LANES):
        lanes, block = min(LANES, last - begin), begin // LANES
        c[:] = zero
        take(carry, begin, lanes, c[:d_m])
        part[:] = zero
        for t in range(steps - 1, -1, -1):
            row = t * batch + begin
            take(m_prev, row, lanes, m)
            take(p, row, lanes, h)
            take(grad_m, row, lanes, g)
            for i in range(d_m):
                for k in range(LANES):
                    u[i, k] = kappa[i] * m[i, k]
                    z[i, k] = b_2[i]
                    g[i, k] += c[i, k]
            add_product(w_m, u, h)
            if silu:
                for j in range(d_1):
                    for k in range(LANES):
                        x = h[j, k]
                        sigma = one / (one + math.exp(-x))
                        steep[j, k] = sigma * (one + x * (one - sigma))
                        h[j, k] = x * sigma
            else:
                for j in range(d_1):
                    for k in range(LANES):
                        steep[j, k] = one if h[j, k] > zero else zero
                        h[j, k] = zero if h[j, k] <= zero else h[j, k]
            give(hidden, lanes, h_all, row)
            add_product(w_2, hidden, z)
            squash(z, d_m, b, exact)
            for i in range(d_m):
                for k in range(LANES):
                    part[1, i, k] += g[i, k] * z[i, k]
                    e_2[i, k] = slope[i] * (one - z[i, k] * z[i, k]) * g[i, k]
                    c[i, k] = g[i, k]
            give(e_2, lanes, e_2_all, row)
            e_1[:] = zero
            add_product(w_2t, e_2, e_1)
            for j in range(d_1):
                for k in range(LANES):
                    e_1[j, k] *= steep[j, k]
            give(errors, lanes, grad_p, row)
            add_product(w_mt, errors, c)
            for i in range(d_m):
                for k in range(LANES):
                    part[0, i, k] += m[i, k] * c[i, k]
                    c[i, k] *= kappa[i]
            if t % STEPS == 0:
                for s in range(2):
                    for i in range(d_m):
                        for k in range(lanes):
                            sums[block, s, i] += part[s, i, k]
                part[:] = zero
        give(c[:d_m], lanes, carry, begin)
