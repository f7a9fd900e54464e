"""What a run's key holds and leaves out, and a ledger that is filled, read, shared and damaged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trajectories import write_sets

from elm_lib.experiments import plan as planning
from elm_lib.experiments import retest as retesting
from elm_lib.experiments.budget import Point
from elm_lib.experiments.config import Runner, load
from elm_lib.experiments.evaluate import evaluate_again, summary
from elm_lib.experiments.execute import execute
from elm_lib.experiments.experiment import Seconds
from elm_lib.experiments.ledger import Ledger, enter, enter_twin, shown_of, weights_of
from elm_lib.experiments.plan import Planned, plan, without_defaults
from elm_lib.experiments.weights import load_trained, shown_model
from elm_lib.experiments.work import Folders, wanted_first
from elm_lib.experiments.workspace import copy_entries
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.training.optimisation import Train

ROOT = Path(__file__).resolve().parents[2]
PARAMS = load(ROOT / "params.yaml")
TRAIN = Train(optimizer="adam", lr=1e-3, batch_size=2, epochs=2, batches_per_epoch=3, clip_grad_norm=None)


def planned(seed=0, train=TRAIN, experiment="neuronio_branch_elm", **model) -> Planned:
    entry = {"kind": "branch_elm", "d_m": 20, "d_tree": 6, "d_brch": 9} | model
    point = Point(
        experiment=experiment,
        data="neuronio",
        vary="d_m",
        value=entry["d_m"],
        model=entry,
        train=train,
        published=TRAIN,
        options={"window_ms": 200, "burn_in_ms": 50},
        seeds=(0, 1),
        seconds_a_step=Seconds(cpu=1.0, cuda=1.0),
    )
    recipe = {"train": {"source": "generated", "train": 2}, "test": {"source": "generated", "test": 2}}
    labels = {"profile": "smoke", "source": "generated", "morphology": "default"}
    return Planned("neuronio", point, entry, seed, True, recipe, labels)


def test_a_key_holds_what_a_run_means_and_nothing_else():
    base = planned()
    assert planned(train=TRAIN.model_copy(update={"accumulate": 2})).key == base.key  # bounds memory alone
    assert planned(l_mlp=1, tau_s=5.0).key == base.key  # options at their default
    assert planned(lambda_=10).key == planned(lambda_=10.0).key
    assert (
        replace(base, recipe=base.recipe | {"test": {"test": 9}}).key == base.key
    )  # test scores carry their own recipe
    assert planned(experiment="another").key == base.key  # one run serves every experiment that means the same
    others = [
        planned(seed=1),
        planned(d_m=21),
        planned(tau_s=6.0),
        planned(train=TRAIN.model_copy(update={"lr": 2e-3})),
        planned(train=TRAIN.model_copy(update={"epochs": 3})),
        replace(base, recipe=base.recipe | {"train": {"source": "generated", "train": 3}}),
    ]
    assert len({base.key, *(one.key for one in others)}) == 1 + len(others)


@pytest.mark.parametrize("module", ["elm_lib.neuron", "elm_lib.datasets.neuronio.task", "elm_lib.training.run"])
def test_a_raised_revision_changes_the_key(module, monkeypatch):
    before = planned().key
    monkeypatch.setattr(f"{module}.REVISION", 2)
    assert planned().key != before


def test_precision_is_part_of_a_key():
    before = planned().key
    torch.set_float32_matmul_precision("high")
    try:
        assert planned().key != before
    finally:
        torch.set_float32_matmul_precision("highest")


def test_defaults_of_a_model_within_a_model_are_left_out():
    encoder = {"kind": "elm", "d_m": 20, "lambda_": 10.0, "tau_s": 7.0}
    kept = without_defaults({"kind": "two_tower", "d_latent": 6, "encoder": encoder})
    assert kept["encoder"] == {"kind": "elm", "tau_s": 7.0}


@pytest.mark.parametrize("kind", ["elm", "branch_elm"])
def test_a_key_leaves_out_the_lambda_that_an_experiment_means_not_that_of_the_class(kind):
    assert without_defaults({"kind": kind, "lambda_": 10.0}) == {"kind": kind}
    assert without_defaults({"kind": kind, "lambda_": 5.0}) == {"kind": kind, "lambda_": 5.0}


def test_committed_weights_load_without_a_warning():
    files = sorted((ROOT / "results/ledger").rglob("*.safetensors"))
    models = [load_trained(file.with_suffix(".json")) for file in files]
    assert models and all(bool(value.isfinite().all()) for model in models for value in model.parameters())


def test_every_profile_is_planned_without_its_data(tmp_path):
    for profile in ("smoke", "laptop", "desk"):
        found = plan(PARAMS, profile, data=tmp_path)
        pairs = [(one.experiment, one.key) for one in found]
        assert len(set(pairs)) == len(pairs)
    with pytest.raises(DataError, match="dvc repro"):  # published files are known by their checksums alone
        plan(PARAMS, "paper", ["shd"], data=tmp_path)
    with pytest.raises(ConfigError, match="no group"):
        plan(PARAMS, "smoke", ["shdd"], data=tmp_path)


def test_a_plan_takes_each_tasks_own_settings(tmp_path):
    smoke = {
        one.options["name"]: one for one in plan(PARAMS, "smoke", ["lra"], data=tmp_path) if one.experiment == "lra_elm"
    }
    assert smoke["listops"].train.epochs == 1
    assert smoke["listops"].budget == 2 * 16 / (150 * 250 * 384)
    assert smoke["retrieval"].model["kind"] == "two_tower" and smoke["retrieval"].labels["source"] == "stand-in"
    long = smoke["pathfinder_x"].train  # its own cap; pieces no larger than the published 768 / 32
    assert (long.batch_size, long.accumulate) == (2, 1)


def test_the_first_seed_of_every_point_comes_first():
    runs = [planned(seed=seed, d_m=d_m) for d_m in (20, 21) for seed in (0, 1)]
    assert [(one.size, one.seed) for one in wanted_first(runs)] == [(20, 0), (21, 0), (20, 1), (21, 1)]
    other = planned(experiment="another")
    ordered = wanted_first([*runs, other], later=[runs[0].experiment])
    assert ordered[0] is other and [(one.size, one.seed) for one in ordered[1:]] == [(20, 0), (21, 0), (20, 1), (21, 1)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Two seeds trained and entered: their plans, the ledger's folder, the data."""
    root = tmp_path_factory.mktemp("ledger")
    write_sets(root / "data")
    runs = [planned(seed=seed) for seed in (0, 1)]
    by_folder = {one.run(root / "data", root / "work", "cpu", 1).folder: one for one in runs}
    execute(
        [one.run(root / "data", root / "work", "cpu", 1) for one in runs],
        Runner(cluster="debug", jobs=1, threads=1),
        on_done=lambda run: enter(by_folder[run.folder], run.folder, root / "ledger", "abc"),
    )
    return runs, root / "ledger", root / "data"


