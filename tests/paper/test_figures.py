"""Figures draw from every table that a profile can give, in the paper's colours, and with the same bytes each time."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
import torch
from matplotlib.collections import PathCollection

from elm_lib.datasets.neuronio.example import stretch
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.datasets.shd.batches import BINS_MS
from elm_lib.datasets.shd.schema import Recordings
from elm_lib.neuron import ELM, BranchELM
from elm_lib.paper import pictures
from elm_lib.paper.figures import ablations, lra, neuron, neuronio, shd, style
from elm_lib.simulate.cell.sketch import load_sketch

pytest_plugins = ["simulate_fixtures"]

LABEL = "profile smoke, generated data"
NOT_RUN = "not run yet under this profile"
EMPTY = {name: np.nan for name in ("auc_mean", "auc_std", "rmse_mean", "rmse_std", "tp_mean", "tp_std")}


@pytest.fixture(autouse=True)
def _look():
    style.use()
    yield
    plt.close("all")


def _point(model, parameters, auc, budget=1.0, **more) -> dict:
    scores = {"auc_mean": auc, "auc_std": 0.0, "rmse_mean": 1.6 - auc, "rmse_std": 0.0, "tp_mean": 0.3, "tp_std": 0.0}
    cost = {"parameters": parameters, "flops": 1e3 * parameters, "seeds": 1, "budget": budget}
    return {"model": model, **cost, **scores, **more}


# ours at several budgets, one that diverged, one far below the others; no ELM
OURS = pd.DataFrame(
    [
        _point("Branch-ELM", 8_022, 0.992, auc_error=0.0014),
        _point("Branch-ELM", 8_022, 0.985, budget=0.1),
        _point("Branch-ELM", 12_000, 0.99, budget=0.1),
        _point("LSTM", 10_254, 0.90),
        _point("LSTM", 77_672, 0.98, seeds=3, auc_std=0.002),
        _point("LSTM", 99_999, np.nan) | EMPTY,
    ]
)
THEIRS = pd.DataFrame([_point(model, 5e4, 0.991) for model in neuronio.MODELS]).drop(columns=["seeds", "budget"])
NOTHING = OURS.iloc[:0]


@pytest.fixture
def simulations(tmp_path) -> SimulationSet:
    rng, duration = np.random.default_rng(0), 1200
    write_simulations(
        tmp_path / "a.h5",
        spikes=[np.nonzero(rng.random((1278, duration)) < 0.005)],
        soma_voltage=rng.normal(-65, 3, (1, duration)),
        output_spikes_ms=[np.array([100.6, 700.6, 900.6])],
        source="generated",
        provenance={},
    )
    return SimulationSet(tmp_path)


@pytest.fixture(scope="session")
def sketch(default_morphology):
    return load_sketch(default_morphology)


def _texts(figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(plt.Text) if text.get_visible()]


def _drawn(axis, model) -> list[plt.Line2D]:
    """Lines with marks in the colour of a model; the caps of error bars are none."""
    return [line for line in axis.lines if line.get_color() == style.COLORS[model] and line.get_marker() in "so^"]


def test_models_have_the_colours_of_the_paper():
    palette = sns.color_palette("colorblind").as_hex()
    paper = {"ELM": (1, 115, 178), "Branch-ELM": (86, 180, 233), "LSTM": (222, 143, 5), "TCN": (213, 94, 0)}
    assert set(style.COLORS.values()) <= set(palette)
    assert {model: style.COLORS[model] for model in paper} == {
        m: f"#{r:02x}{g:02x}{b:02x}" for m, (r, g, b) in paper.items()
    }


def test_what_is_stored_is_what_the_neuron_saw(simulations):
    """The prediction over the stored stretch is that over the data set's, and the figure's input is the data set's."""
    torch.manual_seed(0)
    model = BranchELM(1278, 3, d_o=2, d_tree=5, d_brch=300, engine="reference", batch_first=True)
    shown = stretch(simulations, 0, 650, 950, model)
    assert {name: shown[name].dtype for name in ("time", "channel", "soma", "spike", "p", "v")} == {
        **dict.fromkeys(("time", "channel", "spike"), np.dtype("uint16")),
        **dict.fromkeys(("soma", "p", "v"), np.dtype("float16")),
    }
    assert shown["spike"].tolist() == [50, 250]  # at 700 and 900 ms
    x = torch.from_numpy(simulations.dense(0, 150, 950)).unsqueeze(0)
    with torch.no_grad():
        y, (s, m) = model(x)
    run = neuronio.trace(model, shown, n_synapse=model.n_synapse)
    torch.testing.assert_close(torch.from_numpy(run["p"]), torch.sigmoid(y[0, 500:, 0]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(run["m"][-1]), m[0], rtol=1e-4, atol=1e-5)
    branch = model.branch_of[model.routing_mask]  # of the synapses that have an input; they add up to the branches
    sums = torch.zeros(5).index_add(0, branch, torch.from_numpy(run["s"][-1]))
    torch.testing.assert_close(sums, s[0], rtol=1e-4, atol=1e-4)
    assert len(run["time_ms"]) == len(run["p"]) == len(shown["v"]) == 300
    assert neuronio.trace(model, shown)["s"].shape == (300, 20)
    early = stretch(simulations, 0, 200, 500)
    assert early["lead_ms"] == 200 and "p" not in early  # no more input before than there is

    _, axis = plt.subplots()
    neuronio.raster(axis, shown)
    dots = {tuple(dot) for part in axis.collections for dot in part.get_offsets().astype(int).tolist()}
    times, channels = np.nonzero(simulations.dense(0, 650, 950))
    assert dots == set(zip((650 + times).tolist(), channels.tolist(), strict=True))


def test_scores_show_every_budget_and_say_what_did_not_run():
    figure = neuronio.scores(OURS, THEIRS, LABEL)
    rmse, auc = figure.axes
    assert LABEL in _texts(figure) and NOT_RUN not in _texts(figure)
    names = [text.get_text() for text in figure.legends[0].texts]
    assert {"Branch-ELM", "ELM (not run)", "LSTM", "TCN (cited)", "ours, of fewer steps", "published"} <= set(names)
    for axis in (rmse, auc):
        hollow = [line for line in _drawn(axis, "Branch-ELM") if line.get_markerfacecolor() == "none"]
        assert [line.get_xdata().tolist() for line in hollow] == [[8_022, 12_000]]
        assert hollow[0].get_linestyle() == "None"
        assert {line.get_alpha() for line in _drawn(axis, "ELM") + _drawn(axis, "TCN")} == {0.35}
        assert len(_drawn(axis, "TCN")[0].get_xdata()) == (1 if axis is rmse else 4)
    assert auc.get_ylim()[0] == 0.984 and "0.9" in [text.get_text() for text in auc.texts]  # marked at the edge

    by_flops = neuronio.scores(OURS, THEIRS, LABEL, x="flops")
    assert not any("TCN" in text.get_text() for text in by_flops.legends[0].texts)  # the paper gives no FLOPs of it
    without = neuronio.scores(NOTHING, THEIRS, LABEL)
    assert _texts(without).count(NOT_RUN) == 2


def test_an_error_bar_is_the_spread_over_seeds_or_the_sampling_error_of_one():
    _, axis = plt.subplots()
    style.curves(axis, OURS, "parameters", "auc", "ours")
    bars = {}
    for collection in axis.collections:
        for segment in collection.get_segments():
            if len(segment):
                (x, low), (_, high) = segment
                bars[round(x), round((low + high) / 2, 6)] = (high - low) / 2
    assert bars == {(8_022, 0.992): pytest.approx(0.0014), (77_672, 0.98): pytest.approx(0.002)}
    (branch,) = [line for line in _drawn(axis, "Branch-ELM") if line.get_markerfacecolor() != "none"]
    assert branch.get_ydata().tolist() == [0.992]


@pytest.mark.parametrize("ours", [OURS, NOTHING], ids=["ours", "nothing"])
def test_figures_of_one_simulation(simulations, sketch, ours):
    kind = ELM if ours is NOTHING else partial(BranchELM, d_tree=5, d_brch=300)
    model = kind(1278, 3, d_o=2, batch_first=True)
    shown = stretch(simulations, 0, 650, 750, model)
    whole = stretch(simulations, 0, 0, 900, model)
    shown |= {f"whole_{name}": whole[name] for name in ("spike", "soma", "p", "v")}
    figure = neuronio.dynamics(model, shown, LABEL)
    assert NOT_RUN not in _texts(figure) and LABEL in _texts(figure)
    assert [len(axis.lines) for axis in figure.axes[3:]] == [20, 3]
    assert _texts(neuronio.dynamics(None, None, LABEL)).count(NOT_RUN) == 4  # input, prediction, traces, memory
    assert _texts(neuronio.dynamics(None, stretch(simulations, 0, 650, 750), LABEL)).count(NOT_RUN) == 3
    missing = len(ours) == 0
    assert _texts(neuronio.data_and_results(sketch, shown, ours, THEIRS, LABEL)).count(NOT_RUN) == 2 * missing
    assert _texts(neuronio.data_and_results(None, None, ours, THEIRS, LABEL)).count(NOT_RUN) == 2 * missing + 1
    branch = BranchELM(1278, 3, d_o=2, d_tree=5, d_brch=300)
    figure = neuronio.branches(branch, sketch, ours, shown, LABEL)
    assert figure.axes[-1].get_xlim() == (0, 900)  # panel b has the whole simulation
    coloured = [part for part in figure.axes[0].collections if len(part.get_segments()) > 100]
    assert len(coloured) == 4  # all dendrites, and three branches of 150 segments
    assert _texts(figure).count(NOT_RUN) == missing and "published, read off the picture" in _texts(figure)
    assert _texts(neuronio.branches(branch, None, ours, None, LABEL)).count(NOT_RUN) == missing + 1


def test_the_neuron_beside_its_cell(simulations, sketch):
    shown = stretch(simulations, 0, 650, 750)
    figure = neuron.neuron(sketch, shown, LABEL)
    cell, trace, diagram, _ = figure.axes
    synapses = next(part for part in cell.collections if isinstance(part, PathCollection))
    assert len(synapses.get_offsets()) == 160  # of 639
    assert trace.lines[0].get_ydata().tolist() == shown["soma"].tolist()
    boxes = {text.get_text().split("$")[0].strip() for text in diagram.texts}
    assert {"synapse\ncurrents", "MLP", "memory\nunits"} <= boxes
    written = {text.get_text() for text in figure.findobj(plt.Text)}
    assert {piece for line in neuron.EQUATIONS for piece, _ in line} <= written and LABEL in written
    assert neuron.PARTS["leaky memory"] == "#0173b2"  # blue, as in the paper
    without = neuron.neuron(None, None, LABEL)
    assert "no reconstruction at hand" in _texts(without)


@pytest.fixture
def points():
    """The published points of a figure, with ours 0.001 below at a sixth of the budget; `runs` False: without ours."""

    def made(figure, runs=True):
        found = pictures.published_points().query("figure == @figure").reset_index(drop=True)
        found = found.rename(columns={"value_read_off_the_picture": "published"})
        values = {
            "mean": found.published - 0.001,
            "std": 0.0,
            "error": 0.0005,
            "seeds": 1,
            "diverged": 0,
            "budget": 1 / 6,
        }
        return found.assign(**(values if runs else dict.fromkeys(values, float("nan"))))[pictures.CURVE_COLUMNS]

    return made


@pytest.mark.parametrize(
    ("name", "draw", "panels"), [("3", "ablations", 8), ("S3", "ablations", 8), ("S4", "improved", 4)]
)
def test_ablations_show_every_published_point_with_ours_below(points, name, draw, panels):
    figure = getattr(ablations, draw)(points(f"Fig {name}"), LABEL)
    assert len(figure.axes) == panels and LABEL in _texts(figure)
    table = points(f"Fig {name}")
    for letter, axis in zip("abcdefgh", figure.axes):
        part = table[(table.panel == letter) & (table.varied != ablations.LINEAR)]
        lines = [line.get_ydata() for line in axis.lines if line.get_marker() in ("o", "s")]
        assert sorted(sum(line) for line in lines) == pytest.approx(sorted([part["mean"].sum(), part.published.sum()]))
        assert axis.get_ylim() == ablations.AUC_RANGE
        one = (part.x == 1).any() and part.varied.iloc[0] in ("maximal tau_m", "constant tau_m")
        assert len(axis.child_axes) == one  # T = 1 in an inset
        triangles = [line for line in axis.lines if line.get_marker() == "^"]
        assert len(triangles) == (ablations.AXES[part.varied.iloc[0]][1] is not None)
    if name != "S4":  # the model without a hidden layer: published, and ours
        greys = [line.get_ydata()[0] for line in figure.axes[1].lines if line.get_color() == ablations.GREY]
        assert greys == pytest.approx(
            [table[table.varied == ablations.LINEAR].published.item() - d for d in (0, 0.001)]
        )
    without = getattr(ablations, draw)(points(f"Fig {name}", runs=False), LABEL)
    assert any("(not run)" in text for text in _texts(without))


def test_divergent_runs_are_counted_beside_their_point(points):
    table = points("Fig S3")
    table.loc[(table.varied == "lambda") & (table.x == 20), "diverged"] = 1
    assert _texts(ablations.ablations(table, LABEL)).count("1*") == 1


def test_variants_of_the_branch_elm_stand_beside_the_default(points):
    table = points("Fig S2")
    figure = ablations.smaller_lambda(table, table.assign(model="Branch-ELM lambda=10"), LABEL)
    assert [axis.get_ylabel() for axis in figure.axes] == list(
        ablations.SCORES[score] for score in ("rmse", "auc", "tp@0.0025")
    )
    table = points("Fig S6")
    default = table[table.model == "w_s not learnable"].assign(model="Branch-ELM")
    figure = ablations.branch_architecture(table, default, LABEL)
    assert set(ablations.BRANCHES) <= {text.get_text() for text in figure.legends[0].texts}
    assert len([line for line in figure.axes[0].lines if line.get_marker() in ("o", "s")]) == 10  # five curves, twice


def test_simpler_neurons_stand_beside_the_biophysical_one(points):
    figure = ablations.simple_neurons(points("Fig S7"), 0.99, LABEL)
    drawn = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "s")]
    assert len(drawn) == 6 and set(ablations.TEACHERS) <= {text.get_text() for text in figure.legends[0].texts}
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert [line.get_ydata()[0] for line in stars] == [0.99]
    without = ablations.simple_neurons(points("Fig S7", runs=False), float("nan"), LABEL)
    assert not [line for line in without.axes[0].lines if line.get_marker() == "*"]


