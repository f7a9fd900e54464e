"""The loops of `elm_lib.kernels.network.engine_cpu`, compiled by numba.

Neurons lie in the last dimension of every array, so the inner loops run over neurons: the same arithmetic with other
weights, which LLVM turns into vector instructions. `constants`, of the dtype of all else,
are kappa_r, 1 - kappa_r, kappa_q, b of f(z) = a tanh(b z), 0, 1, 2, the sharpness of spikes, 1/2.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from elm_lib.kernels.recurrence.simd import LANES, Lanes
from elm_lib.support.compiled import njit_cached

TOGETHER = 4  # registers side by side: one sum after another would wait for the one before
# a x + b in one instruction, and no more of fast-math: a run that diverges has to show NaN
compiled = njit_cached(nogil=True, error_model="numpy", fastmath={"contract"})
summed = njit_cached(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})


@intrinsic
def tanh_of(typing, x, factor):
    """x = tanh(factor x) for all of a vector."""

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, ["x", "factor"])
        (row,), by = lanes.rows("x", 1), lanes.splat(lanes.arguments["factor"])
        lanes.each(
            lanes.width("x"),
            lambda at: lanes.store(lanes.tanh(builder.fmul(by, lanes.load(row, at))), row, at),
        )
        return context.get_dummy_value()

    return types.void(x, factor), generate


@summed
def dot(x, y):
    total = x[0] * y[0]
    for k in range(1, len(x)):
        total += x[k] * y[k]
    return total


@compiled
def activate(z, act, constants, h, slope):
    """h = act(z), slope = act'(z), of vectors; act by its place in `bptt.ACTIVATIONS`."""
    zero, one, two, half = constants[4], constants[5], constants[6], constants[8]
    if act == 0:
        for k in range(len(z)):
            h[k] = zero if z[k] <= zero else z[k]
            slope[k] = zero if z[k] <= zero else one
    elif act == 1:
        for k in range(len(z)):
            slope[k] = z[k]
        tanh_of(slope, half)
        for k in range(len(z)):
            sigma = half * slope[k] + half
            h[k] = z[k] * sigma
            slope[k] = sigma * (one + z[k] * (one - sigma))
    elif act == 2:
        for k in range(len(z)):
            h[k] = z[k]
            slope[k] = one
    else:
        for k in range(len(z)):
            positive = zero if z[k] <= zero else z[k]
            h[k] = positive * positive
            slope[k] = two * positive


@intrinsic
def add_products(typing, x, y, into):
    """into (N,) += the sum over r of x (R, N) y (R, N). Rows may lie apart; the sum stays in registers."""

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, ["x", "y", "into"])
        (out,), columns = lanes.rows("into", 1), lanes.width("into")
        left, right = lanes.array("x"), lanes.array("y")
        rows = cgutils.unpack_tuple(builder, left.shape)[0]
        apart = [cgutils.unpack_tuple(builder, array.strides)[0] for array in (left, right)]
        bytes_ = ir.IntType(8).as_pointer()
        wide = lanes.count(TOGETHER * LANES)
        up = builder.add(columns, builder.sub(wide, lanes.count(1)))
        padded = builder.mul(builder.sdiv(up, wide), wide)
        for _, registers in lanes.loops(columns, padded, TOGETHER):
            sums = [cgutils.alloca_once(builder, lanes.vector) for _ in registers]
            for at, total in zip(registers, sums):
                builder.store(lanes.load(out, at), total)
            with cgutils.for_range(builder, rows) as loop:
                starts = [
                    builder.bitcast(
                        builder.gep(builder.bitcast(array.data, bytes_), [builder.mul(loop.index, stride)]),
                        lanes.scalar.as_pointer(),
                    )
                    for array, stride in zip((left, right), apart)
                ]
                for at, total in zip(registers, sums):
                    one, other = (lanes.load(start, at) for start in starts)
                    builder.store(lanes.multiply_add(one, other, builder.load(total)), total)
            for at, total in zip(registers, sums):
                lanes.store(builder.load(total), out, at)
        return context.get_dummy_value()

    return types.void(x, y, into), generate


@compiled
def add_scaled(by, row, into):
    """into += by row, of vectors."""
    for k in range(len(into)):
        into[k] += by * row[k]


@compiled
def add_over(samples, first, x, y, into):
    """into (N,) += the sum over samples of x (B, N) y (B, N); x and y begin with sample `first`."""
    count = len(samples)
    if count > 0 and samples[count - 1] == first + count - 1:  # those that are left come first
        add_products(x[:count], y[:count], into)
        return
    for b in samples:
        add_products(x[b - first : b - first + 1], y[b - first : b - first + 1], into)


@compiled
def here(lengths, t, first, end, found):
    """How many of the samples first .. end - 1 have a step t; found begins with them."""
    count = 0
    for b in range(first, end):
        if t < lengths[b]:
            found[count] = b
            count += 1
    return count


