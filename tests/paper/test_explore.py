"""What the notebook `explore` computes, and its controls without ipywidgets."""

import importlib.util
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from elm_lib.experiments.weights import fullest_trained, load_trained
from elm_lib.neuron import ELM
from elm_lib.paper import explore
from elm_lib.paper.figures import explore as figures
from elm_lib.simulate.cell.densities import APICAL

pytest_plugins = ["simulate_fixtures"]
ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = fullest_trained(ROOT / "results/ledger/neuronio/neuronio_branch_elm", 20)


@pytest.fixture(scope="module")
def model():
    return load_trained(WEIGHTS)


@pytest.fixture(scope="module")
def shown():
    return dict(np.load(WEIGHTS.with_name(f"{WEIGHTS.stem}_shown.npz")))


@pytest.mark.parametrize("update", ["original", "improved"])
def test_one_synapse_is_the_neuron(update):
    """The same as an ELM whose MLP passes on its synapse."""
    given = {"tau_m_range": (30.0, 30.0), "tau_m_bounds": (0.0, 500.0), "tau_s": 7.0, "lambda_": 4.0, "delta_t": 2.0}
    elm = ELM(1, 1, l_mlp=0, memory_update=update, batch_first=True, engine="reference", **given)
    x = torch.zeros(1, 50, 1)
    x[0, [5, 20], 0] = 1
    with torch.no_grad():
        elm.layers[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
        elm.layers[0].bias.zero_()
        m, _ = elm(x)
    found = explore.one_synapse((10, 40), 100, 30.0, 7.0, 4.0, 2.0, improved=update == "improved")
    np.testing.assert_allclose(found["m"], m[0, :, 0].numpy(), atol=1e-5)
    assert found["x"].sum() == 2 and found["t"][-1] == 98


def test_the_prediction_is_the_stored_one_and_lesions_spoil_it(model, shown):
    lead = int(shown["lead_ms"])
    x = explore.input_of(shown)
    stored = {name: np.stack([shown[name]]) for name in ("v", "p")}
    whole = explore.predict(model, x)
    assert np.abs(whole["v"][:, lead:] - stored["v"]).max() < 0.1  # mV, stored in half precision
    spike, soma = np.zeros((1, x.shape[1]), int), np.full((1, x.shape[1]), -70.0)
    spike[0, lead + shown["spike"].astype(int)] = 1
    soma[0, lead:] = np.minimum(shown["soma"].astype(float), -55)
    tests = explore.Tests(x, soma, spike)
    good = explore.scores(whole, tests)
    assert good["auc"] > 0.9 and good["rmse"] < 2
    for change in ({"units": range(10)}, {"branches": range(20)}, {"linear": True}):
        lost = explore.scores(explore.predict(explore.lesion(model, **change), x), tests)
        assert lost["auc"] < good["auc"] - 0.05 and lost["rmse"] > good["rmse"] + 1, change
    assert explore.scores(explore.predict(explore.lesion(model), x), tests) == good


def test_a_few_tests_are_simulated_and_drawn(model, default_cell):
    tests = explore.simulate_tests(default_cell, n=2, duration_ms=700)
    assert tests.x.shape == (2, 700, 1278) and tests.soma.shape == tests.spike.shape == (2, 700)
    assert set(tests.x.unique().tolist()) == {-1.0, 0.0, 1.0} and tests.soma.max() <= -55
    assert (tests.x[..., ::2] >= 0).all() and (tests.x[..., 1::2] <= 0).all()
    whole = explore.predict(model, tests.x)
    figure = figures.lesioned(tests, explore.predict(explore.lesion(model, units=[0]), tests.x), whole)
    assert "RMSE" in figure.axes[0].get_title(loc="left")
    plt.close(figure)


def test_a_lesioned_unit_stays_at_rest_and_a_lesioned_branch_is_not_seen(model, shown):
    lesioned, without_synapses = explore.lesion(model, units=[3], branches=[5]), explore.lesion(model, units=[3])
    x = explore.input_of(shown)[:, :300]
    with torch.no_grad():
        without_synapses.proto_w_s.reshape(model.d_tree, model.d_brch)[5] = 0.0
        lesioned.w_y = without_synapses.w_y = None
        (m, _), (same, _) = lesioned(x), without_synapses(x)
    assert (m[..., 3] == 0).all() and m[..., 4].abs().max() > 0.1
    torch.testing.assert_close(m, same, atol=1e-4, rtol=1e-4)


def test_excitation_before_a_spike_raises_it(model, shown):
    field = explore.receptive_field(model, shown, 40).numpy()
    assert field.shape == (40, 1278)
    assert field[-6:, ::2].mean() > 0 and field[-6:, 1::2].mean() > 0  # an inhibitory spike enters as -1
    assert np.abs(field[-10:]).mean() > 2 * np.abs(field[:10]).mean()  # what is recent counts
    quiet = explore.receptive_field(model, shown, 40, quiet=True).numpy()
    assert np.abs(quiet - field).max() > 0


def test_input_is_drawn_at_the_rates_and_places_asked_for(default_cell):
    channel, time = explore.draw_spikes(default_cell, 20.0, 5.0, 0.0, "apical", 2000)
    segments = explore.channels_at(default_cell, "apical")
    assert set(channel // 2) <= set(segments) and (np.diff(time) >= 0).all()
    assert (default_cell.kind[default_cell.synapse_node[segments]] == APICAL).all()
    hz = np.array([np.sum(channel % 2 == kind) for kind in (0, 1)]) / 2 / len(segments)
    np.testing.assert_allclose(hz, [20, 5], rtol=0.1)
    channel, time = explore.draw_spikes(default_cell, 5.0, 0.0, 1.0, "everywhere", 1000)
    assert set(time) == set(range(25, 1000, 50))
    near, far = (
        default_cell.distance[default_cell.synapse_node[explore.channels_at(default_cell, p)]]
        for p in explore.PLACES[3:]
    )
    assert near.max() < far.min()


def test_the_cell_and_the_model_get_the_same_input(model, default_cell):
    channel, time = explore.draw_spikes(default_cell, 9.0, 3.0, 0.1, "everywhere", 60)
    found = explore.beside_the_cell(model, default_cell, channel, time, 60)
    assert {name: len(found[name]) for name in ("soma", "v", "p")} == {"soma": 60, "v": 60, "p": 60}
    nothing = explore.beside_the_cell(model, default_cell, channel[:0], time[:0], 60)
    assert np.abs(found["soma"] - nothing["soma"]).max() > 1 and np.abs(found["v"] - nothing["v"]).max() > 1


def test_the_tree_diagram_keeps_every_branch_apart(default_cell, model):
    places = explore.layout(default_cell)
    tips = np.setdiff1d(np.arange(len(default_cell.parent)), default_cell.parent)
    assert len(set(places[tips, 0])) == len(tips)
    apical = default_cell.kind == APICAL
    assert (places[apical, 1] > 0).all() and places[:, 1].min() < 0
    weight = explore.weight_by_input(model)
    assert weight.shape == (1278,) and weight.sum() == pytest.approx(model.w_s.detach().sum().item(), rel=1e-4)


def test_pictures_are_drawn_once_without_widgets(monkeypatch):
    drawn = []
    controls = {"a": figures.Slider("a", 3, 0, 5), "b": figures.Choice("b", "x", ("x", "y"))}
    assert figures.interact(lambda **values: drawn.append(values), controls, live=False) is None
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ipywidgets" else real(name))
    assert figures.interact(lambda **values: drawn.append(values), controls) is None
    assert drawn == 2 * [{"a": 3, "b": "x"}]


def test_controls_draw_again_when_they_move():
    pytest.importorskip("ipywidgets")
    drawn = []
    controls = {"a": figures.Slider("a", 3, 0, 5), "b": figures.Choice("b", "x", ("x", "y"))}
    box = figures.interact(lambda **values: drawn.append(values), controls)
    slider, choice = box.children[:2]
    slider.value, choice.value = 5, "y"
    assert drawn[0] == {"a": 3, "b": "x"} and drawn[-1] == {"a": 5, "b": "y"}
    plt.close("all")
