"""params.yaml: what is refused, and how it is said."""

import re
from pathlib import Path

import pytest
import yaml

from elm_lib.datasets import task_class
from elm_lib.experiments import config
from elm_lib.experiments.config import share
from elm_lib.models.cost import parameters
from elm_lib.models.registry import build
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("profil", "desk"), ["unknown key 'profil'"]),
        (_set("profile", "lap"), ["profile = 'lap'", "'smoke'"]),
        (
            _set("experiments", "neuronio", "neuronio_elm", "train", "lr", "fast"),
            ["neuronio.neuronio_elm.train.lr = 'fast'"],
        ),
        (_set("experiments", "neuronio", "neuronio_elm", "train", "batch_size", 8.5), ["train.batch_size = 8.5"]),
        (
            _set("experiments", "neuronio", "neuronio_elm", "train", "learning_rate", 1.0),
            ["unknown key 'experiments.neuronio.neuronio_elm.train.learning_rate'"],
        ),
        (_set("experiments", "neuronio", "neuronio_elm", "vary", "d_tree"), ["vary", "d_tree"]),
        (_set("experiments", "neuronio", "data", "cifar"), ["experiments.neuronio.neuronio_elm.data = 'cifar'"]),
        (_set("experiments", "neuronio", "neuronio_elm", "data", "shd"), ["experiments.neuronio", "neuronio_elm"]),
        (_set("experiments", "neuronio", "typo", 3), ["experiments.neuronio.typo = 3"]),
        (
            lambda raw: raw["experiments"]["shd"].update(lra_elm=raw["experiments"]["lra"]["lra_elm"]),
            ["lra_elm", "two"],
        ),
        (_set("profiles", "smoke", "points", "typo", {}), ["profiles.smoke.points", "typo"]),
        (_set("profiles", "smoke", "points", "shd", "typo", [1]), ["profiles.smoke.points", "shd.typo"]),
        (_set("profiles", "smoke", "points", "shd", "shd_elm", [3]), ["profiles.smoke.points", "shd_elm = [3]"]),
        (lambda raw: raw["profiles"]["smoke"]["caps"].pop("shd"), ["profiles.smoke.caps", "shd"]),
        (
            lambda raw: raw["profiles"]["smoke"]["caps"]["lra"]["lra_elm"]["each"].update(
                pathfinder_y={"epochs": 1, "batches_per_epoch": 1}
            ),
            ["profiles.smoke.caps, lra_elm", "pathfinder_y"],
        ),
        (
            lambda raw: raw["profiles"]["desk"]["cap"].update(each={"text": {"epochs": 1, "batches_per_epoch": 1}}),
            ["profiles.desk.cap", "under caps"],
        ),
        (_set("experiments", "lra", "lra_elm", "each", "cifar", {"train": {"epochs": 2}}), ["lra.lra_elm", "cifar"]),
        (
            _set("experiments", "lra", "lra_elm", "each", "text", "train", {"lr": "fast"}),
            ["experiments.lra.lra_elm", "lr", "fast"],
        ),
        (_set("profiles", "desk", "neuronio", "test", "dt_ms", 0.2), ["profiles.desk.neuronio.test.dt_ms = 0.2"]),
        (_set("profiles", "desk", "runner", "jobs", 0), ["profiles.desk.runner.jobs = 0"]),
        (lambda raw: raw["profiles"]["desk"].pop("cap"), ["'profiles.desk.cap' is missing"]),
        (lambda raw: raw["profiles"].pop(raw["profile"]), ["profile = 'laptop' is not under profiles", "'desk'"]),
        (_set("profiles", "smoke", "points", "shd", "shd_elm", [100, 100]), ["shd_elm = [100, 100]", "none twice"]),
        (_set("experiments", "shd", "shd_elm", "values", [2, 2]), ["experiments.shd.shd_elm", "[2, 2]", "none twice"]),
        (_set("profiles", "smoke", "lra", "retrieval", None), ["profiles.smoke.lra", "['retrieval']", "out of points"]),
        (
            _set("profiles", "desk", "caps", "shd", "shd_elm", "each", {50: {"epochs": 1, "batches_per_epoch": 1}}),
            ["key 50 of profiles.desk.caps.shd.shd_elm.each", "quotes"],
        ),
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


