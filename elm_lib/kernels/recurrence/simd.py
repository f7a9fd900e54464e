"""The loops of `elm_lib.kernels.recurrence.engine_cpu`, compiled by numba.

Samples are taken eight at a time, or one or two where the batch has no more. Features lie in the lanes of SIMD
registers. LLVM does not vectorise numba's scalar code for products as small as these, so this file writes the vector
instructions itself. A step of time is a few products, whose sums stay in registers until the step has used them.

The code generator (`Lanes`) and the loops share one file, because numba's cache looks at the file of a loop alone.
After a change of a generator in another file it would run the old machine code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from elm_lib.kernels.recurrence.bptt import ACTIVATIONS
from elm_lib.support.compiled import njit_cached


def _has_avx512() -> bool:
    try:
        return bool(binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # a platform on which LLVM cannot tell
        return False


LANES = 16 if _has_avx512() else 8  # float32 of a register
# Samples of a block, which share each weight that is loaded -> registers side by side. Together they hold as many sums
# as a core has registers for, or as keep its multipliers busy.
BLOCKS = {8: LANES // 8, 2: 4, 1: 4}
STEPS = 64  # summed in float32 before they are added to a float64

compiled = njit_cached(nogil=True, error_model="numpy")  # no fast-math: a run that diverges has to show NaN
INDEX = ir.IntType(32)


def known(number: int) -> tuple[int, ...]:
    """A number that compiled code knows. It is the length of a tuple: numba compiles for a length, not for a value."""
    return (0,) * number


class At(NamedTuple):
    """A register of columns: the first column, and which lanes are columns of the array (None: all)."""

    column: ir.Value
    mask: ir.Value | None


class Lanes:
    """Writes code for registers of LANES numbers, and for the arguments of a step by their names."""

    def __init__(self, context, builder, signature, arguments, names: list[str]) -> None:
        self.context, self.builder = context, builder
        self.arguments, self.kinds = dict(zip(names, arguments)), dict(zip(names, signature.args))
        self.scalar = context.get_value_type(signature.args[0].dtype)
        self.vector, self.size = ir.VectorType(self.scalar, LANES), context.get_abi_sizeof(self.scalar)
        self.integers = ir.VectorType(ir.IntType(8 * self.size), LANES)
        self.index = context.get_value_type(types.intp)

    def number(self, value: float):
        return ir.Constant(self.vector, [float(np.float32(value)) if self.size == 4 else value] * LANES)

    def count(self, value: int):
        return ir.Constant(self.index, value)

    def splat(self, value):
        one = self.builder.insert_element(
            ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, ir.Constant(INDEX, 0)
        )
        return self.builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))

    def call(self, name: str, *values):
        kind = ir.FunctionType(self.vector, [self.vector] * len(values))
        name = f"llvm.{name}.v{LANES}f{8 * self.size}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), values)

    def multiply_add(self, x, y, z):
        return self.call("fmuladd", x, y, z)

    def tanh(self, x):
        """float32: absolute error below 2e-7; float64: libm's; NaN stays NaN."""
        builder, number = self.builder, self.number
        if self.size == 8:
            libm = cgutils.get_or_insert_function(builder.module, ir.FunctionType(self.scalar, [self.scalar]), "tanh")
            for lane in (ir.Constant(INDEX, k) for k in range(LANES)):
                x = builder.insert_element(x, builder.call(libm, [builder.extract_element(x, lane)]), lane)
            return x
        a = self.call("fabs", x)
        a = builder.select(builder.fcmp_ordered(">", a, number(9.0)), number(9.0), a)  # tanh(9) is 1 to the last bit
        y = builder.fadd(a, a)
        n = self.call("floor", self.multiply_add(y, number(1.4426950408889634), number(0.5)))
        n = builder.select(builder.fcmp_ordered("ord", n, n), n, number(0.0))  # f carries the NaN
        f = self.multiply_add(n, number(-0.6931471805599453), y)
        series = number(1 / 5040)
        for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            series = self.multiply_add(f, series, number(coefficient))
        exponent = builder.add(builder.fptosi(n, self.integers), ir.Constant(self.integers, [127] * LANES))
        exponent = builder.shl(exponent, ir.Constant(self.integers, [23] * LANES))
        e = builder.fmul(series, builder.bitcast(exponent, self.vector))  # e^2|x|
        t = builder.fsub(number(1.0), builder.fdiv(number(2.0), builder.fadd(e, number(1.0))))
        return self.call("copysign", t, x)

    def array(self, name: str):
        return self.context.make_array(self.kinds[name])(self.context, self.builder, self.arguments[name])

    def width(self, name: str):
        return cgutils.unpack_tuple(self.builder, self.array(name).shape)[-1]

    def rows(self, name: str, samples: int, row=None, last=None) -> list:
        """Where the rows of the samples start in an array.

        With row and last: from row on; samples after the `last`th, which the batch does not have, read that one again.
        Without: the first rows of a work space, or the only one of a vector.
        """
        array, rows = self.array(name), []
        for s in range(samples):
            at = self.count(s)
            if last is not None:
                at = self.builder.add(row, self.builder.select(self.builder.icmp_signed("<", at, last), at, last))
            rows.append(self.builder.gep(array.data, [self.builder.mul(at, self.width(name))]))
        return rows

    def place(self, row, column):
        return self.builder.bitcast(self.builder.gep(row, [column]), self.vector.as_pointer())

    def load(self, row, at: At):
        if at.mask is None:
            return self.builder.load(self.place(row, at.column), align=self.size)
        kind = ir.FunctionType(self.vector, [self.vector.as_pointer(), INDEX, at.mask.type, self.vector])
        name = f"llvm.masked.load.v{LANES}f{8 * self.size}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(
            function, [self.place(row, at.column), ir.Constant(INDEX, self.size), at.mask, self.number(0.0)]
        )

    def store(self, value, row, at: At) -> None:
        if at.mask is None:
            self.builder.store(value, self.place(row, at.column), align=self.size)
            return
        kind = ir.FunctionType(ir.VoidType(), [self.vector, self.vector.as_pointer(), INDEX, at.mask.type])
        name = f"llvm.masked.store.v{LANES}f{8 * self.size}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        self.builder.call(function, [value, self.place(row, at.column), ir.Constant(INDEX, self.size), at.mask])

    def get(self, row, at: At):
        """`load` of a work space, whose rows are whole registers: no mask."""
        return self.load(row, At(at.column, None))

    def put(self, value, row, at: At) -> None:
        """`store` to a work space."""
        self.store(value, row, At(at.column, None))

    def registers(self, column, blocks: int, columns, masked: bool) -> list[At]:
        found = []
        for start in (self.builder.add(column, self.count(k * LANES)) for k in range(blocks)):
            mask = None
            if masked:
                left = self.splat(self.builder.sub(columns, start))
                mask = self.builder.icmp_signed(">", left, ir.Constant(left.type, list(range(LANES))))
            found.append(At(start, mask))
        return found

    def loops(self, columns, padded, blocks: int):
        """Go through the registers of columns, `blocks` side by side, then one by one. The last ones are masked."""
        wide = self.count(blocks * LANES)
        whole, most = (self.builder.mul(self.builder.sdiv(n, wide), wide) for n in (columns, padded))
        ranges = [(self.count(0), whole, blocks, False), (whole, most, blocks, True)]
        for first, end, together, masked in ranges + [(most, padded, 1, True)] * (blocks > 1):
            with cgutils.for_range_slice(self.builder, first, end, self.count(together * LANES)) as (column, _):
                yield column, self.registers(column, together, columns, masked)

    def each(self, columns, action) -> None:
        """action(at) for every register of columns."""
        up = self.builder.add(columns, self.count(LANES - 1))
        padded = self.builder.sub(up, self.builder.srem(up, self.count(LANES)))
        for _, (at,) in self.loops(columns, padded, 1):
            action(at)

    def product(self, sources: list, inner, weights, columns, start, finish) -> None:
        """For each sample s and register `at` of columns: finish(s, at, start(s, at) + source_s weights).

        Sums run in the order of the inner index. weights (inner, columns) are as `packed` lays them out.
        """
        builder, samples = self.builder, range(len(sources))
        for column, registers in self.loops(columns, builder.sdiv(weights.nitems, inner), BLOCKS[len(sources)]):
            tiles = [(s, at, cgutils.alloca_once(builder, self.vector)) for s in samples for at in registers]
            for s, at, total in tiles:
                builder.store(start(s, at), total)
            bundle = builder.gep(weights.data, [builder.mul(column, inner)])
            with cgutils.for_range(builder, inner) as loop:
                row = builder.mul(loop.index, self.count(len(registers) * LANES))
                loaded = [
                    self.load(bundle, At(builder.add(row, self.count(k * LANES)), None)) for k in range(len(registers))
                ]
                for s, source in enumerate(sources):
                    factor = self.splat(builder.load(builder.gep(source, [loop.index])))
                    for weight, (*_, total) in zip(loaded, tiles[s * len(registers) :]):
                        builder.store(self.multiply_add(factor, weight, builder.load(total)), total)
            for s, at, total in tiles:
                finish(s, at, builder.load(total))

    def activate(self, z, kind: str):
        """act(z), and act'(z) for silu and relu2."""
        builder, one, half = self.builder, self.number(1.0), self.number(0.5)
        if kind == "identity":
            return z, None
        if kind == "relu":
            return builder.select(builder.fcmp_ordered("<=", z, self.number(0.0)), self.number(0.0), z), None
        if kind == "relu2":
            h = builder.select(builder.fcmp_ordered("<=", z, self.number(0.0)), self.number(0.0), z)
            return builder.fmul(h, h), builder.fadd(h, h)
        sigma = self.multiply_add(half, self.tanh(builder.fmul(half, z)), half)
        h = builder.fmul(z, sigma)
        return h, builder.fmul(sigma, self.multiply_add(z, builder.fsub(one, sigma), one))


