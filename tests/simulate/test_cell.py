"""The discretised cell and its integration, against NEURON and against algebra."""

import csv
from pathlib import Path

import numpy as np
import pytest

from elm_lib.simulate.cell import l5pc
from elm_lib.simulate.cell.arbor_reference import single_compartment
from elm_lib.simulate.cell.densities import APICAL, BASAL, BRANCH_POINT
from elm_lib.simulate.cell.inputs import draw_input, to_indptr
from elm_lib.simulate.cell.morphology import load_cell
from elm_lib.simulate.cell.sketch import load_sketch
from elm_lib.support.errors import DataError

pytest_plugins = ["simulate_fixtures"]

NEURON_DENSITY = {
    "cm": "cm",
    "pas": "g_pas",
    "ih": "gIhbar_Ih",
    "im": "gImbar_Im",
    "ca_lva": "gCa_LVAstbar_Ca_LVAst",
    "ca_hva": "gCa_HVAbar_Ca_HVA",
    "skv3_1": "gSKv3_1bar_SKv3_1",
    "sk_e2": "gSK_E2bar_SK_E2",
    "nats2_t": "gNaTs2_tbar_NaTs2_t",
    "nata_t": "gNaTa_tbar_NaTa_t",
    "nap_et2": "gNap_Et2bar_Nap_Et2",
    "k_tst": "gK_Tstbar_K_Tst",
    "k_pst": "gK_Pstbar_K_Pst",
    "ca_decay": "decay_CaDynamics_E2",
    "ca_gamma": "gamma_CaDynamics_E2",
}


@pytest.fixture(scope="session")
def exact_cell(shared):
    return load_cell(shared / "l5pc" / "cell1.asc")


def test_discretisation_equals_neurons(exact_cell, shared):
    with open(shared / "l5pc" / "compartments_neuron.csv") as file:
        rows = list(csv.DictReader(file))
    neuron = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    ours = exact_cell.kind != BRANCH_POINT
    assert ours.sum() == 642
    np.testing.assert_array_equal(exact_cell.kind[ours], neuron["section_type"])
    np.testing.assert_array_equal(exact_cell.section[ours], neuron["section"])
    np.testing.assert_allclose(exact_cell.area[ours], neuron["area_um2"], rtol=1e-6)
    np.testing.assert_allclose(exact_cell.distance[ours], neuron["path_distance_um"], atol=1e-5)
    np.testing.assert_allclose(1 / exact_cell.axial[ours][1:], neuron["axial_resistance_Mohm"][1:], rtol=1e-6)
    for name, theirs in NEURON_DENSITY.items():
        np.testing.assert_allclose(exact_cell.densities[name][ours], neuron[theirs], rtol=1e-6, err_msg=name)


def test_synapses_lie_on_262_basal_then_377_apical_segments(exact_cell):
    kinds = exact_cell.kind[exact_cell.synapse_node]
    assert (kinds[:262] == BASAL).all() and (kinds[262:] == APICAL).all() and len(kinds) == 639


def test_default_morphology_has_the_published_dimensions(default_cell):
    assert len(default_cell.synapse_node) == 639
    assert (default_cell.kind == BASAL).sum() + (default_cell.kind == APICAL).sum() == 640
    silent = np.setdiff1d(np.flatnonzero(np.isin(default_cell.kind, (BASAL, APICAL))), default_cell.synapse_node)
    assert default_cell.area[silent[0]] == default_cell.area[default_cell.area > 0].min()


@pytest.mark.parametrize("cell_fixture", ["exact_cell", "default_cell"])
def test_parents_come_first_and_carry_current(cell_fixture, request):
    cell = request.getfixturevalue(cell_fixture)
    assert cell.parent[0] == -1 and (cell.parent[1:] < np.arange(1, len(cell.parent))).all()
    assert (cell.axial[1:] > 0).all() and (cell.area[cell.kind != BRANCH_POINT] > 0).all()


def test_voltage_and_spikes_equal_neurons(exact_cell, shared):
    """NEURON with the same 0.025 ms step; Arbor and NEURON reach 0.1 mV to 500 ms and 18 of 23 spikes between
    themselves."""
    with np.load(shared / "l5pc" / "reference_6s.npz") as reference:
        synapse, time_ms = reference["synapse"].astype(int), reference["time_ms"].astype(int)
        voltage, spikes = reference["neuron_dt0025_v_mV"], reference["neuron_dt0025_spikes_ms"]
    duration_ms = 1000
    spikes = spikes[spikes < duration_ms]
    channel = np.where(synapse < 639, 2 * synapse, 2 * (synapse - 639) + 1)
    order = np.lexsort((channel, time_ms))
    order = order[time_ms[order] < duration_ms]
    recording = l5pc.simulate(
        exact_cell, to_indptr(time_ms[order], duration_ms)[None], channel[order].astype(np.uint16), dt_ms=0.025
    )
    ours = recording.at_whole_ms()[0, 0]
    assert np.abs(ours - voltage[:duration_ms])[:500].max() < 0.01  # before the first burst
    found = l5pc.output_spikes(recording.voltage[:, 0, 0], recording.time_step)
    assert len(spikes) > 5 and len(found) == len(spikes)
    assert np.abs(found - spikes).max() < 2.0