def test_every_experiment_builds_and_the_paper_profile_is_the_published_budget():
    params = config.load(ROOT / "params.yaml")
    for name, experiment in params.experiments.items():
        for value in experiment.values:
            options, model = experiment.options_at(value), experiment.model_at(value)
            build(model, **task_class(experiment.data).sizes(**options))
        capped, budget = params.capped(name, "paper")
        assert capped == experiment
        assert budget == 1.0
        for profile in params.profiles:
            capped, budget = params.capped(name, profile)
            assert all(value in experiment.values for value in capped.values)
            shares = [share(capped.train_at(value), experiment.train_at(value)) for value in capped.values]
            assert budget == min(shares, default=budget)
            assert capped.train.lr == experiment.train.lr  # a profile caps, it does not change


# Section B, Table S1: the text of the paper beside params.yaml
def test_neuronio_hyper_parameters_are_the_published_ones():
    for name, experiment in config.load(ROOT / "params.yaml").experiments.items():
        if experiment.data == "neuronio":
            train = experiment.train
            assert (train.optimizer, train.lr, train.batch_size, train.epochs, train.batches_per_epoch) == (
                "adam",
                5e-4,
                8,
                30,
                11400,
            ), name
            assert (experiment.task, train.clip_grad_norm, len(experiment.seeds)) == (
                {"window_ms": 500, "burn_in_ms": 150},
                None,
                3,
            ), name
        if experiment.data == "neuronio" and experiment.model["kind"] in ("elm", "branch_elm"):
            model = experiment.model
            assert (model["l_mlp"], model["lambda_"], model["tau_s"], model["w_s"]) == (1, 10.0, 5.0, 0.5), name
            assert (model["tau_m_init"], model["tau_m_range"], model["tau_m_bounds"]) == (
                "linspace",
                [1, 100],
                [0, 500],
            ), name


# Section B, the paragraph on SHD, and the caption of Figure 5 (parameters)
def test_shd_hyper_parameters_are_the_published_ones():
    experiments = {k: e for k, e in config.load(ROOT / "params.yaml").experiments.items() if e.data == "shd"}
    assert len(experiments) == 10
    for name, experiment in experiments.items():
        train, model, adding = experiment.train, experiment.model, experiment.task["adding"]
        snn = model["kind"] == "snn"
        assert (train.optimizer, train.batch_size, train.epochs) == ("adamax", 8, 70), name
        assert (train.lr, experiment.task["dropout"]) == ((2e-3, 0.0) if snn else (5e-3, 0.5)), name
        assert train.batches_per_epoch == (2000 if adding else 814) and len(experiment.seeds) == 5, name
        if model["kind"] in ("elm", "branch_elm"):
            assert (model["lambda_"], model["d_m"], model["tau_m_init"]) == (5.0, 100, "linspace"), name
            assert (model["tau_m_range"], model["tau_m_bounds"]) == ([1, 150], [0, 1000]), name
        if experiment.vary == "bin_ms":
            published = {"elm": 186e3, "branch_elm": 67e3, "variational_lstm": 956e3, "snn": 51e3}[model["kind"]]
            ours = parameters(build(model, **task_class("shd").sizes(**experiment.task)))
            assert abs(ours / published - 1) < 0.05, (name, ours)
    branch, lstm = experiments["shd_branch_elm"].model, experiments["shd_lstm"].model
    assert (branch["d_tree"], branch["d_brch"], branch["routing"]) == (100, 15, "random")
    assert lstm == {"kind": "variational_lstm", "hidden_size": 250, "recurrent_dropout": 0.3}
