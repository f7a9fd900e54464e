"""Eight samples side by side in the lanes of a SIMD register: the product and the tanh that `cpu` is made of.

numba gives LLVM scalar code to vectorise, which it does not do for small products; here the vector type is said.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import float32 as f32
from numpy import int32 as i32

LANES = 8  # samples of a block: one AVX register of float32
ROWS = 8  # rows of the matrix at a time, each with its own accumulator

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


def padded(matrix: np.ndarray) -> np.ndarray:
    """The matrix with zero rows added up to a multiple of ROWS, contiguous."""
    more = -len(matrix) % ROWS
    return np.ascontiguousarray(np.pad(matrix, ((0, more), (0, 0))) if more else matrix)