def test_published_true_positive_rates_stand_at_the_parameters_of_their_tables():
    points = neuronio._published_tp().set_index(["model", "size"])
    assert points.parameters[("Branch-ELM", 20)] == 8_100 and points.tp_mean[("Branch-ELM", 20)] == 0.347
    assert points.parameters[("TCN", 9_200_000)] == 9_200_000
    assert points.parameters.notna().all() and len(points) == 22


# ---- spoken digits --------------------------------------------------------------------------------------------------

SCORES = [f"{split}_accuracy_{what}" for split in shd.SPLITS for what in ("mean", "std")]


def _words_table(rows) -> pd.DataFrame:
    """Of (model, bin, budget, accuracy), published 0.8 each."""
    table = pd.DataFrame(rows, columns=["model", "bin_ms", "budget", "accuracy"])
    table = table.assign(seeds=table.accuracy.notna().astype(float).replace(0, np.nan))
    for name in SCORES:
        mean = name.endswith("mean")
        table[name], table[f"{name}_published"] = (table.accuracy if mean else 0.0), (0.8 if mean else 0.02)
    return table


WORDS = _words_table(
    [
        ("ELM", 1, 0.1, 0.4),
        ("ELM", 2, 1.0, 0.7),
        ("ELM", 10, 1.0, np.nan),
        ("LSTM", 2, np.nan, np.nan),
        ("SNN", 10, 0.1, 0.1),
    ]
)


