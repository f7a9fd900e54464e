"""The random input of NeuronIO."""

import h5py
import numpy as np
import pytest

from elm_lib.simulate.cell.inputs import draw_input, to_indptr
from elm_lib.simulate.cell.morphology import load_cell

pytest_plugins = ["simulate_fixtures"]


def test_an_input_depends_on_seed_and_index_alone(default_cell):
    def draw(seed, index):
        return draw_input(default_cell, seed=seed, index=index, ranges="script", duration_ms=300)

    first = draw(1, 7)
    draw(1, 6)
    again = draw(1, 7)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert all(not np.array_equal(first[0], other[0]) for other in (draw(1, 8), draw(2, 7), draw(7, 1)))


def test_spikes_are_sorted_unique_and_in_range(default_cell):
    channel, time_ms = draw_input(default_cell, seed=0, index=0, ranges="narrow", duration_ms=1000)
    key = time_ms.astype(int) * 1278 + channel
    assert (np.diff(key) > 0).all() and channel.max() < 1278 and 0 <= time_ms.min() and time_ms.max() < 1000
    indptr = to_indptr(time_ms, 1000)
    assert indptr[0] == 0 and indptr[-1] == len(channel) and (time_ms[indptr[500] : indptr[501]] == 500).all()


def test_statistics_equal_the_reference_set(shared):
    """64 inputs on which the released weights reach their published scores: mean counts within 3 standard
    errors."""
    cell = load_cell(shared / "l5pc" / "cell1.asc")
    with h5py.File(shared / "l5pc" / "testset_64x6s.h5") as file:
        synapse, offset = file["input/synapse"][()], file["input/offset"][()]
    reference = np.array(
        [[np.sum(s < 262), np.sum((s >= 262) & (s < 639)), np.sum(s >= 639)] for s in np.split(synapse, offset[1:-1])]
    )
    ours = []
    for i in range(8):
        channel, _ = draw_input(cell, seed=11, index=i, ranges="narrow", duration_ms=6000)
        segment, inhibitory = channel >> 1, channel & 1
        ours.append(
            [np.sum(~inhibitory & 1 & (segment < 262)), np.sum(~inhibitory & 1 & (segment >= 262)), inhibitory.sum()]
        )
    standard_error = reference.std(0) * np.sqrt(1 / len(reference) + 1 / len(ours))
    assert (np.abs(np.mean(ours, 0) - reference.mean(0)) < 3 * standard_error).all()


def test_unknown_ranges_are_named(default_cell):
    with pytest.raises(ValueError, match="'narrow', 'script'"):
        draw_input(default_cell, seed=0, index=0, ranges="wide", duration_ms=10)
