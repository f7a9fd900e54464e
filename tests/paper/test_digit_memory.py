"""The probe of SHD-Adding: what it finds where the answer is known, and where its neuron comes from."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from elm_lib.datasets.shd.schema import write_recordings
from elm_lib.datasets.shd.task import Task
from elm_lib.models.registry import build
from elm_lib.paper import digit_memory
from elm_lib.paper.figures import explore as figures
from elm_lib.support import manifest


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A prepared data set whose words are told by one channel each: 80 of validation, 80 of the test."""
    folder, rng, paths = tmp_path_factory.mktemp("digits"), np.random.default_rng(0), {}
    for name in ("valid", "test"):
        label = np.arange(80) % 20
        spikes = [(np.sort(rng.uniform(0.1, 0.9, 30)), np.full(30, 30 * (one % 10))) for one in label]
        paths[name] = [folder / f"{name}.h5"]
        write_recordings(
            paths[name][0], spikes, label, label % 3, words=["w"] * 20, genders=["f"] * 3, source="generated",
            provenance={"speakers": [0, 1, 2]},
        )  # fmt: skip
    manifest.describe(folder, paths, source="generated", pairs={"valid": 10, "test": 10})
    return folder


def test_the_probe_finds_the_unit_that_holds_a_digit():
    """Unit 0 holds the first digit to the end, unit 1 forgets it at the second word, unit 2 holds the second."""
    rng, n = np.random.default_rng(0), 800
    named = rng.integers(10, size=(n, 2))
    m = rng.normal(0, 0.05, (n, 8, 3))
    m[:, :, 0] += named[:, :1]
    m[:, :4, 1] += named[:, :1]
    m[:, 4:, 2] += named[:, 1:]
    found = digit_memory.Traces(m, 250.0 * np.arange(1, 9), named, np.arange(n) < 400, np.array([900.0, 90.0, 9.0]))
    first, second = (digit_memory.probe(found, k) for k in (0, 1))
    assert (first[:, 0] > 0.95).all() and (first[:4, 1] > 0.95).all()
    assert (first[4:, 1:] < 0.2).all() and (second[4:, 2] > 0.95).all() and (second[:, :2] < 0.2).all()
    times, thirds = digit_memory.probe_thirds(found, 0, every=2)
    assert times.tolist() == [500, 1000, 1500, 2000]
    assert (thirds["slowest third"] > 0.9).all() and (thirds["all units"] > 0.9).all()
    assert (thirds["fastest third"] < 0.2).all()
    figure = figures.digit_memory(found.tau_m, found.time_ms, first, (times, thirds), 1300, "first")
    assert figure.axes[1].get_title() == "at 1250 ms"
    plt.close(figure)


def test_a_small_neuron_is_trained_once_and_its_words_are_those_of_the_data_set(digits, tmp_path):
    empty = tmp_path / "ledger"
    empty.mkdir()
    heard = digit_memory.listener(empty, digits, tmp_path / "work", steps=20)
    assert (
        "a small ELM, trained here on 6" in heard.origin and "in 20 steps" in heard.origin
    )  # a fifth is for validation
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.*")}
    again = digit_memory.listener(empty, digits, tmp_path / "work", steps=20)
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.*")}
    assert all(torch.equal(a, b) for a, b in zip(heard.model.parameters(), again.model.parameters(), strict=True))
    found = digit_memory.traces(heard, pairs=60)
    assert found.m.shape == (60, 50, 30) and found.fitted.sum() == 30
    assert (digit_memory.probe(found, 0)[20:25].max(1) > 0.5).all()  # one channel a digit: some unit tells it


def test_the_neuron_of_the_ledger_comes_first(digits, tmp_path, monkeypatch):
    options = {"bin_ms": 50, "adding": True, "dropout": 0.5}
    model = {"kind": "elm", "d_m": 4, "delta_t": 50.0}
    folder = tmp_path / "shd_adding" / "shd_adding_elm"
    folder.mkdir(parents=True)
    for key, accuracy in (("a", 0.2), ("b", 0.4), ("c", 0.9)):
        entry = {
            "experiment": "shd_adding_elm",
            "key": key,
            "size": 50,
            "steps": 7,
            "weights": {"bytes": 1},
            "meaning": {"options": options, "model": model, "task": "shd"},
            "scores": {"valid_accuracy": accuracy},
            "test": {"scores": {"test_accuracy": accuracy / 2}},
        }
        (folder / f"{key}.json").write_text(json.dumps(entry))
        if key != "c":  # whose weights were not kept
            neuron = build(model, **Task.sizes(**options))
            save_file(neuron.state_dict(), folder / f"{key}.safetensors")
    loaded = []
    monkeypatch.setattr(digit_memory, "load_trained", lambda path: loaded.append(Path(path).stem))
    heard = digit_memory.listener(tmp_path, digits, tmp_path / "work")
    assert loaded == ["b"] and heard.bin_ms == 50 and heard.words.folder == digits
    assert heard.origin == "the ledger's ELM at 50 ms, 7 steps: test accuracy of the sum 0.20"
    assert not (tmp_path / "work").exists()
