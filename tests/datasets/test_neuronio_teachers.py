"""NeuronIO's input with the output of a point neuron."""

import json

import numpy as np
import pytest

from elm_lib.datasets.neuronio import recipe
from elm_lib.datasets.neuronio.schema import N_CHANNELS, SimulationSet
from elm_lib.datasets.neuronio.settings import NeuronIO
from elm_lib.datasets.neuronio.task import Task
from elm_lib.datasets.neuronio.teachers import taught
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.simulate import point_neurons
from elm_lib.support.errors import ConfigError


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    write_simulations(
        tmp_path / "test" / "sims_00000.h5",
        spikes=[(2 * rng.integers(N_CHANNELS // 2, size=9000), rng.integers(1200, size=9000)) for _ in range(2)],
        soma_voltage=rng.normal(-65, 5, (2, 1200)),
        output_spikes_ms=[np.array([700.0])] * 2,
        source="generated",
        provenance={"made": 1},
    )
    return tmp_path


@pytest.mark.parametrize("kind", point_neurons.KINDS)
def test_the_output_is_that_of_the_equations(folder, kind):
    cell, neuron = SimulationSet(folder / "test"), taught(folder, "test", kind)
    w = point_neurons.weights(N_CHANNELS)
    for n in range(2):
        np.testing.assert_array_equal(cell.dense(n), neuron.dense(n))
        file, k = neuron[n]
        _, _, voltage, bins = file.window(k, 0, 1200)
        g = a = 0.0
        v, seen, expected = -70.0, [], []
        for t, x in enumerate(np.abs(cell.dense(n))):
            g = np.exp(-1 / 5) * g + x @ w
            v = -70 + np.exp(-1 / 20) * (v + 70) + (1 - np.exp(-1 / 20)) * g
            a *= np.exp(-1 / 200)
            expected.append(v)
            if v > -55 + (4 * a if kind == "alif" else 0):
                seen.append(t)
                v, a = -70.0, a + 1
        np.testing.assert_allclose(voltage, expected, rtol=1e-4)
        assert bins.tolist() == seen and len(seen) > 3


def test_an_adaptive_neuron_spikes_less_and_another_kind_is_refused(folder):
    lif, alif = (len(taught(folder, "test", kind).files[0].output_bins) for kind in point_neurons.KINDS)
    assert 0 < alif < lif
    with pytest.raises(ConfigError, match="teacher = 'izhikevich'"):
        Task(folder, 8, 0, window_ms=500, burn_in_ms=150, teacher="izhikevich")
    with pytest.raises(ValueError, match="izhikevich"):
        point_neurons.simulate(np.zeros((1, 2), np.int64), np.zeros(0, np.uint16), N_CHANNELS, "izhikevich")


def test_files_are_made_once_and_again_when_their_input_changes(folder):
    path = taught(folder, "test", "lif").files[0].path
    first, stamp = path.read_bytes(), path.stat().st_mtime_ns
    taught(folder, "test", "lif")
    assert path.stat().st_mtime_ns == stamp
    path.write_bytes(first[:100])  # damaged: made again, to the same bytes
    with pytest.warns(UserWarning, match="made again"):
        assert taught(folder, "test", "lif").files[0].path.read_bytes() == first
    file, _ = SimulationSet(folder / "test")[0]
    write_simulations(
        file.path,
        spikes=[(np.zeros(1, int), np.zeros(1, int))],
        soma_voltage=np.zeros((1, 1200)),
        output_spikes_ms=[np.zeros(0)],
        source="generated",
        provenance={"made": 2},
    )
    assert taught(folder, "test", "lif").files[0].n_simulations == 1


def test_the_teacher_is_part_of_what_the_data_are():
    split = {"simulations": 4, "duration_ms": 1500, "ranges": "narrow", "dt_ms": 0.1}
    settings = NeuronIO(source="generated", morphology="exact", seed=1, train=split, valid=split, test=split)
    plain, lif, alif = (
        recipe.recipe(settings, "", {"teacher": kind} if kind else {}) for kind in (None, *point_neurons.KINDS)
    )
    assert len({json.dumps(found, sort_keys=True) for found in (plain, lif, alif)}) == 3
    assert (
        all("teacher" in found[part] for found in (lif, alif) for part in ("train", "test")) and "teacher" not in plain
    )
    assert recipe.label(settings, {"teacher": "lif"})["morphology"] == "point neuron"


def test_the_output_for_real_input_is_called_generated(folder):
    file, _ = SimulationSet(folder / "test")[0]
    write_simulations(
        file.path,
        spikes=[(np.zeros(1, int), np.zeros(1, int))],
        soma_voltage=np.zeros((1, 1200)),
        output_spikes_ms=[np.zeros(0)],
        source="real",
        provenance={},
    )
    assert taught(folder, "test", "lif").source == "generated"