def test_voltage_equals_neurons_frozen_trace(default_cell):
    """The default morphology under random input, all channels and synapses; see freeze_neuron_trace.py."""
    with np.load(Path(__file__).parents[1] / "data" / "neuron_default_cell.npz") as trace:
        recording = l5pc.simulate(default_cell, trace["indptr"][None], trace["channel"], dt_ms=0.025)
        np.testing.assert_allclose(recording.at_whole_ms()[0, 0], trace["voltage_mV"], rtol=0, atol=0.005)


def test_lanes_do_not_see_each_other(default_cell):
    """A simulation is the same bits in any lane, beside any others."""
    duration_ms = 60
    inputs = [draw_input(default_cell, seed=3, index=i, ranges="script", duration_ms=duration_ms) for i in range(5)]

    def voltages(order):
        channels = [inputs[i][0] for i in order]
        before = np.cumsum([0] + [len(c) for c in channels[:-1]])
        indptr = np.stack([to_indptr(inputs[i][1], duration_ms) + k for i, k in zip(order, before, strict=True)])
        recorded = l5pc.simulate(default_cell, indptr, np.concatenate(channels), dt_ms=0.1).at_whole_ms()[0]
        return dict(zip(order, recorded, strict=True))

    together, alone = voltages([4, 2, 0, 1, 3]), voltages([1])
    np.testing.assert_array_equal(together[1], alone[1])
    assert not np.array_equal(together[1], together[2])


def test_solve_tree_solves_the_cable_equation(default_cell):
    rng = np.random.default_rng(0)
    n = len(default_cell.parent)
    v = rng.normal(-70, 5, (n, l5pc.LANES))
    current = rng.normal(0, 0.1, (n, l5pc.LANES))
    base, *_ = l5pc.membrane(default_cell, 0.1)
    laplacian = np.zeros((n, n))
    for c in range(1, n):
        p, a = default_cell.parent[c], np.float32(default_cell.axial[c])
        laplacian[[c, p, c, p], [c, p, p, c]] += [a, a, -a, -a]
    matrix = laplacian + np.diag(base - np.diag(laplacian)) + np.eye(n) * 0.01
    expected = v + np.linalg.solve(matrix, current - laplacian @ v)

    v32, diagonal, rhs = (x.astype(np.float32) for x in (v, np.repeat(base[:, None] + 0.01, l5pc.LANES, 1), current))
    l5pc.solve_tree(default_cell.parent, default_cell.axial.astype(np.float32), v32, diagonal, rhs)
    np.testing.assert_allclose(v32, expected, atol=2e-3)


def test_output_spikes_are_the_peaks_above_threshold():
    t = np.arange(0, 100 + 1e-9, 0.025)
    v = (
        -70
        + 95 * np.exp(-(((t - 20.3) / 0.5) ** 2))
        + 40 * np.exp(-(((t - 50) / 0.5) ** 2))
        - 0.1 * np.exp(-(((t - 70) / 1) ** 2))
    )
    spikes = l5pc.output_spikes(v, 0.025)
    assert len(spikes) == 1 and abs(spikes[0] - 20.3) <= 0.125


def test_a_diverging_run_is_loud():
    cell = single_compartment("soma")
    with pytest.raises(FloatingPointError, match="diverged"):
        l5pc.simulate(
            cell,
            np.zeros((1, 21), np.int64),
            np.zeros(0, np.uint16),
            dt_ms=0.1,
            inject_node=0,
            inject_nA=np.full((1, 20), np.nan),
        )


def test_bad_arguments_are_named(tmp_path):
    cell = single_compartment("soma")
    with pytest.raises(ValueError, match=r"dt_ms = 0\.03"):
        l5pc.simulate(cell, np.zeros((1, 2), np.int64), np.zeros(0, np.uint16), dt_ms=0.03)
    with pytest.raises(DataError, match="no such morphology"):
        load_cell(tmp_path / "cell1.asc")
    (tmp_path / "cell1.asc").write_text("(edited)")
    with pytest.raises(DataError, match="no known morphology"):
        load_cell(tmp_path / "cell1.asc")


def test_the_drawn_segments_are_those_of_the_synapses(default_morphology, default_cell):
    sketch = load_sketch(default_morphology)
    assert sketch.segments.shape == (639, 5, 2)
    drawn = np.linalg.norm(np.diff(sketch.segments, axis=1), axis=2).sum(axis=1)
    length = default_cell.length[default_cell.synapse_node]
    assert np.all(drawn < 1.001 * length) and drawn.sum() > 0.6 * length.sum()  # seen from one side
    parent = default_cell.parent
    number = {int(node): i for i, node in enumerate(default_cell.synapse_node)}
    ends = [(number[int(parent[node])], i) for node, i in number.items() if int(parent[node]) in number]
    assert len(ends) > 300  # segments of one section follow each other
    for before, after in ends:
        np.testing.assert_allclose(sketch.segments[before, -1], sketch.segments[after, 0])
