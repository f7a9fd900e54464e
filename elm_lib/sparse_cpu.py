"""The loops of `elm_lib.sparse` and `elm_lib.traces`, compiled by numba. Every sum runs in the order written, on one thread.

Rows of a (B, T, D) array lie in a 2-D array (B T, D): row b_stride b + t_stride t, so that time may come first or the batch.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
compiled = njit(cache=True, nogil=True, error_model="numpy")


@intrinsic
def add_scaled(typing, out, i, rows, j, factor):
    """out[i] += factor rows[j] for C-contiguous (.., D), in vectors of LANES: the first D // LANES * LANES numbers."""

    def generate(context, builder, signature, arguments):
        out_, rows_ = (context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2))
        scalar = context.get_value_type(signature.args[0].dtype)
        width = context.get_abi_sizeof(scalar)
        vector = ir.VectorType(scalar, LANES)
        length = cgutils.unpack_tuple(builder, rows_.shape)[1]

        def start(array, index):
            return builder.gep(array.data, [builder.mul(index, length)])

        to, source = start(out_, arguments[1]), start(rows_, arguments[3])
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[4], ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        factors = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)
        zero, step = ir.Constant(length.type, 0), ir.Constant(length.type, LANES)
        whole = builder.mul(builder.sdiv(length, step), step)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f{8 * width}"
        )
        with cgutils.for_range_slice(builder, zero, whole, step) as (d, _):
            a, b = (builder.bitcast(builder.gep(p, [d]), vector.as_pointer()) for p in (to, source))
            total = builder.call(multiply_add, [factors, builder.load(b, align=width), builder.load(a, align=width)])
            builder.store(total, a, align=width)
        return context.get_dummy_value()

    return types.void(out, types.intp, rows, types.intp, rows.dtype), generate


@njit(inline="always")
def _add_row(out, i, rows, j, factor):
    add_scaled(out, i, rows, j, factor)
    for d in range(rows.shape[1] // LANES * LANES, rows.shape[1]):
        out[i, d] += factor * rows[j, d]


@compiled
def gather(row_ptr, channel, value, weight, kappa, state, out, b_stride, t_stride):
    """s_t = kappa s_{t-1} + the sum of value weight[channel] over the spikes of row b T + t; out has s_1 .. s_T.

    weight (C, D), kappa (D,), state (B, D): s_0, out (B T, D)
    """
    batch, width = state.shape
    steps = out.shape[0] // max(batch, 1)
    for b in range(batch):
        for t in range(steps):
            row, spikes = b_stride * b + t_stride * t, b * steps + t
            if t == 0:
                for d in range(width):
                    out[row, d] = kappa[d] * state[b, d]
            else:
                for d in range(width):
                    out[row, d] = kappa[d] * out[row - t_stride, d]
            for k in range(row_ptr[spikes], row_ptr[spikes + 1]):
                _add_row(out, row, weight, channel[k], value[k])


@compiled
def scatter(row_ptr, channel, value, grad, b_stride, t_stride, kappa, state, out):
    """The gradient of `gather`: of weight in out (C, D), to which it is added, of s_0 in state (B, D)."""
    batch, width = state.shape
    steps = grad.shape[0] // max(batch, 1)
    for b in range(batch):
        for d in range(width):
            state[b, d] = 0
        for t in range(steps - 1, -1, -1):
            row, spikes = b_stride * b + t_stride * t, b * steps + t
            for d in range(width):
                state[b, d] = grad[row, d] + kappa[d] * state[b, d]
            for k in range(row_ptr[spikes], row_ptr[spikes + 1]):
                _add_row(out, channel[k], state, b, value[k])
        for d in range(width):
            state[b, d] *= kappa[d]


@compiled
def leak(inputs, in_b, in_t, kappa, state, out, out_b, out_t, backwards):
    """s_t = kappa s_{t-1} + i_t, from the first step on or, `backwards`, from the last; inputs, out (B T, D), state (B, D): s_0."""
    batch, width = state.shape
    steps = out.shape[0] // max(batch, 1)
    for b in range(batch):
        for n in range(steps):
            t = steps - 1 - n if backwards else n
            row, source = out_b * b + out_t * t, in_b * b + in_t * t
            if n == 0:
                for d in range(width):
                    out[row, d] = kappa[d] * state[b, d] + inputs[source, d]
            else:
                before = row + out_t if backwards else row - out_t
                for d in range(width):
                    out[row, d] = kappa[d] * out[before, d] + inputs[source, d]


@compiled
def decayed_sum(row_ptr, channel, value, decay, out):
    """out[b, channel] += decay[t] value, over the spikes of row b T + t; decay (T,), out (B, C)."""
    steps = decay.shape[0]
    for b in range(out.shape[0]):
        for t in range(steps):
            row = b * steps + t
            for k in range(row_ptr[row], row_ptr[row + 1]):
                out[b, channel[k]] += decay[t] * value[k]


@compiled
def find(x, row_ptr, channel, value):
    """The non-zero numbers of x (rows, C), NaN included, row by row; False when there are more than channel has room for."""
    n = 0
    for row in range(x.shape[0]):
        some = 0
        for c in range(x.shape[1]):
            some += np.int32(x[row, c] != 0)
        if n + some > len(channel):
            return False
        if some:
            for c in range(x.shape[1]):
                if x[row, c] != 0:
                    channel[n] = c
                    value[n] = x[row, c]
                    n += 1
        row_ptr[row + 1] = n
    return True