@pytest.fixture
def recordings(tmp_path) -> Recordings:
    rng = np.random.default_rng(0)
    time_s = np.sort(rng.uniform(0, 1.2, (2, 50)), axis=1).astype(np.float16).ravel()
    channel = rng.integers(0, 700, 100).astype(np.uint16)
    return Recordings(
        tmp_path, "generated", np.array([0, 50, 100]), time_s, channel, np.array([3, 16]), np.zeros(2, int)
    )


def _hollow(axis, model) -> list[plt.Line2D]:
    return [line for line in _drawn(axis, model) if line.get_markerfacecolor() == "white"]


def test_accuracies_over_bin_size(points, recordings):
    figure = shd.default(WORDS, LABEL)
    names = [text.get_text() for text in figure.legends[0].texts]
    short = "ours, less than the published training"
    assert set(names) - {"ours"} == {"ELM", "LSTM (not run)", "SNN", short, "published", "chance"}
    assert _hollow(figure.axes[2], "ELM")[0].get_xdata().tolist() == [0]  # of 1 ms: one line through all budgets
    assert [len(line.get_xdata()) for line in _drawn(figure.axes[2], "ELM")] == [3, 2, 1]  # published, ours, hollow
    empty = WORDS.assign(**dict.fromkeys([name for name in SCORES if name.endswith("mean")], np.nan), budget=np.nan)
    assert _texts(shd.default(empty, LABEL)).count(NOT_RUN) == 3
    assert shd.default(empty, LABEL).legends[0].texts and short not in _texts(shd.default(empty, LABEL))

    table = points("Fig 5")
    table.loc[table.panel == "f", "mean"] = np.nan
    table.loc[table.x == 100, "budget"] = 1.0
    figure = shd.adding(recordings, (0, 1), WORDS, table, LABEL)
    assert "a) three + sechs = 9" in _texts(figure) and _texts(figure).count(NOT_RUN) == 1
    by_d_m, by_tau_m = figure.axes[4:]
    assert [len(line.get_xdata()) for line in _drawn(by_d_m, "ELM")] == [13, 13, 12]  # all but d_m = 100 are hollow
    assert [len(line.get_xdata()) for line in _drawn(by_tau_m, "ELM")] == [10]