@compiled
def second_layer(w_2, b_2, h, mask_z, scale, samples, first, f):
    """f = tanh(scale mask (W_2 h + b_2)), (samples, d_m, N). A row of weights is read once for all samples."""
    for i in range(len(w_2)):
        for b in samples:
            s = b - first
            into, mask = f[s, i], mask_z[b, i]
            into[:] = b_2[i]
            add_products(w_2[i], h[s], into)
            for k in range(len(into)):
                into[k] *= mask[k]
            tanh_of(into, scale)


@compiled
def forward(p, lengths, starts, masks, memory, layers, w_r, b_r, read, constants, act, output, kept, ends, first, end):
    """Forward in time for samples first .. end - 1, side by side: they share each row of weights that is loaded.

    p        (T, B, d_1, N)
    starts   m_0 (B, d_m, N), r_0, a_0 (B, N)
    masks    of what is sent (B, N), of z (B, d_m, N)
    memory   kappa_m and a gain (d_m, N)
    layers   w_m (d_1, d_m, N), W_2 (d_m, d_1, N), b_2 (d_m, N)
    read     (N, d_1 N); of no rows where there is no feedback
    kept     filled: z_1 (T, B, d_1, N), m (T + 1, B, d_m, N), x (T, B, N) which `out` reads, a (T, B, N), q (T, B, N)
    ends     filled: m, r, a, q after a sample's last step
    """
    m_0, r_0, a_0 = starts
    mask_a, mask_z = masks
    kappa, gain = memory
    w_m, w_2, b_2 = layers
    z_all, m_all, x_all, a_all, q_all = kept
    m_end, r_end, a_end, q_end = ends
    kappa_r, new_r, kappa_q, scale, zero, one = (
        constants[0],
        constants[1],
        constants[2],
        constants[3],
        constants[4],
        constants[5],
    )
    d_1, d_m, n = w_m.shape
    wide, longest = end - first, 0
    u, f = np.empty((wide, d_m, n), p.dtype), np.empty((wide, d_m, n), p.dtype)
    h, slope, y = np.empty((wide, d_1, n), p.dtype), np.empty(n, p.dtype), np.empty(n, p.dtype)
    found = np.empty(wide, np.int64)
    for b in range(first, end):
        m_all[0, b], r_end[b], a_end[b] = m_0[b], r_0[b], a_0[b]
        q_end[b, :] = zero
        longest = max(longest, lengths[b])
    for t in range(longest):
        samples = found[: here(lengths, t, first, end, found)]
        for b in samples:
            z_all[t, b] = p[t, b]
            if len(read) > 0:
                q, a = q_end[b], a_end[b]
                for j in range(n):
                    q[j] = (kappa_q * q[j] if kappa_q != zero else zero) + mask_a[b, j] * a[j]
                q_all[t, b] = q
        for j in range(len(read)):
            for b in samples:
                if q_end[b, j] != zero:
                    add_scaled(q_end[b, j], read[j], z_all[t, b].reshape(d_1 * n))
        for b in samples:
            for i in range(d_m):
                into, keeps, m = u[b - first, i], kappa[i], m_all[t, b, i]
                for k in range(n):
                    into[k] = keeps[k] * m[k]
        for o in range(d_1):
            for b in samples:
                add_products(w_m[o], u[b - first], z_all[t, b, o])
                activate(z_all[t, b, o], act, constants, h[b - first, o], slope)
        second_layer(w_2, b_2, h, mask_z, scale, samples, first, f)
        for b in samples:
            y[:] = zero
            for i in range(d_m):
                after, before, most, tanh, weight = (
                    m_all[t + 1, b, i],
                    u[b - first, i],
                    gain[i],
                    f[b - first, i],
                    w_r[i],
                )
                for k in range(n):
                    after[k] = before[k] + most[k] * tanh[k]
                    y[k] += weight[k] * after[k]
            r, x, a = r_end[b], x_all[t, b], a_end[b]
            for k in range(n):
                r[k] = kappa_r * r[k] + new_r * y[k]
                x[k] = y[k] - r[k] + b_r[k]
            if output == 0:
                a[:] = x
            elif output == 1:
                for k in range(n):
                    a[k] = zero if x[k] <= zero else x[k]
            else:
                for k in range(n):
                    a[k] = x[k] if x[k] != x[k] else (one if x[k] > zero else zero)
            a_all[t, b] = a
    for b in range(first, end):
        m_end[b] = m_all[lengths[b], b]
        for t in range(lengths[b], len(p)):
            a_all[t, b, :] = zero
            q_all[t, b, :] = zero


