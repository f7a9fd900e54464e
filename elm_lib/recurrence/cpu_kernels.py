"""The loops of `elm_lib.recurrence.cpu`, compiled by numba: eight samples at a time, or two where there are no more, features in the
lanes of a SIMD register.

numba gives LLVM scalar code to vectorise, which it does not do for small products; here the vector type is said. All that a kernel
calls is in this file, as numba's cache watches no other.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def _has_avx512() -> bool:
    try:
        return bool(binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # a platform on which LLVM cannot tell
        return False


LANES = 16 if _has_avx512() else 8  # float32 of a register
# samples of a block, for all of which a weight is loaded once -> registers side by side: as many sums at a time as a core has
# registers for, or as keep its multipliers busy
BLOCKS = {8: LANES // 8, 2: 4}
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
def add_product(typing, u, w, inner, out, block):
    """out += u w, summed in the order of the inner index: u (samples, at least inner), w (inner, J) as `cpu.packed` lays it out, out
    (samples, J), J a multiple of LANES. block: a tuple with an entry for each sample, as compiled code knows its length."""
    samples, widest = block.count, BLOCKS[block.count]

    def generate(context, builder, signature, arguments):
        u_, w_, out_ = (context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 1, 3))
        vector, width = _vector(context, signature.args[0].dtype), _bytes(context, signature.args[0].dtype)
        multiply_add = _function(builder, "fmuladd", vector, 3)
        inner, columns = arguments[2], cgutils.unpack_tuple(builder, out_.shape)[1]
        u_width = cgutils.unpack_tuple(builder, u_.shape)[1]

        def number(value):
            return ir.Constant(columns.type, value)

        def columns_at(first, last, blocks):
            """The sums of `blocks` registers of columns from each multiple of their width on."""
            with cgutils.for_range_slice(builder, first, last, number(blocks * LANES)) as (j, _):
                starts = [builder.add(j, number(LANES * k)) for k in range(blocks)]
                places = [
                    builder.bitcast(
                        builder.gep(out_.data, [builder.add(builder.mul(columns, number(s)), start)]), vector.as_pointer()
                    )
                    for s in range(samples)
                    for start in starts
                ]
                sums = [cgutils.alloca_once(builder, vector) for _ in places]
                for total, place in zip(sums, places):
                    builder.store(builder.load(place, align=width), total)
                bundle = builder.bitcast(builder.gep(w_.data, [builder.mul(j, inner)]), vector.as_pointer())
                with cgutils.for_range(builder, inner) as loop:
                    row = builder.mul(loop.index, number(blocks))
                    weights = [
                        builder.load(builder.gep(bundle, [builder.add(row, number(k))]), align=width) for k in range(blocks)
                    ]
                    for s in range(samples):
                        at = builder.add(builder.mul(u_width, number(s)), loop.index)
                        factors = _every_lane(builder, builder.load(builder.gep(u_.data, [at])))
                        for total, weight in zip(sums[s * blocks : (s + 1) * blocks], weights):
                            builder.store(builder.call(multiply_add, [factors, weight, builder.load(total)]), total)
                for total, place in zip(sums, places):
                    builder.store(builder.load(total), place, align=width)

        wide = number(widest * LANES)
        whole = builder.mul(builder.sdiv(columns, wide), wide)
        columns_at(number(0), whole, widest)
        if widest > 1:
            columns_at(whole, columns, 1)
        return context.get_dummy_value()

    return types.void(u, w, inner, out, block), generate


@intrinsic
def squash_lanes(typing, z, b):
    """z <- tanh(b z), float32, rows of a multiple of LANES: absolute error below 2e-7; NaN stays NaN."""

    def generate(context, builder, signature, arguments):
        if signature.args[0].dtype != types.float32:
            return context.get_dummy_value()  # `squash` is exact there
        z_ = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = _vector(context, signature.args[0].dtype)
        integers = ir.VectorType(ir.IntType(32), LANES)
        rows = builder.bitcast(z_.data, vector.as_pointer())
        factor = _every_lane(builder, arguments[1])
        registers = builder.sdiv(z_.nitems, ir.Constant(z_.nitems.type, LANES))
        floor, fabs, copysign = (
            _function(builder, *f) for f in (("floor", vector, 1), ("fabs", vector, 1), ("copysign", vector, 2))
        )
        fused = _function(builder, "fmuladd", vector, 3)

        def number(value):
            return ir.Constant(vector, [float(np.float32(value))] * LANES)

        def whole(value):
            return ir.Constant(integers, [value] * LANES)

        with cgutils.for_range(builder, registers) as loop:
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

    return types.void(z, b), generate


@njit(inline="always")
def squash(z, b, exact):
    """z <- tanh(b z): libm's tanh where `exact`."""
    if exact:
        for s in range(z.shape[0]):
            for i in range(z.shape[1]):
                z[s, i] = math.tanh(b * z[s, i])
    else:
        squash_lanes(z, b)


