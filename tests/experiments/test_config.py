"""params.yaml: what is refused, and how it is said."""

import re
from pathlib import Path

import pytest
import yaml

from elm_lib.datasets import task_class
from elm_lib.experiments import config
from elm_lib.models.cost import parameters
from elm_lib.models.registry import build
from elm_lib.paper.pictures import published_points
from elm_lib.support.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def _with(tmp_path, change) -> Path:
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    change(raw)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(raw):
        for key in keys:
            raw = raw[key]
        raw[last] = value

    return change


NEURONIO, SHD, LRA = (("experiments", name) for name in ("neuronio", "shd", "lra"))
SMOKE, DESK = (("profiles", name) for name in ("smoke", "desk"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("profil", "desk"), ["unknown key 'profil'"]),
        (_set("profile", "lap"), ["profile = 'lap'", "'smoke'"]),
        (_set("fresh", "yes"), ["fresh = 'yes'"]),
        # what experiments share is named where it stands, once
        (_set(*NEURONIO, "shared", "train", "lr", "fast"), [": experiments.neuronio.shared.train.lr = 'fast'"]),
        (_set(*NEURONIO, "neuronio_elm", "train", {"lr": "fast"}), ["neuronio.neuronio_elm.train.lr = 'fast'"]),
        (_set(*NEURONIO, "shared", "train", "batch_size", 8.5), ["neuronio.shared.train.batch_size = 8.5"]),
        (_set(*NEURONIO, "shared", "train", "rate", 1.0), ["unknown key 'experiments.neuronio.shared.train.rate'"]),
        (_set(*NEURONIO, "shared", "typo", 1), ["unknown key 'experiments.neuronio.shared.typo'"]),
        (_set(*NEURONIO, "neuronio_elm", "claim", "Tab"), ["unknown key 'experiments.neuronio.neuronio_elm.claim'"]),
        (_set(*NEURONIO, "shared", "model", {"kind": "elm"}), ["experiments.neuronio: shared", "neuron"]),
        (_set(*NEURONIO, "neuronio_elm", "neuron", {"d_m": 1}), ["experiments.neuronio", "neuronio_elm", "neuron"]),
        (_set(*NEURONIO, "neuronio_elm", "vary", "d_tree"), ["neuronio.neuronio_elm: vary: 'd_tree'"]),
        (_set(*NEURONIO, "data", "cifar"), [": experiments.neuronio.data = 'cifar'", "'shd'"]),
        (_set(*NEURONIO, "neuronio_elm", "data", "shd"), ["experiments.neuronio", "neuronio_elm", "data"]),
        (_set(*NEURONIO, "typo", 3), ["experiments.neuronio.typo = 3"]),
        (_set(*NEURONIO, "shared", 3), ["experiments.neuronio", "shared"]),
        (_set(*SHD, "shared", "values", [2, 2]), ["experiments.shd.shared.values = [2, 2]", "none twice"]),
        (
            _set(*SHD, "lra_elm", {"model": {"kind": "elm"}, "seconds_a_step": {"cpu": 1.0, "cuda": 1.0}}),
            ["two groups"],
        ),
        (_set(*LRA, "lra_elm", "each", "cifar", {"train": {"epochs": 2}}), ["lra.lra_elm: each", "cifar"]),
        (_set(*LRA, "shared", "each", "text", "train", "lr", "fast"), ["lra.shared.each.text.train.lr = 'fast'"]),
        (_set(*LRA, "shared", "each", "text", "train", "rate", 1), ["unknown key 'experiments.lra.shared.each.text"]),
        (_set(*SMOKE, "points", "typo", {}), ["profiles.smoke.points", "typo"]),
        (_set(*SMOKE, "points", "shd", "typo", [1]), ["profiles.smoke.points.shd: 'typo'", "shd_elm"]),
        (
            _set(*SMOKE, "points", "shd", "shd_elm", [3]),
            ["profiles.smoke.points.shd.shd_elm = [3]", "give 'all' or a list"],
        ),
        (
            _set(*SMOKE, "points", "shd", "shd_elm", None),
            ["profiles.smoke.points.shd.shd_elm = None", "give 'all' or a list"],
        ),
        (_set(*SMOKE, "points", "shd", "shd_elm", [100, 100]), ["shd_elm = [100, 100]", "none twice"]),
        (_set(*SMOKE, "lra", "retrieval", None), ["profiles.smoke.lra", "['retrieval']", "out of points"]),
        (lambda raw: raw["profiles"]["smoke"]["caps"].pop("shd"), ["profiles.smoke.caps", "shd"]),
        (_set(*SMOKE, "points", "shd", None), ["profiles.smoke.points.shd = None", "'all' for all of the group"]),
        (_set(*SMOKE, "points", "shd", "most"), ["profiles.smoke.points.shd = 'most'", "'all' for all of the group"]),
        (lambda raw: raw["profiles"]["smoke"]["points"].pop("shd"), ["profiles.smoke.points", "shd"]),
        (_set(*SMOKE, "caps", "shd", "typo", {}), ["profiles.smoke.caps.shd: 'typo'", "'shared'"]),
        (_set(*SMOKE, "caps", "lra", "lra_elm", {"each": {"cifar": {}}}), ["profiles.smoke.caps.lra.lra_elm", "cifar"]),
        (_set(*SMOKE, "caps", "lra", "shared", "each", "cifar", {}), ["profiles.smoke.caps.lra.shared", "cifar"]),
        (_set(*SMOKE, "caps", "lra", "shared", "budgets", []), ["profiles.smoke.caps.lra.shared.budgets = []"]),
        (_set(*DESK, "cap", "each", {}), ["unknown key 'profiles.desk.cap.each'"]),
        (
            _set(*DESK, "caps", "shd", "shd_elm", {"each": {50: {"epochs": 1}}}),
            ["key 50 of profiles.desk.caps", "quotes"],
        ),
        (_set(*DESK, "neuronio", "test", "dt_ms", 0.2), ["profiles.desk.neuronio.test.dt_ms = 0.2"]),
        (_set(*DESK, "runner", "jobs", 0), ["profiles.desk.runner.jobs = 0"]),
        (lambda raw: raw["profiles"]["desk"].pop("cap"), ["'profiles.desk.cap' is missing"]),
        (lambda raw: raw["profiles"].pop(raw["profile"]), ["profile = 'laptop' is not under profiles", "'desk'"]),
    ],
)
def test_a_wrong_value_is_one_line_with_file_key_and_value(tmp_path, change, words):
    path = _with(tmp_path, change)
    with pytest.raises(ConfigError) as error:
        config.load(path)
    text = str(error.value)
    assert "\n" not in text and ": :" not in text and "Value error" not in text
    assert str(path) in text
    assert all(word in text for word in words), text
    assert ";" not in text, f"one fault, one message: {text}"