@intrinsic
def forward_step(typing, p, m_all, z_all, kappa, gain, b_2, w_m, w_2, u, h, b, row, z_row, batch, last, act, samples):
    """One step of `forward`: from m in the rows from row on to m in those from row + batch on, and z_1 from z_row on.

    u, h: work space. act, samples: see `known`.
    """
    kinds = {name: kind for name, kind in locals().items() if name != "typing"}
    activation, count = ACTIVATIONS[len(act)], len(samples)

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, list(kinds))
        row, z_row, batch, last = (lanes.arguments[name] for name in ("row", "z_row", "batch", "last"))
        d_m, d_1 = lanes.width("m_all"), lanes.width("p")
        p, m = (lanes.rows(name, count, row, last) for name in ("p", "m_all"))
        z_1, m_next = lanes.rows("z_all", count, z_row, last), lanes.rows("m_all", count, builder.add(row, batch), last)
        u, h = lanes.rows("u", count), lanes.rows("h", count)
        (kappa,), (gain,), (b_2,) = (lanes.rows(name, 1) for name in ("kappa", "gain", "b_2"))
        factor = lanes.splat(lanes.arguments["b"])

        def leak(at):
            for s in range(count):
                lanes.put(builder.fmul(lanes.load(kappa, at), lanes.load(m[s], at)), u[s], at)

        def hidden(s, at, z):
            lanes.store(z, z_1[s], at)
            lanes.put(lanes.activate(z, activation)[0], h[s], at)

        def memory(s, at, z):
            tanh = lanes.tanh(builder.fmul(factor, z))
            lanes.store(lanes.multiply_add(lanes.load(gain, at), tanh, lanes.get(u[s], at)), m_next[s], at)

        lanes.each(d_m, leak)
        lanes.product(u, d_m, lanes.array("w_m"), d_1, lambda s, at: lanes.load(p[s], at), hidden)
        lanes.product(h, d_1, lanes.array("w_2"), d_m, lambda s, at: lanes.load(b_2, at), memory)
        return context.get_dummy_value()

    return types.void(*kinds.values()), generate