def test_an_entry_gives_back_its_run(filled):
    runs, folder, data = filled
    ledger = Ledger(folder)
    assert ledger.missing(runs) == []
    table = ledger.read(runs)["neuronio_branch_elm"]
    assert list(table.seed) == [0, 1] and list(table["size"]) == [20, 20]
    assert {"valid_rmse", "test_auc", "test_released_auc", "statistics", "published_steps"} <= set(table.columns)
    first, second = (ledger.entry(one) for one in runs)
    assert weights_of(first) and not weights_of(second)  # weights of the first seed alone
    assert first["made"]["commit"] == "abc" and "commit" not in {key for key in first if key != "made"}
    assert first["curve"]["step"] == [3, 6]
    model = load_trained(first["path"])
    assert model.d_m == 20
    model, shown = shown_model(runs, ledger)
    assert model is not None and shown is not None and shown_of(first).stat().st_size < 200_000
    here, _ = first["made"]["device"], first["made"].update(wall_s=60.0)
    second["made"]["wall_s"] = 90.0
    assert ledger.seconds_a_step(here) == {("neuronio_branch_elm", 20): 10.0}  # 6 steps; the other was slowed down
    assert ledger.seconds_a_step("another machine") == {}
    again = evaluate_again(runs, ledger, data)
    assert len(again) > 4 and summary(again).startswith(f"{len(again)} of {len(again)} scores")
    ledger.check_unchanged()


def test_kept_weights_are_tested_on_another_test_set(filled, tmp_path, monkeypatch):
    runs, folder, data = filled
    shutil.copytree(folder, tmp_path / "ledger")
    shutil.copytree(data, tmp_path / "data")
    asked = []

    def ensure(name, settings, *, raw, out, splits):
        asked.append((name, settings, splits))
        path = out / "test" / "sims_00000.h5"
        path.write_bytes((data / "neuronio" / "valid" / "sims_00000.h5").read_bytes())

    monkeypatch.setattr(retesting.datasets, "ensure", ensure)
    changed = [replace(one, recipe=one.recipe | {"test": {"source": "generated", "test": 3}}) for one in runs]
    statistics = next((tmp_path / "ledger").rglob(f"{runs[0].key}.npz"))
    np.savez(statistics, **dict(np.load(statistics)), valid_right=np.ones(3, bool))
    before, settings = Ledger(tmp_path / "ledger"), SimpleNamespace(neuronio="settings")
    where = {"data": tmp_path / "data", "raw": tmp_path}
    assert retesting.retest(runs, before, settings, **where) == 0 and asked == []  # the same test set
    assert retesting.retest(changed, before, settings, **where) == 1  # of the second seed no weights are kept
    assert asked == [("neuronio", "settings", ("test",))]
    after = Ledger(tmp_path / "ledger")
    old, new = before.entry(runs[0]), after.entry(runs[0])
    assert np.load(statistics)["valid_right"].all()  # what is known of the validation set stays
    assert new["test"]["recipe"] == {"source": "generated", "test": 3}
    assert set(new["test"]["scores"]) == set(old["test"]["scores"]) and new["test"]["scores"] != old["test"]["scores"]
    assert {key: new[key] for key in new if key != "test"} == {key: old[key] for key in old if key != "test"}
    again = evaluate_again([runs[0]], after, tmp_path / "data")  # statistics and scores are of the new test set
    assert summary(again).startswith(f"{len(again)} of {len(again)} scores")
    assert after.entry(runs[1]) == before.entry(runs[1])
    assert retesting.retest(changed, after, settings, **where) == 0