@compiled
def backward(
    lengths, grad_a, grad_ends, masks, memory, layers, w_r, read, constants, act, output, kept, grad_p, to_start, sums,
    first, end,
):  # fmt: skip
    """Back in time for samples first .. end - 1, side by side. Arrays as in `forward`; memory is kappa_m, a b gain.

    layers     w_m, W_2 and b_2, and both transposed: (d_m, d_1, N), (d_1, d_m, N)
    grad_ends  dL/d m, r, a, q after a sample's last step
    grad_p     filled: dL/dp (T, B, d_1, N), 0 after a sample's end
    to_start   filled: dL/d m_0, r_0, a_0
    sums       added to: dL/d kappa_m, the sum of g tanh, dL/d w_m, W_2, b_2, w_r, b_r
    """
    grad_m, grad_r, grad_last, grad_q = grad_ends
    mask_a, mask_z = masks
    kappa, steep = memory
    w_m, w_2, b_2, w_mt, w_2t = layers
    z_all, m_all, x_all, a_all, _ = kept
    m_start, r_start, a_start = to_start
    s_kappa, s_gain, s_m, s_2, s_b2, s_r, s_br = sums
    new_r, kappa_r, kappa_q, scale, zero, one, sharpness = (
        constants[1],
        constants[0],
        constants[2],
        constants[3],
        constants[4],
        constants[5],
        constants[7],
    )
    d_1, d_m, n = w_m.shape
    dtype, wide, longest = grad_p.dtype, end - first, 0
    u, f = np.empty((wide, d_m, n), dtype), np.empty((wide, d_m, n), dtype)
    g, e_2 = np.empty((wide, d_m, n), dtype), np.empty((wide, d_m, n), dtype)
    h, slope = np.empty((wide, d_1, n), dtype), np.empty((wide, d_1, n), dtype)
    c_q, dy, found = np.empty((wide, n), dtype), np.empty(n, dtype), np.empty(wide, np.int64)
    for b in range(first, end):
        m_start[b], r_start[b], a_start[b], c_q[b - first] = grad_m[b], grad_r[b], grad_last[b], grad_q[b]
        longest = max(longest, lengths[b])
        for t in range(lengths[b], len(grad_p)):
            grad_p[t, b, :] = zero
    for t in range(longest - 1, -1, -1):
        samples = found[: here(lengths, t, first, end, found)]
        for b in samples:
            for o in range(d_1):
                activate(z_all[t, b, o], act, constants, h[b - first, o], slope[b - first, o])
        second_layer(w_2, b_2, h, mask_z, scale, samples, first, f)
        for b in samples:
            s, x, c_r, grad, to_a = b - first, x_all[t, b], r_start[b], grad_a[t, b], a_start[b]
            for k in range(n):
                d = grad[k] + to_a[k]
                if output == 1:
                    d = zero if x[k] <= zero else d
                elif output == 2:
                    away = one + sharpness * abs(x[k])
                    d = d / (away * away)
                s_br[k] += d
                d_r = c_r[k] - d
                dy[k] = d + new_r * d_r
                c_r[k] = kappa_r * d_r
            for i in range(d_m):
                c_m, weight, tanh, mask = m_start[b, i], w_r[i], f[s, i], mask_z[b, i]
                gi, e, keeps, m = g[s, i], e_2[s, i], kappa[i], m_all[t, b, i]
                for k in range(n):
                    gi[k] = c_m[k] + weight[k] * dy[k]
                    e[k] = steep[i, k] * mask[k] * (one - tanh[k] * tanh[k]) * gi[k]
                    u[s, i, k] = keeps[k] * m[k]
                for k in range(n):
                    s_r[i, k] += m_all[t + 1, b, i, k] * dy[k]
                    s_b2[i, k] += e[k]
        for i in range(d_m):
            add_over(samples, first, g[:, i], f[:, i], s_gain[i])
        for o in range(d_1):
            for b in samples:
                e_1, steep_1 = grad_p[t, b, o], slope[b - first, o]
                e_1[:] = zero
                add_products(w_2t[o], e_2[b - first], e_1)
                for k in range(n):
                    e_1[k] *= steep_1[k]
        for i in range(d_m):
            for b in samples:
                add_products(w_mt[i], grad_p[t, b], g[b - first, i])
                c_m, back, keeps = m_start[b, i], g[b - first, i], kappa[i]
                for k in range(n):
                    c_m[k] = keeps[k] * back[k]
            add_over(samples, first, m_all[t, first:end, i], g[:, i], s_kappa[i])
        for o in range(d_1):
            for i in range(d_m):
                add_over(samples, first, grad_p[t, first:end, o], u[:, i], s_m[o, i])
                add_over(samples, first, e_2[:, i], h[:, o], s_2[i, o])
        for b in samples:
            a_start[b, :] = zero
        for j in range(len(read)):
            for b in samples:
                # a silent neuron behind a ReLU passes nothing on
                if kappa_q == zero and output == 1 and t > 0 and a_all[t - 1, b, j] == zero:
                    c_q[b - first, j] = zero
                    continue
                d = c_q[b - first, j] + dot(read[j], grad_p[t, b].reshape(d_1 * n))
                a_start[b, j] = mask_a[b, j] * d
                c_q[b - first, j] = kappa_q * d if kappa_q != zero else zero