@intrinsic
def reverse_step(
    typing,
    z,
    m_prev,
    grad_m,
    kappa,
    slope,
    b_2,
    w_m,
    w_2,
    w_2t,
    h_all,
    e_2_all,
    grad_p,
    h,
    c,
    e_1,
    e_2,
    steep,
    part_kappa,
    part_gain,
    b,
    row,
    last,
    act,
    samples,
):
    """One step of `reverse`. h, e_1, e_2, steep: work space; c, part_kappa, part_gain: carried from step to step."""
    kinds = {name: kind for name, kind in locals().items() if name != "typing"}
    activation, count = ACTIVATIONS[len(act)], len(samples)

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments, list(kinds))
        row, last = lanes.arguments["row"], lanes.arguments["last"]
        d_m, d_1 = lanes.width("m_prev"), lanes.width("z")
        z_1, m, grad_m = (lanes.rows(name, count, row, last) for name in ("z", "m_prev", "grad_m"))
        h_all, e_2_all, grad_p = (lanes.rows(name, count, row, last) for name in ("h_all", "e_2_all", "grad_p"))
        h, e_1, e_2, steep = (lanes.rows(name, count) for name in ("h", "e_1", "e_2", "steep"))
        c, part_kappa, part_gain = (lanes.rows(name, count) for name in ("c", "part_kappa", "part_gain"))
        (kappa,), (slope,), (b_2,) = (lanes.rows(name, 1) for name in ("kappa", "slope", "b_2"))
        factor, one, zero = lanes.splat(lanes.arguments["b"]), lanes.number(1.0), lanes.number(0.0)
        get, put = lanes.get, lanes.put

        def add_to(row, at, x, y):
            put(lanes.multiply_add(x, y, get(row, at)), row, at)

        def hidden(at):
            for s in range(count):
                activated, slope_1 = lanes.activate(lanes.load(z_1[s], at), activation)
                put(activated, h[s], at)
                lanes.store(activated, h_all[s], at)
                if slope_1 is not None:
                    put(slope_1, steep[s], at)

        def error(s, at, z):
            tanh = lanes.tanh(builder.fmul(factor, z))
            g = builder.fadd(get(c[s], at), lanes.load(grad_m[s], at))
            put(g, c[s], at)
            add_to(part_gain[s], at, g, tanh)
            e = builder.fmul(builder.fmul(lanes.load(slope, at), builder.fsub(one, builder.fmul(tanh, tanh))), g)
            put(e, e_2[s], at)
            lanes.store(e, e_2_all[s], at)

        def first_error(s, at, e):
            if activation in ("silu", "relu2"):
                e = builder.fmul(e, get(steep[s], at))
            elif activation == "relu":
                e = builder.select(builder.fcmp_ordered("<=", get(h[s], at), zero), zero, e)
            put(e, e_1[s], at)
            lanes.store(e, grad_p[s], at)

        def carried(s, at, g):
            add_to(part_kappa[s], at, lanes.load(m[s], at), g)
            put(builder.fmul(g, lanes.load(kappa, at)), c[s], at)

        lanes.each(d_1, hidden)
        lanes.product(h, d_1, lanes.array("w_2t"), d_m, lambda s, at: lanes.load(b_2, at), error)
        lanes.product(e_2, d_m, lanes.array("w_2"), d_1, lambda s, at: zero, first_error)
        lanes.product(e_1, d_1, lanes.array("w_m"), d_m, lambda s, at: get(c[s], at), carried)
        return context.get_dummy_value()

    return types.void(*kinds.values()), generate


