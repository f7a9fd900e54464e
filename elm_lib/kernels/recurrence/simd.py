"""The loops of `elm_lib.kernels.recurrence.engine_cpu`, compiled by numba: eight samples at a time, or one or two where there are no more,
features in the lanes of a SIMD register.

numba gives LLVM scalar code to vectorise, which it does not do for small products; here the vector type is said. A step of time is
a few products whose sums stay in registers from the row that they start with to what becomes of them. All that a kernel calls is in
this file, as numba's cache watches no other.
"""

from __future__ import annotations

from typing import NamedTuple

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
BLOCKS = {8: LANES // 8, 2: 4, 1: 4}
STEPS = 64  # summed in float32 before they are added to a float64

compiled = njit(cache=True, nogil=True, error_model="numpy")  # a diverging run has to show NaN: no fast-math
INDEX = ir.IntType(32)


class At(NamedTuple):
    """A register of columns: the first one, and which lanes are columns of the array (None: all)."""

    column: ir.Value
    mask: ir.Value | None


class Lanes:
    """Code for registers of LANES numbers, and for the arrays they come from."""

    def __init__(self, context, builder, signature, arguments) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments
        self.scalar = context.get_value_type(signature.args[0].dtype)
        self.vector, self.size = ir.VectorType(self.scalar, LANES), context.get_abi_sizeof(self.scalar)
        self.integers = ir.VectorType(ir.IntType(8 * self.size), LANES)
        self.index = context.get_value_type(types.intp)

    # ---- numbers

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
        a = builder.select(builder.fcmp_ordered(">", a, number(9.0)), number(9.0), a)  # 1 to the last bit from there on
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

    # ---- arrays

    def array(self, k: int):
        """Argument k, an array."""
        return self.context.make_array(self.signature.args[k])(self.context, self.builder, self.arguments[k])

    def width(self, k: int):
        return cgutils.unpack_tuple(self.builder, self.array(k).shape)[-1]

    def rows(self, k: int, samples: int, row=None, last=None) -> list:
        """Where the rows of array k start: from row on, the `last`th again and again after it; all rows of a work space; or a vector."""
        array, rows = self.array(k), []
        for s in range(samples):
            at = self.count(s)
            if last is not None:
                at = self.builder.add(row, self.builder.select(self.builder.icmp_signed("<", at, last), at, last))
            rows.append(self.builder.gep(array.data, [self.builder.mul(at, self.width(k))]))
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
        """`load` of a work space, whose rows end with a register."""
        return self.load(row, At(at.column, None))

    def put(self, value, row, at: At) -> None:
        self.store(value, row, At(at.column, None))

    # ---- loops

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
        """Go through the registers of columns, `blocks` side by side, then one by one; masked from the first on that is not whole."""
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
        """For each sample s and register `at` of columns: finish(s, at, start(s, at) + source_s weights), summed in the order of
        the inner index; weights (inner, columns) as `packed` lays them out."""
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

    # ---- what both directions do

    def activate(self, z, smooth: bool):
        """act(z) and, where it is smooth, act'(z)."""
        builder, one, half = self.builder, self.number(1.0), self.number(0.5)
        if not smooth:
            return builder.select(builder.fcmp_ordered("<=", z, self.number(0.0)), self.number(0.0), z), None
        sigma = self.multiply_add(half, self.tanh(builder.fmul(half, z)), half)
        h = builder.fmul(z, sigma)
        return h, builder.fmul(sigma, self.multiply_add(z, builder.fsub(one, sigma), one))


@intrinsic
def forward_step(typing, p, m_all, z_all, kappa, gain, b_2, w_m, w_2, u, h, b, row, z_row, batch, last, smooth, block):
    """m of the rows from row + batch on, from those of a step before, and z_1 in the rows from z_row on; w_m (d_m, d_1), w_2 (d_1, d_m)
    packed; u, h: work space. block: a tuple with an entry for each sample, smooth: one with an entry for silu, as compiled code knows
    their lengths."""
    samples = block.count

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments)
        d_m, d_1 = lanes.width(1), lanes.width(0)
        row, z_row, batch, last = arguments[11:15]
        p, m, z_1 = (
            lanes.rows(0, samples, row, last),
            lanes.rows(1, samples, row, last),
            lanes.rows(2, samples, z_row, last),
        )
        m_next = lanes.rows(1, samples, builder.add(row, batch), last)
        u, h = lanes.rows(8, samples), lanes.rows(9, samples)
        (kappa,), (gain,), (b_2,) = (lanes.rows(k, 1) for k in (3, 4, 5))
        factor = lanes.splat(arguments[10])

        def leak(at):
            for s in range(samples):
                lanes.put(builder.fmul(lanes.load(kappa, at), lanes.load(m[s], at)), u[s], at)

        def hidden(s, at, z):
            lanes.store(z, z_1[s], at)
            lanes.put(lanes.activate(z, len(smooth) > 0)[0], h[s], at)

        def memory(s, at, z):
            tanh = lanes.tanh(builder.fmul(factor, z))
            lanes.store(lanes.multiply_add(lanes.load(gain, at), tanh, lanes.get(u[s], at)), m_next[s], at)

        lanes.each(d_m, leak)
        lanes.product(u, d_m, lanes.array(6), d_1, lambda s, at: lanes.load(p[s], at), hidden)
        lanes.product(h, d_1, lanes.array(7), d_m, lambda s, at: lanes.load(b_2, at), memory)
        return context.get_dummy_value()

    kinds = (p, m_all, z_all, kappa, gain, b_2, w_m, w_2, u, h, b, row, z_row, batch, last, smooth, block)
    return types.void(*kinds), generate


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
    smooth,
    block,
):
    """See `reverse`: one step back. h, e_1, e_2, steep: work space; c, part_kappa, part_gain: carried from step to step."""
    samples = block.count

    def generate(context, builder, signature, arguments):
        lanes = Lanes(context, builder, signature, arguments)
        d_m, d_1 = lanes.width(1), lanes.width(0)
        row, last = arguments[20:22]
        z_1, m, grad_m = (lanes.rows(k, samples, row, last) for k in (0, 1, 2))
        h_all, e_2_all, grad_p = (lanes.rows(k, samples, row, last) for k in (9, 10, 11))
        h, c, e_1, e_2, steep, part_kappa, part_gain = (lanes.rows(k, samples) for k in range(12, 19))
        (kappa,), (slope,), (b_2,) = (lanes.rows(k, 1) for k in (3, 4, 5))
        factor, one, zero = lanes.splat(arguments[19]), lanes.number(1.0), lanes.number(0.0)

        get, put = lanes.get, lanes.put

        def add_to(row, at, x, y):
            put(lanes.multiply_add(x, y, get(row, at)), row, at)

        def hidden(at):
            for s in range(samples):
                activated, slope_1 = lanes.activate(lanes.load(z_1[s], at), len(smooth) > 0)
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
            if len(smooth):
                e = builder.fmul(e, get(steep[s], at))
            else:
                e = builder.select(builder.fcmp_ordered("<=", get(h[s], at), zero), zero, e)
            put(e, e_1[s], at)
            lanes.store(e, grad_p[s], at)

        def carried(s, at, g):
            add_to(part_kappa[s], at, lanes.load(m[s], at), g)
            put(builder.fmul(g, lanes.load(kappa, at)), c[s], at)

        lanes.each(d_1, hidden)
        lanes.product(h, d_1, lanes.array(8), d_m, lambda s, at: lanes.load(b_2, at), error)
        lanes.product(e_2, d_m, lanes.array(7), d_1, lambda s, at: zero, first_error)
        lanes.product(e_1, d_1, lanes.array(6), d_m, lambda s, at: get(c[s], at), carried)
        return context.get_dummy_value()

    kinds = (
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
        smooth,
        block,
    )
    return types.void(*kinds), generate


