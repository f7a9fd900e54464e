"""ListOps: what is drawn against an evaluator and a length rule written independently, and against the published
recipe."""

import numpy as np
import pytest
from listops_parser import parse

from elm_lib.simulate.symbols import listops


@pytest.fixture(scope="module")
def drawn():
    symbols, row_ptr, values = listops.generate(400, seed=3)
    return [symbols[a:b] for a, b in zip(row_ptr, row_ptr[1:])], values


def test_values_depths_arguments_and_lengths(drawn):
    sequences, values = drawn
    depths, counts = [], []
    for sequence, value in zip(sequences, values):
        words = listops.text(sequence).split()
        found, depth, arguments = parse(words)
        assert not words  # one expression, nothing after it
        assert found == value
        assert 500 < len(sequence) < 2000
        depths.append(depth)
        counts += arguments
    assert max(depths) == 10
    assert set(counts) == set(range(2, 11))


def test_distributions_are_the_published_ones(drawn):
    """Digits, operators and numbers of arguments are uniform."""
    sequences, _ = drawn
    used = np.bincount(np.concatenate(sequences), minlength=15)
    assert np.allclose(used[:10] / used[:10].sum(), 0.1, atol=0.002)
    assert np.allclose(used[10:14] / used[10:14].sum(), 0.25, atol=0.005)
    assert used[14] == used[10:14].sum()
    _, row_ptr, _ = listops.generate(2000, seed=1, lengths=(2, 40), max_depth=2)  # an operator and its digits
    arguments = np.bincount(np.diff(row_ptr) - 2, minlength=11)[3:11]  # those of two arguments often come up again
    assert (np.abs(arguments / arguments.sum() - 1 / 8) < 0.03).all()


def test_a_list_is_its_seeds_and_holds_nothing_twice():
    a, b = listops.generate(50, seed=5), listops.generate(20, seed=5)
    assert np.array_equal(a[0][: b[1][-1]], b[0])
    assert np.array_equal(a[2][:20], b[2])
    seen = set()
    short = [listops.generate(n, seed=s, lengths=(3, 6), without=seen) for n, s in ((300, 1), (200, 2))]
    written = [x[0][i:j].tobytes() for x in short for i, j in zip(x[1], x[1][1:])]
    assert len(set(written)) == len(written) == len(seen) == 500
    with pytest.raises(ValueError, match=r"of 1000000 no new sequence with 3 < length < 5"):
        listops.generate(1_000_000, seed=1, lengths=(3, 5), max_depth=2)
