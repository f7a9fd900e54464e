"""The loops of `elm_lib.kernels.spikes` and `elm_lib.kernels.traces`, compiled by numba.

Every sum runs in the order written, on one thread. Rows of a (B, T, D) array lie in a 2-D array (B T, D), step t of
sample b in row b_stride b + t_stride t. So either time or the batch may come first.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from elm_lib.support.compiled import njit_cached

LANES = 8  # numbers of a SIMD register
BLOCK = 5  # registers of a row that stay loaded while its spikes are gone through
STRETCH = 32  # numbers compared with 0 at once: the bits of an int32
compiled = njit_cached(nogil=True, error_model="numpy")


def _over_spikes(gathers: bool):
    @intrinsic
    def move(typing, one, i, many, index, factor, first, last):
        """For the spikes first .. last - 1: one[i] += factor many[index], or many[index] += factor one[i].

        one, many (.., D); only the first D // LANES * LANES numbers of a row.
        """

        def generate(context, builder, signature, arguments):
            one_, many_, index_, factor_ = (
                context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 3, 4)
            )
            scalar = context.get_value_type(signature.args[0].dtype)
            width, vector = context.get_abi_sizeof(scalar), ir.VectorType(scalar, LANES)
            length = cgutils.unpack_tuple(builder, one_.shape)[1]
            multiply_add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f{8 * width}"
            )
            sums = [cgutils.alloca_once(builder, vector) for _ in range(BLOCK)]
            own = builder.gep(one_.data, [builder.mul(arguments[1], length)])

            def number(n):
                return ir.Constant(length.type, n)

            def at(row, d, k):
                return builder.bitcast(builder.gep(row, [builder.add(d, number(k * LANES))]), vector.as_pointer())

            def block(d, registers):
                for k in range(registers):
                    builder.store(builder.load(at(own, d, k), align=width), sums[k])
                with cgutils.for_range_slice(builder, arguments[5], arguments[6], number(1)) as (n, _):
                    row = builder.gep(many_.data, [builder.mul(builder.load(builder.gep(index_.data, [n])), length)])
                    value = builder.load(builder.gep(factor_.data, [n]))
                    value = builder.insert_element(
                        ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
                    )
                    value = builder.shuffle_vector(
                        value, value, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
                    )
                    for k in range(registers):
                        other, total = builder.load(at(row, d, k), align=width), builder.load(sums[k])
                        if gathers:
                            builder.store(builder.call(multiply_add, [value, other, total]), sums[k])
                        else:
                            builder.store(builder.call(multiply_add, [value, total, other]), at(row, d, k), align=width)
                if gathers:
                    for k in range(registers):
                        builder.store(builder.load(sums[k]), at(own, d, k), align=width)

            large = builder.mul(builder.sdiv(length, number(BLOCK * LANES)), number(BLOCK * LANES))
            whole = builder.mul(builder.sdiv(length, number(LANES)), number(LANES))
            with cgutils.for_range_slice(builder, number(0), large, number(BLOCK * LANES)) as (d, _):
                block(d, BLOCK)
            with cgutils.for_range_slice(builder, large, whole, number(LANES)) as (d, _):
                block(d, 1)
            return context.get_dummy_value()

        return types.void(one, types.intp, many, index, factor, types.intp, types.intp), generate

    return move


_add_rows, _add_to_rows = _over_spikes(True), _over_spikes(False)


@compiled
def gather(row_ptr, channel, value, weight, kappa, state, bias, out, b_stride, t_stride):
    """out = s_t + bias, where s_t = kappa s_{t-1} + the sum of value weight[channel] over the spikes of row b T + t.

    weight (C, D), kappa (D,), state (B, D): s_0, bias (D,), out (B T, D)
    """
    batch, width = state.shape
    steps, whole = out.shape[0] // max(batch, 1), width // LANES * LANES
    s = np.empty((1, width), state.dtype)
    for b in range(batch):
        for d in range(width):
            s[0, d] = state[b, d]
        for t in range(steps):
            for d in range(width):
                # without memory, an infinity of the step before must not become NaN
                s[0, d] = kappa[d] * s[0, d] if kappa[d] != 0 else kappa[d]
            first, last = row_ptr[b * steps + t], row_ptr[b * steps + t + 1]
            _add_rows(s, 0, weight, channel, value, first, last)
            if whole < width:
                for k in range(first, last):
                    for d in range(whole, width):
                        s[0, d] += value[k] * weight[channel[k], d]
            row = b_stride * b + t_stride * t
            for d in range(width):
                out[row, d] = s[0, d] + bias[d]


@compiled
def scatter(row_ptr, channel, value, grad, b_stride, t_stride, kappa, state, out):
    """The gradient of `gather`: of weight in out (C, D), to which it is added, of s_0 in state (B, D)."""
    batch, width = state.shape
    steps, whole = grad.shape[0] // max(batch, 1), width // LANES * LANES
    for b in range(batch):
        for d in range(width):
            state[b, d] = 0
        for t in range(steps - 1, -1, -1):
            row, spikes = b_stride * b + t_stride * t, b * steps + t
            for d in range(width):
                state[b, d] = grad[row, d] + (kappa[d] * state[b, d] if kappa[d] != 0 else kappa[d])
            first, last = row_ptr[spikes], row_ptr[spikes + 1]
            _add_to_rows(state, b, out, channel, value, first, last)
            if whole < width:
                for k in range(first, last):
                    for d in range(whole, width):
                        out[channel[k], d] += value[k] * state[b, d]
        for d in range(width):
            state[b, d] *= kappa[d]


@compiled
def leak(inputs, in_b, in_t, kappa, state, out, out_b, out_t, backwards):
    """s_t = kappa s_{t-1} + i_t, from the first step on or, `backwards`, from the last.

    inputs, out (B T, D), state (B, D): s_0
    """
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
    """out[b, channel] += decay[t] value, over the spikes of row b T + t; out (B, C).

    decay (B, T), or (1, T) for all samples
    """
    steps = decay.shape[1]
    for b in range(out.shape[0]):
        own = b if decay.shape[0] > 1 else 0
        for t in range(steps):
            row = b * steps + t
            for k in range(row_ptr[row], row_ptr[row + 1]):
                out[b, channel[k]] += decay[own, t] * value[k]


@intrinsic
def _non_zero(typing, x, row, first):
    """Which numbers first .. first + STRETCH - 1 of a row of x (rows, C) are not 0 (NaN is not): a bit each, int32."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        length = cgutils.unpack_tuple(builder, array.shape)[1]
        scalar = context.get_value_type(signature.args[0].dtype)
        vector = ir.VectorType(scalar, STRETCH)
        start = builder.gep(array.data, [builder.add(builder.mul(arguments[1], length), arguments[2])])
        numbers = builder.load(builder.bitcast(start, vector.as_pointer()), align=context.get_abi_sizeof(scalar))
        differ = builder.fcmp_unordered("!=", numbers, ir.Constant(vector, [0.0] * STRETCH))
        return builder.bitcast(differ, ir.IntType(32))

    return types.int32(x, types.intp, types.intp), generate


@intrinsic
def _lowest_bit(typing, bits):
    """Place of the lowest bit of an int32 that is not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int32(types.int32), generate


@compiled
def find(x, row_ptr, channel, value):
    """The numbers of x (rows, C) that are not 0, NaN among them, row by row. False: channel has no room for them."""
    n, whole = 0, x.shape[1] // STRETCH * STRETCH
    for row in range(x.shape[0]):
        if n + x.shape[1] > len(channel):
            return False
        for start in range(0, whole, STRETCH):
            bits = _non_zero(x, row, start)
            while bits != 0:
                c = start + _lowest_bit(bits)
                channel[n] = c
                value[n] = x[row, c]
                n += 1
                bits &= np.int32(bits - np.int32(1))
        for c in range(whole, x.shape[1]):
            if x[row, c] != 0:
                channel[n] = c
                value[n] = x[row, c]
                n += 1
        row_ptr[row + 1] = n
    return True