@compiled
def packed(matrix, samples, blocks):
    """(I, J) in the order in which a product reads it: columns in bundles as wide as the registers of a turn, each bundle row after
    row; flat. Zeros fill the last register, and the last bundle where the samples are too few to keep a single register busy."""
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
def forward(p, m_all, z_all, batch, kappa, gain, w_m, w_2, b_2, b, smooth, block, first, end):
    """Samples first .. end, as many at a time as block has entries: rows t batch + n of m_all ((T + 1) B, d_m) from row n on; p (T B, d_1).
    z_all (T B, d_1) gets what the first layer gives, or (B, d_1), where nobody will ask for it. gain times a of f(z) = a tanh(b z).
    w_m (d_m, d_1) and w_2 (d_1, d_m) are packed."""
    d_1, d_m, samples = p.shape[1], m_all.shape[1], len(block)
    u = np.zeros((samples, w_2.size // d_1), p.dtype)
    h = np.zeros((samples, w_m.size // d_m), p.dtype)
    kept = z_all.shape[0] == p.shape[0]
    for begin in range(first, end, samples):
        last = min(samples, end - begin) - 1
        for row in range(begin, p.shape[0], batch):
            z_row = row if kept else begin
            forward_step(p, m_all, z_all, kappa, gain, b_2, w_m, w_2, u, h, b, row, z_row, batch, last, smooth, block)


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
    smooth,
    block,
    first,
    end,
):
    """Back through time for samples first .. end. Rows t B + n: z (z_1 of `forward`), h_all, grad_p (T B, d_1), the others (T B, d_m);
    carry (B, d_m).

    The second layer is done forward once more. Fills h_all (what it reads), e_2_all and grad_p (dL/d the outputs of the second and
    the first layer), sums (blocks, 2, d_m) float64 (dL/dkappa; the sum of g tanh), and leaves dL/dm_0 in carry. w_m (d_1, d_m),
    w_2 (d_m, d_1) and w_2's transpose are packed.
    """
    d_1, d_m, batch, samples = z.shape[1], m_prev.shape[1], carry.shape[0], len(block)
    steps = z.shape[0] // batch
    c, e_2, part_kappa, part_gain = np.zeros((4, samples, w_2t.size // d_1), z.dtype)
    h, e_1, steep = np.zeros((3, samples, w_2.size // d_m), z.dtype)
    for begin in range(first, end, samples):
        n = min(samples, end - begin)
        for s in range(samples):
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
                smooth,
                block,
            )
            if t % STEPS == 0:
                for s in range(n):
                    for i in range(d_m):
                        sums[begin // samples, 0, i] += part_kappa[s, i]
                        sums[begin // samples, 1, i] += part_gain[s, i]
                part_kappa[:] = 0
                part_gain[:] = 0
        carry[begin : begin + n] = c[:n, :d_m]