def test_what_a_figure_needs_and_lacks_counts_as_missing(filled, tmp_path):
    runs, folder, _ = filled
    entry = json.loads((folder / "neuronio/neuronio_branch_elm" / f"{runs[0].key}.json").read_text())
    path = tmp_path / "neuronio/neuronio_branch_elm" / f"{runs[0].key}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entry))  # without its weights
    ledger = Ledger(tmp_path)
    assert ledger.missing(runs) == runs
    assert len(ledger.read(runs)["neuronio_branch_elm"]) == 1  # its scores are there


def test_another_experiment_takes_over_a_run_that_means_the_same(filled, tmp_path):
    _, folder, _ = filled
    other = planned(experiment="another")
    assert enter_twin(other, Ledger(folder), tmp_path)
    entry = Ledger(tmp_path).entry(other)
    assert entry["experiment"] == "another" and weights_of(entry)
    assert not enter_twin(planned(d_m=3), Ledger(folder), tmp_path)


def test_a_workspace_of_dvc_shares_the_ledger_of_its_project(filled, tmp_path):
    runs, folder, _ = filled
    workspace = tmp_path / ".dvc/tmp/exps/standalone/tmpx"
    workspace.mkdir(parents=True)
    own, plain = Folders.of("smoke", workspace), Folders.of("smoke", tmp_path)
    assert (own.runs, own.shared) == (plain.runs, plain.ledger)
    assert own.ledger == workspace / "runs/ledger" and own.data == workspace / "data/smoke" and plain.shared is None
    assert copy_entries(runs, folder, own.ledger) == 2
    assert copy_entries(runs, folder, own.ledger) == 0
    assert Ledger(own.ledger).missing(runs) == []
    assert {path.name: path.read_bytes() for path in own.ledger.rglob("*.*")} == {
        path.name: path.read_bytes() for path in folder.rglob("*.*")
    }
    assert copy_entries([planned(d_m=3)], folder, own.ledger) == 0


def test_a_ledger_that_changes_meanwhile_or_is_damaged_fails_by_name(filled, tmp_path):
    runs, folder, _ = filled
    for path in folder.rglob("*.*"):
        target = tmp_path / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    ledger = Ledger(tmp_path)
    ledger.read(runs)
    victim = next(tmp_path.rglob("*.npz"))
    victim.write_bytes(b"other")
    with pytest.raises(DataError, match=victim.name):
        ledger.check_unchanged()
    entry = next(tmp_path.rglob("*.json"))
    entry.write_text("{")
    with pytest.raises(DataError, match=entry.name):
        Ledger(tmp_path).read(runs)


def test_weights_of_another_run_or_revision_are_refused(filled, tmp_path, monkeypatch):
    runs, folder, _ = filled
    source = folder / "neuronio/neuronio_branch_elm" / f"{runs[0].key}.json"
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    with pytest.raises(DataError, match="were not kept"):
        load_trained(path)
    path.with_suffix(".safetensors").write_bytes(b"not these")
    with pytest.raises(DataError, match="sha256"):
        load_trained(path)
    monkeypatch.setattr("elm_lib.neuron.REVISION", 2)
    with pytest.raises(DataError, match="revisions"):
        load_trained(source)


def test_committed_entries_lie_under_their_key_and_have_a_plan():
    """Entries that no plan asks for are ignored by tables, so they would be dead weight."""
    entries = Ledger(ROOT / "results" / "ledger").entries
    wanted = {(one.experiment, one.key) for one in plan(PARAMS, "desk", data=ROOT / "data" / "desk")}
    for (experiment, key), entry in entries.items():
        assert entry["path"].stem == key and entry["path"].parent.name == experiment
        assert planning.digest(entry["meaning"])[: planning.KEY_LENGTH] == key
    assert set(entries) <= wanted