@compiled
def forward(p, m_all, batch, kappa, gain_a, w_mt, w_2t, b_2, silu, b, exact, block, first, last):
    """Samples first .. last, as many at a time as block has entries: rows t batch + n of m_all ((T + 1) B, d_m) from row n on; p (T B, d_1). w_mt (d_m, d_1) and
    w_2t (d_1, d_m) are packed."""
    d_1, d_m, samples = p.shape[1], m_all.shape[1], len(block)
    steps = p.shape[0] // batch
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z = np.zeros((2, samples, w_2t.size // d_1), p.dtype)
    h = np.zeros((samples, w_mt.size // d_m), p.dtype)
    for begin in range(first, last, samples):
        n = min(samples, last - begin)
        for t in range(steps):
            row = t * batch + begin
            for s in range(n):
                for i in range(d_m):
                    u[s, i] = kappa[i] * m_all[row + s, i]
                    z[s, i] = b_2[i]
                for j in range(d_1):
                    h[s, j] = p[row + s, j]
            add_product(u, w_mt, d_m, h, block)
            for s in range(n):
                for j in range(d_1):
                    if silu:
                        h[s, j] = h[s, j] / (one + math.exp(-h[s, j]))
                    else:
                        h[s, j] = zero if h[s, j] <= zero else h[s, j]
            add_product(h, w_2t, d_1, z, block)
            squash(z, b, exact)
            for s in range(n):
                for i in range(d_m):
                    m_all[row + batch + s, i] = u[s, i] + gain_a[i] * z[s, i]


@compiled
def reverse(
    p, m_prev, grad_m, carry, kappa, slope, w_m, w_2, b_2, w_mt, w_2t, silu, b, exact, h_all, e_2_all, grad_p, sums, block,
    first, last,
):  # fmt: skip
    """Back through time for samples first .. last. Rows t B + n: p, h_all, grad_p (T B, d_1), the others (T B, d_m); carry (B, d_m).

    Every step is done forward once more from m_prev. Fills h_all (what the second layer reads), e_2_all and grad_p (dL/d the
    outputs of the second and the first layer), sums (blocks, 2, d_m) float64 (dL/dkappa; the sum of g tanh), and leaves dL/dm_0
    in carry. w_m (d_1, d_m), w_2 (d_m, d_1) and their transposes are packed.
    """
    d_1, d_m, batch, samples = p.shape[1], m_prev.shape[1], carry.shape[0], len(block)
    steps = p.shape[0] // batch
    zero, one = kappa.dtype.type(0), kappa.dtype.type(1)
    u, z, c, e_2 = np.zeros((4, samples, w_2t.size // d_1), p.dtype)
    h, e_1 = np.zeros((2, samples, w_mt.size // d_m), p.dtype)
    steep = np.ones((samples, d_1), p.dtype)
    part = np.zeros((2, samples, d_m), p.dtype)
    for begin in range(first, last, samples):
        n, which = min(samples, last - begin), begin // samples
        for s in range(n):
            for i in range(d_m):
                c[s, i] = carry[begin + s, i]
        part[:] = zero
        for t in range(steps - 1, -1, -1):
            row = t * batch + begin
            for s in range(n):
                for i in range(d_m):
                    u[s, i] = kappa[i] * m_prev[row + s, i]
                    z[s, i] = b_2[i]
                    c[s, i] += grad_m[row + s, i]
                for j in range(d_1):
                    h[s, j] = p[row + s, j]
                    e_1[s, j] = zero
            add_product(u, w_mt, d_m, h, block)
            for s in range(n):
                for j in range(d_1):
                    if silu:
                        x = h[s, j]
                        sigma = one / (one + math.exp(-x))
                        steep[s, j] = sigma * (one + x * (one - sigma))
                        h[s, j] = x * sigma
                    else:
                        steep[s, j] = one if h[s, j] > zero else zero
                        h[s, j] = zero if h[s, j] <= zero else h[s, j]
                    h_all[row + s, j] = h[s, j]
            add_product(h, w_2t, d_1, z, block)
            squash(z, b, exact)
            for s in range(n):
                for i in range(d_m):
                    part[1, s, i] += c[s, i] * z[s, i]
                    e_2[s, i] = slope[i] * (one - z[s, i] * z[s, i]) * c[s, i]
                    e_2_all[row + s, i] = e_2[s, i]
            add_product(e_2, w_2, d_m, e_1, block)
            for s in range(n):
                for j in range(d_1):
                    e_1[s, j] *= steep[s, j]
                    grad_p[row + s, j] = e_1[s, j]
            add_product(e_1, w_m, d_1, c, block)
            for s in range(n):
                for i in range(d_m):
                    part[0, s, i] += m_prev[row + s, i] * c[s, i]
                    c[s, i] *= kappa[i]
            if t % STEPS == 0:
                for s in range(n):
                    for i in range(d_m):
                        for k in range(2):
                            sums[which, k, i] += part[k, s, i]
                part[:] = zero
        for s in range(n):
            for i in range(d_m):
                carry[begin + s, i] = c[s, i]
