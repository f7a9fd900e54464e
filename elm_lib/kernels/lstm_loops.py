"""The loops of `elm_lib.kernels.lstm`, compiled by numba, with the code generator of the neuron's loops.

Samples are taken together as in `elm_lib.kernels.recurrence.simd`: each weight that is loaded serves all of a block.
Row t B + b belongs to step t of sample b. Rows of four gates hold i, f, g and o, n units each.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from elm_lib.kernels.recurrence import simd
from elm_lib.kernels.recurrence.simd import At, Lanes
from elm_lib.support.compiled import njit_cached

compiled = njit_cached(nogil=True, error_model="numpy", uses=(simd,))


def _gates(lanes: Lanes, n, at: At) -> list[At]:
    """Where the four gates of the units `at` stand in a row."""
    return [At(lanes.builder.add(at.column, lanes.builder.mul(n, lanes.count(k))), at.mask) for k in range(4)]


def _sigmoid(lanes: Lanes, z):
    half = lanes.number(0.5)
    return lanes.multiply_add(half, lanes.tanh(lanes.builder.fmul(half, z)), half)


@intrinsic
def forward_step(typing, p, gates, h_all, c_all, mask, w, u, z, row, batch, begin, last, samples):
    """One step of `forward`: from h and c in the rows from row on to those in the rows from row + batch on.

    u, z: work space. samples: see `simd.known`.
    """
    kinds = {name: kind for name, kind in locals().items() if name != "typing"}
    count = len(samples)

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, list(kinds))
        row, last = lanes.arguments["row"], lanes.arguments["last"]
        after, begin = builder.add(row, lanes.arguments["batch"]), lanes.arguments["begin"]
        n, four = lanes.width("h_all"), lanes.width("p")
        p, gates, h, c = (lanes.rows(name, count, row, last) for name in ("p", "gates", "h_all", "c_all"))
        h_next, c_next = (lanes.rows(name, count, after, last) for name in ("h_all", "c_all"))
        mask = lanes.rows("mask", count, begin, last)
        u, z = lanes.rows("u", count), lanes.rows("z", count)

        def masked(at):
            for s in range(count):
                lanes.put(builder.fmul(lanes.load(mask[s], at), lanes.load(h[s], at)), u[s], at)

        def cell(at):
            parts = _gates(lanes, n, at)
            for s in range(count):
                i, f, g, o = (lanes.load(z[s], part) for part in parts)
                i, f, o, g = _sigmoid(lanes, i), _sigmoid(lanes, f), _sigmoid(lanes, o), lanes.tanh(g)
                for value, part in zip((i, f, g, o), parts, strict=True):
                    lanes.store(value, gates[s], part)
                new = lanes.multiply_add(f, lanes.load(c[s], at), builder.fmul(i, g))
                lanes.store(new, c_next[s], at)
                lanes.store(builder.fmul(o, lanes.tanh(new)), h_next[s], at)

        lanes.each(n, masked)
        lanes.product(
            u,
            n,
            lanes.array("w"),
            four,
            lambda s, at: lanes.load(p[s], at),
            lambda s, at, sum: lanes.put(sum, z[s], at),
        )
        lanes.each(n, cell)
        return context.get_dummy_value()

    return types.void(*kinds.values()), generate


@intrinsic
def reverse_step(typing, gates, c_all, grad_h, mask, w, errors, dh, dc, e, row, batch, begin, last, samples):
    """One step of `reverse`. e: work space; dh, dc: carried from step to step."""
    kinds = {name: kind for name, kind in locals().items() if name != "typing"}
    count = len(samples)

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, list(kinds))
        row, last = lanes.arguments["row"], lanes.arguments["last"]
        after, begin = builder.add(row, lanes.arguments["batch"]), lanes.arguments["begin"]
        n, four = lanes.width("grad_h"), lanes.width("gates")
        gates, c, grad_h, errors = (
            lanes.rows(name, count, row, last) for name in ("gates", "c_all", "grad_h", "errors")
        )
        c_next, mask = lanes.rows("c_all", count, after, last), lanes.rows("mask", count, begin, last)
        dh, dc, e = lanes.rows("dh", count), lanes.rows("dc", count), lanes.rows("e", count)
        one, times = lanes.number(1.0), builder.fmul

        def slope(x):  # of the logistic function, by its value
            return times(x, builder.fsub(one, x))

        def cell(at):
            parts = _gates(lanes, n, at)
            for s in range(count):
                i, f, g, o = (lanes.load(gates[s], part) for part in parts)
                tanh = lanes.tanh(lanes.load(c_next[s], at))
                to_h = builder.fadd(lanes.get(dh[s], at), lanes.load(grad_h[s], at))
                steep = times(o, builder.fsub(one, times(tanh, tanh)))
                to_c = lanes.multiply_add(to_h, steep, lanes.get(dc[s], at))
                found = (
                    times(to_c, times(g, slope(i))),
                    times(to_c, times(lanes.load(c[s], at), slope(f))),
                    times(to_c, times(i, builder.fsub(one, times(g, g)))),
                    times(to_h, times(tanh, slope(o))),
                )
                for error, part in zip(found, parts, strict=True):
                    lanes.store(error, errors[s], part)
                    lanes.store(error, e[s], part)
                lanes.put(times(to_c, f), dc[s], at)

        def carried(s, at, sum):
            lanes.put(times(sum, lanes.load(mask[s], at)), dh[s], at)

        lanes.each(n, cell)
        lanes.product(e, four, lanes.array("w"), n, lambda s, at: lanes.number(0.0), carried)
        return context.get_dummy_value()

    return types.void(*kinds.values()), generate


@compiled
def forward(p, gates, h_all, c_all, mask, w, batch, samples, first, end):
    """Forward in time for samples first .. end - 1, so many at a time as `samples` is long.

    p (T B, 4 n): the input's part of the gates; gates (T B, 4 n) is filled with their values. h_all, c_all
    ((T + 1) B, n): the first B rows are h_0 and c_0. mask (B, n). w (n, 4 n) is packed.
    """
    n, count = h_all.shape[1], len(samples)
    u = np.zeros((count, n + simd.LANES), p.dtype)
    z = np.zeros((count, w.size // n + simd.LANES), p.dtype)
    for begin in range(first, end, count):
        last = min(count, end - begin) - 1
        for row in range(begin, p.shape[0], batch):
            forward_step(p, gates, h_all, c_all, mask, w, u, z, row, batch, begin, last, samples)


@compiled
def reverse(gates, c_all, grad_h, mask, w, errors, carry_h, carry_c, batch, samples, first, end):
    """Back in time for samples first .. end - 1. grad_h (T B, n): dL/dh_t without what comes through h_{t + 1}.

    Fills errors (T B, 4 n), dL/d the gates before their activation; carry_h (B, n), dL/dh_0; carry_c, which holds
    dL/dc_T before: dL/dc_0. w (4 n, n) is packed.
    """
    n, count = grad_h.shape[1], len(samples)
    dh = np.zeros((count, w.size // (4 * n) + simd.LANES), gates.dtype)
    dc = np.zeros((count, n + simd.LANES), gates.dtype)
    e = np.zeros((count, 4 * n + simd.LANES), gates.dtype)
    for begin in range(first, end, count):
        last = min(count, end - begin) - 1
        dh[:] = 0
        for s in range(count):
            dc[s, :n] = carry_c[begin + min(s, last)]
        for row in range(gates.shape[0] - batch + begin, -1, -batch):
            reverse_step(gates, c_all, grad_h, mask, w, errors, dh, dc, e, row, batch, begin, last, samples)
        carry_h[begin : begin + last + 1] = dh[: last + 1, :n]
        carry_c[begin : begin + last + 1] = dc[: last + 1, :n]