def test_every_bin_is_named_and_every_error_bar_is_whole(points, recordings):
    table = WORDS.assign(test_accuracy_std_published=0.45)  # 0.8 + 0.45: beyond 1
    for figure in (shd.default(table, LABEL), shd.adding(recordings, (0, 1), table, points("Fig 5"), LABEL)):
        panels = [axis for axis in figure.axes if axis.get_xlabel() == "bin size (ms)"]
        assert len(panels) == 3
        for axis in panels:
            assert [label.get_text() for label in axis.get_xticklabels()] == list(map(str, BINS_MS))
        for axis in figure.axes:
            if not axis.get_title().startswith("a) three"):
                (low, high), (bottom, top) = axis.dataLim.intervaly, axis.get_ylim()
                assert bottom <= low and high <= top and top > 1.25
    assert style.COLORS["SNN"].lower() == "#d55e00"


# ---- Long Range Arena -----------------------------------------------------------------------------------------------


def test_synapse_timescales():
    table = pd.DataFrame({"size": [5.0, 300.0], "test_mean": [60.0, 75.0], "test_std": [2.0, np.nan]})
    table = table.assign(test_max=[62.0, 75.0], seeds=[3, 1])
    figure = lra.tau_s(table, LABEL)
    axis = figure.axes[0]
    drawn = {(line.get_marker(), line.get_alpha()): line.get_ydata().tolist() for line in _drawn(axis, "ELM")}
    assert drawn["s", None] == [60, 75] and drawn["^", None] == [62, 75]
    assert drawn["s", 0.35] == pytest.approx([57.41, 60.07, 80.24, 70.64, 59.4, 78.3, 77.33, 75.08])
    assert drawn["^", 0.35][0] == pytest.approx(71.3)
    assert axis.get_xlim()[1] > 300 and NOT_RUN not in _texts(figure)
    assert NOT_RUN in _texts(lra.tau_s(table.iloc[:0], LABEL))


# ---- files ----------------------------------------------------------------------------------------------------------


def test_the_same_bytes_twice(tmp_path, simulations, sketch):
    shown = stretch(simulations, 0, 850, 950)
    written = []
    for folder in ("a", "b"):
        figure = neuronio.data_and_results(sketch, shown, OURS, THEIRS, LABEL)
        written.append([path.read_bytes() for path in style.save(figure, tmp_path / folder, "fig2")])
        plt.close(figure)
    assert written[0] == written[1] and all(written[0])
    assert b"DejaVu" in written[0][0]  # the font that comes with matplotlib, whatever else is installed