def test_no_params_file_and_no_yaml(tmp_path):
    with pytest.raises(ConfigError, match="not found"):
        config.load(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("a: [1\n")
    with pytest.raises(ConfigError, match="is not YAML"):
        config.load(tmp_path / "params.yaml")


def test_model_entries_are_checked():
    for model, words in [
        ({"kind": "gru"}, "model.kind = 'gru'"),
        ({"kind": "elm", "d_memory": 3}, "d_memory"),
        ({"kind": "elm", "d_m": 0}, "d_m=0"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(words)):
            build(model, input_size=4, d_o=2)


def test_every_experiment_builds_and_a_profile_only_caps():
    params = config.load(ROOT / "params.yaml")
    for name, experiment in params.experiments.items():
        sizes = task_class(experiment.data).sizes
        for value in experiment.values:
            build(experiment.model_at(value), **sizes(**experiment.options_at(value)))
        for profile in params.profiles:
            for point in params.planned(name, profile):
                assert point.published == experiment.train_at(point.value) and 0 < point.budget <= 1
                assert point.options == experiment.options_at(point.value)
                assert point.model == experiment.model_at(point.value)
                assert point.train.lr == experiment.train.lr
                assert point.seeds == tuple(experiment.seeds[: len(point.seeds)])
                assert point.hours("cuda") > 0
        published = params.planned(name, "paper")
        assert [point.value for point in published] == experiment.values
        assert all(point.budget == 1 and point.train == point.published for point in published)
        assert all(point.seeds == tuple(experiment.seeds) for point in published)


def test_what_a_group_shares_lies_under_its_experiments_and_a_kind_replaces_the_model():
    params = config.load(ROOT / "params.yaml")
    elm, chrono = params.experiment("lra_elm"), params.experiment("lra_chrono")
    neuron = {"d_m": 150, "l_mlp": 1, "lambda_": 5.0, "tau_m_init": "logspace", "tau_s": 5.0, "w_s": 0.5}
    encoder = {"kind": "elm", **neuron, "tau_m_range": [1, 4000], "tau_m_bounds": [1, 4000]}
    assert elm.model_at("retrieval") == {"kind": "two_tower", "d_latent": 75, "encoder": encoder}
    assert elm.model_at("text") == encoder
    assert chrono.model_at("text") == {"kind": "chrono_lstm", "hidden_size": 150, "tau_range": [1, 8000]}
    assert (chrono.train.lr, chrono.train_at("text").lr, chrono.train_at("text").epochs) == (1e-3, 1e-3, 150)
    assert params.group_of("lra_chrono") == "lra"


def test_the_nearest_cap_wins_and_a_point_can_have_several_budgets(tmp_path):
    def change(raw):
        laptop = raw["profiles"]["laptop"]
        laptop["cap"] = {"epochs": 10, "batches_per_epoch": 100, "seeds": 1}
        laptop["points"]["neuronio"] = {"neuronio_elm": [20, 10, 25], "neuronio_lstm": "all"}
        laptop["caps"]["neuronio"] = {
            "shared": {"epochs": 5, "each": {"10": {"seeds": None, "batch_size": 4}}},
            "neuronio_elm": {
                "batches_per_epoch": None,
                "each": {"20": {"budgets": [{}, {"epochs": None, "seeds": 2}]}, "25": {"budgets": [{}, {"seeds": 3}]}},
            },
        }

    params = config.load(_with(tmp_path, change))
    found = [
        (p.value, p.train.epochs, p.train.batches_per_epoch, p.train.batch_size, p.seeds)
        for p in params.planned("neuronio_elm", "laptop")
    ]
    assert found == [
        (20, 5, 11400, 8, (0,)),
        (20, 30, 11400, 8, (0, 1)),
        (10, 5, 11400, 4, (0, 1, 2)),
        (25, 5, 11400, 8, (0, 1, 2)),  # two budgets that come to the same are one
    ]
    assert [p.budget for p in params.planned("neuronio_elm", "laptop")] == pytest.approx([1 / 6, 1, 1 / 12, 1 / 6])
    lstm = params.planned("neuronio_lstm", "laptop")
    assert [p.value for p in lstm] == params.experiment("neuronio_lstm").values
    assert {(p.train.epochs, p.train.batches_per_epoch) for p in lstm} == {(5, 100)}
    assert params.planned("neuronio_branch_elm", "laptop") == []  # not named: not run


def test_every_group_stands_under_caps_and_points_of_every_profile():
    # DVC fails on a params key that is not there, and each train stage depends on its own.
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    for profile in raw["profiles"].values():
        assert set(profile["caps"]) == set(profile["points"]) == set(raw["experiments"])
    for group in raw["experiments"].values():
        assert {"data", "shared"} < set(group)


# Section B, Table S1: the text of the paper beside params.yaml
def test_neuronio_hyper_parameters_are_the_published_ones():
    params = config.load(ROOT / "params.yaml")
    for name, experiment in params.experiments.items():
        if experiment.data == "neuronio":
            train = experiment.train
            assert (train.optimizer, train.lr, train.batch_size, train.epochs, train.batches_per_epoch) == (
                "adam",
                5e-4,
                8,
                30,
                11400,
            ), name
            assert (experiment.task | {"teacher": None}, train.clip_grad_norm, len(experiment.seeds)) == (
                {"window_ms": 500, "burn_in_ms": 150, "teacher": None},
                None,
                3,
            ), name
        model = experiment.model
        if name == "follow_up_branch_elm":  # of another paper
            assert model["memory_update"] == "improved" and experiment.values == [3, 5, 10, 15, 20, 100]
        elif experiment.data == "neuronio" and model["kind"] in ("elm", "branch_elm"):
            assert (model["tau_s"], model["w_s"], model["tau_m_init"]) == (5.0, 0.5, "linspace"), name
            small = {
                "neuronio_simplest_elm": (1, 0),
                "neuronio_small_branch_elm": (15, 1),
                "teacher_lif_linear": (1, 0),
            }
            small |= {"teacher_lif": (1, 1), "teacher_alif": (1, 1)}  # of Figure S7
            assert (model["d_m"], model["l_mlp"]) == small.get(name, (20, 1)) or experiment.vary == "l_mlp", name
            assert model["lambda_"] == (5.0 if name == "branch_elm_lambda_5" else 10.0), name
            # the caption of Figure 3 has 1 to 150 ms, Table S1 has 1 to 100 ms
            caption = name in params.groups["neuronio_ablations"].experiments
            assert model["tau_m_range"] == ([1, 150] if caption else [1, 100]), name
            assert model.get("d_mlp") == (40 if caption else None), name
            together = experiment.vary == "tau_m_range"  # the bounds move with the initial values
            assert model["tau_m_bounds"] == (None if together else [0, 500]), name


# Section B, the paragraph on SHD, and the caption of Figure 5 (parameters)
def test_shd_hyper_parameters_are_the_published_ones():
    experiments = {k: e for k, e in config.load(ROOT / "params.yaml").experiments.items() if e.data == "shd"}
    assert len(experiments) == 14
    for name, experiment in experiments.items():
        train, model, adding = experiment.train, experiment.model, experiment.task["adding"]
        snn = model["kind"] == "snn"
        assert (train.optimizer, train.batch_size, train.epochs) == ("adamax", 8, 70), name
        assert (train.lr, experiment.task["dropout"]) == ((2e-3, 0.0) if snn else (5e-3, 0.5)), name
        assert train.batches_per_epoch == (2000 if adding else 814) and len(experiment.seeds) == 5, name
        if model["kind"] in ("elm", "branch_elm"):
            assert (model["lambda_"], model["d_m"], model["tau_m_init"]) == (5.0, 100, "linspace"), name
            together = experiment.vary == "tau_m_range"  # Figure 5f: the bounds move with the initial values
            assert (model["tau_m_range"], model["tau_m_bounds"]) == ([1, 150], None if together else [0, 1000]), name
            assert "d_mlp" not in model, name  # 2 d_m, the default
        if experiment.vary == "bin_ms":
            published = {"elm": 186e3, "branch_elm": 67e3, "variational_lstm": 956e3, "snn": 51e3}[model["kind"]]
            ours = parameters(build(model, **task_class("shd").sizes(**experiment.task)))
            assert abs(ours / published - 1) < 0.05, (name, ours)
    branch, lstm = experiments["shd_branch_elm"].model, experiments["shd_lstm"].model
    assert (branch["d_tree"], branch["d_brch"], branch["routing"]) == (100, 15, "random")
    assert lstm == {"kind": "variational_lstm", "hidden_size": 250, "recurrent_dropout": 0.3}
    snn, literal = experiments["shd_snn"].model, experiments["shd_snn_20_ms"].model
    assert snn["tau_out_steps"] == 20 and snn | {"tau_out_steps": None, "tau_out_ms": 20.0} == literal
    assert experiments["shd_adding_snn"].model == snn


def test_the_ablations_of_figure_5_have_the_values_of_the_picture():
    params = config.load(ROOT / "params.yaml")
    points = published_points().query("figure == 'Fig 5'").groupby("panel").x.apply(lambda x: [int(v) for v in x])
    assert params.experiment("shd_adding_d_m").values == sorted(points["e"]) == points["e"]
    assert params.experiment("improved_shd_adding_d_m").values == points["e"]
    ranges = params.experiment("shd_adding_tau_m")
    assert ranges.values == [[1, longest] for longest in points["f"]]
    for value in ranges.values:
        neuron = build(ranges.model_at(value), input_size=700, d_o=19)
        assert neuron.tau_m_bounds == tuple(value)
        ends = neuron.tau_m.detach()[[0, -1]].tolist()
        assert ends == pytest.approx(value, rel=1e-3)


def test_desk_runs_the_digits_at_budgets_that_mean_something():
    """Budgets in parts of the published steps, by model and bin."""
    params = config.load(ROOT / "params.yaml")

    def budgets(name):
        largest: dict[str, float] = {}  # a point may have a smaller one too
        for point in params.planned(name, "desk"):
            value = str(point.value)
            largest[value] = max(round(point.budget, 3), largest.get(value, 0))
        return largest

    fine, coarse = ("4", "6", "8"), ("20", "50", "100")
    for name in ("shd", "shd_adding"):
        for kind in ("elm", "branch_elm"):
            every = [str(value) for value in params.experiment(f"{name}_{kind}").values]
            assert budgets(f"{name}_{kind}") == {b: 0.1 if b == "1" else 1.0 for b in every}
        found, full = budgets(f"{name}_lstm"), coarse if name == "shd_adding" else ("10", *coarse)
        assert all(found[b] == (1.0 if b in full else 0.25) for b in found) and len(found) == 9
    expected = dict.fromkeys(("1", "2"), 0.1) | dict.fromkeys(fine, 0.25) | dict.fromkeys(("10", *coarse), 1.0)
    assert budgets("shd_snn") == expected
    assert budgets("shd_adding_snn") == dict.fromkeys(("10", *coarse), 0.25)
    assert set(budgets("shd_snn_20_ms").values()) == {1.0}  # it fails with as many steps as the other learns in
    for name in ("shd_adding_d_m", "shd_adding_tau_m", "improved_shd_adding_d_m"):
        assert set(budgets(name).values()) - {1.0} == {0.25}
    two = {point.value for point in params.planned("shd_elm", "desk") if len(point.seeds) == 2}
    assert two == {2, 10, 50}
