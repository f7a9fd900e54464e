"""ListOps: nested list operations whose value, a digit, is to be told from the sequence.

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]  ->  5

Nangia & Bowman 2018 (arXiv:1804.06028), as the Long Range Arena sets it up (Tay et al. 2021, arXiv:2011.04006): a node
at depth < 10 (the root's depth is 1) is an operator with probability 0.25, else a digit; an operator is MIN, MAX, MED
or SM with 2 to 10 arguments, all uniform. MED is int(median), SM the sum mod 10. Length counts 1 a digit and 2 an
operator (its name and its bracket), and 500 < length < 2000 is kept. Whole sequences are redrawn until one fits.

Symbols 0..14: the digits, then `[MIN` `[MAX` `[MED` `[SM` `]`. The published files' further parentheses carry nothing
beyond these, and loaders drop them.
"""

from __future__ import annotations

import numpy as np

from elm_lib.support.compiled import njit_cached

SYMBOLS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
MIN, MAX, MED, SM, END = range(10, 15)
MAX_DEPTH = 10  # depth of the deepest digit; the root's is 1
MAX_ARGUMENTS = 10
OPERATOR_PROBABILITY = 0.25
LENGTHS = (500, 2000)  # both exclusive
REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md
_TRIALS = 1_000_000  # drawn sequences before giving up on one sample
_MISSES = 20_000  # sequences in a row that came up before


def generate(
    n: int,
    seed: int,
    *,
    lengths: tuple[int, int] = LENGTHS,
    max_depth: int = MAX_DEPTH,
    without: set[bytes] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n different sequences: symbols uint8 (row_ptr[-1],), row_ptr int64 (n + 1,), values int64 (n,) in 0..9.

    Sample k is a function of (seed, the number of its draw), so a longer list begins with the shorter one.
    lengths: least and greatest length, both exclusive; anything but (500, 2000) is a variant of the published task.
    without: sequences (as bytes) that must not come up again; what is drawn here is added to it.
    Raises ValueError where no sequence of such a length, or no further one, turns up.
    """
    if n < 0 or not 0 <= lengths[0] < lengths[1] - 1 or max_depth < 2:
        raise ValueError(
            f"n = {n}, lengths = {lengths}, max_depth = {max_depth}: a length must lie between the lengths"
        )
    seen = set() if without is None else without
    buffer = np.empty(lengths[1], np.uint8)
    sequences: list[bytes] = []
    values, ends = np.empty(n, np.int64), np.zeros(n + 1, np.int64)
    draw = misses = 0
    while len(sequences) < n:
        length, value = _draw(np.random.default_rng([seed, draw]), lengths[0], lengths[1], max_depth, buffer)
        draw += 1
        sequence = buffer[:length].tobytes()
        if length == 0 or sequence in seen:
            misses += 1
            if length == 0 or misses > _MISSES:
                raise ValueError(
                    f"after {len(sequences)} of {n} no new sequence with {lengths[0]} < length < {lengths[1]}"
                )
            continue
        misses = 0
        seen.add(sequence)
        values[len(sequences)] = value
        sequences.append(sequence)
        ends[len(sequences)] = ends[len(sequences) - 1] + length
    return np.frombuffer(b"".join(sequences), np.uint8), ends, values


def text(symbols: np.ndarray) -> str:
    """Symbols as people write them: `[MAX 4 3 ]`."""
    return " ".join(SYMBOLS[s] for s in symbols)


@njit_cached
def _draw(rng, shortest, longest, max_depth, out):
    """One sequence into out: its length and value; length 0 where none of _TRIALS fitted."""
    for _ in range(_TRIALS):
        length, value = _tree(rng, longest, max_depth, out)
        if shortest < length < longest:
            return length, value
    return 0, 0


@njit_cached
def _tree(rng, longest, max_depth, out):
    """Draw and evaluate one tree, left to right. Length `longest` where it would be that long or longer."""
    operator = np.empty(max_depth, np.int64)  # of each open list, outermost first
    wanted = np.empty(max_depth, np.int64)
    got = np.empty(max_depth, np.int64)
    arguments = np.empty((max_depth, MAX_ARGUMENTS), np.int64)
    is_open = 0
    length = promised = 0  # promised: tokens that what is open needs at least, digits and brackets
    while True:
        if is_open + 1 < max_depth and rng.random() < OPERATOR_PROBABILITY:
            operator[is_open] = MIN + int(rng.random() * 4)
            wanted[is_open] = 2 + int(rng.random() * (MAX_ARGUMENTS - 1))
            got[is_open] = 0
            promised += wanted[is_open] + (0 if is_open else 1)
            if length + 1 + promised >= longest:
                return longest, 0
            out[length] = operator[is_open]
            length += 1
            is_open += 1
            continue
        value = int(rng.random() * 10)
        if is_open == 0:
            return 1, value
        out[length] = value
        length += 1
        promised -= 1
        while is_open:
            top = is_open - 1
            arguments[top, got[top]] = value
            got[top] += 1
            if got[top] < wanted[top]:
                break
            value = _apply(operator[top], arguments[top, : got[top]])
            out[length] = END
            length += 1
            is_open -= 1
            promised -= 1
        if is_open == 0:
            return length, value


@njit_cached
def _apply(operator, values):
    if operator == MIN:
        return values.min()
    if operator == MAX:
        return values.max()
    if operator == SM:
        return values.sum() % 10
    ordered = np.sort(values)
    k = len(ordered)
    return (ordered[(k - 1) // 2] + ordered[k // 2]) // 2  # int(median)