@compiled
def packed(matrix, samples, blocks):
    """A matrix (I, J) in the order in which a product reads it, flat.

    Columns come in bundles as wide as the registers side by side, each bundle row after row. Zeros fill the last
    register, and the last bundle where a single register of so few samples would leave the core idle.
    """
    rows, columns = matrix.shape
    wide = blocks * LANES
    unit = wide if samples <= 2 else LANES
    padded = -(-columns // unit) * unit
    out = np.zeros(rows * padded, matrix.dtype)
    first = n = 0
    while first < padded:
        width = wide if first + wide <= padded else LANES
        for i in range(rows):
            for j in range(min(width, columns - first)):
                out[n + j] = matrix[i, first + j]
            n += width
        first += width
    return out


@compiled
def forward(p, m_all, z_all, batch, kappa, gain, w_m, w_2, b_2, b, act, samples, first, end):
    """Forward in time for samples first .. end - 1, so many at a time as `samples` is long.

    Row t B + n belongs to step t of sample n: p (T B, d_1), m_all ((T + 1) B, d_m), of which the first B rows are m_0.
    z_all (T B, d_1) is filled with z_1; (B, d_1) is work space, where backward will not ask for it.
    gain includes a of f(z) = a tanh(b z). w_m (d_m, d_1) and w_2 (d_1, d_m) are packed.
    """
    d_1, d_m, count = p.shape[1], m_all.shape[1], len(samples)
    u = np.zeros((count, w_2.size // d_1), p.dtype)
    h = np.zeros((count, w_m.size // d_m), p.dtype)
    kept = z_all.shape[0] == p.shape[0]
    for begin in range(first, end, count):
        last = min(count, end - begin) - 1
        for row in range(begin, p.shape[0], batch):
            z_row = row if kept else begin
            forward_step(p, m_all, z_all, kappa, gain, b_2, w_m, w_2, u, h, b, row, z_row, batch, last, act, samples)


@compiled
def reverse(
    z,
    m_prev,
    grad_m,
    carry,
    kappa,
    slope,
    w_m,
    w_2,
    w_2t,
    b_2,
    b,
    h_all,
    e_2_all,
    grad_p,
    sums,
    act,
    samples,
    first,
    end,
):
    """Back in time for samples first .. end - 1, so many at a time as `samples` is long.

    Row t B + n belongs to step t of sample n: z (z_1 of `forward`), h_all and grad_p (T B, d_1), the others (T B, d_m).
    The second layer is computed forward once more. w_m (d_1, d_m), w_2 (d_m, d_1) and its transpose are packed.

    Fills   h_all, what the second layer reads; e_2_all and grad_p, dL/d the outputs of the second and the first layer;
            sums (blocks, 2, d_m) float64: dL/dkappa, and the sum of g tanh; carry (B, d_m): dL/dm_0
    """
    d_1, d_m, batch, count = z.shape[1], m_prev.shape[1], carry.shape[0], len(samples)
    steps = z.shape[0] // batch
    c, e_2, part_kappa, part_gain = np.zeros((4, count, w_2t.size // d_1), z.dtype)
    h, e_1, steep = np.zeros((3, count, w_2.size // d_m), z.dtype)
    for begin in range(first, end, count):
        n = min(count, end - begin)
        for s in range(count):
            c[s, :d_m] = carry[begin + min(s, n - 1)]
        for t in range(steps - 1, -1, -1):
            reverse_step(
                z,
                m_prev,
                grad_m,
                kappa,
                slope,
                b_2,
                w_m,
                w_2,
                w_2t,
                h_all,
                e_2_all,
                grad_p,
                h,
                c,
                e_1,
                e_2,
                steep,
                part_kappa,
                part_gain,
                b,
                t * batch + begin,
                n - 1,
                act,
                samples,
            )
            if t % STEPS == 0:
                for s in range(n):
                    for i in range(d_m):
                        sums[begin // count, 0, i] += part_kappa[s, i]
                        sums[begin // count, 1, i] += part_gain[s, i]
                part_kappa[:] = 0
                part_gain[:] = 0
        carry[begin : begin + n] = c[:n, :d_m]
