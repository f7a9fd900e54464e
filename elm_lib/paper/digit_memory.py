"""Which memory units hold the first digit of SHD-Adding while the second is heard: a linear probe of m, unit by unit.

The neuron is one of the ledger, where that has weights of an ELM on SHD-Adding. Else it is a small one, trained here in
a minute or two and kept in a folder of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from elm_lib import datasets
from elm_lib.datasets.shd.batches import ShdData, gather
from elm_lib.datasets.shd.settings import Shd
from elm_lib.datasets.shd.task import Task
from elm_lib.experiments.ledger import Ledger, weights_of
from elm_lib.experiments.plan import KEY_LENGTH, digest
from elm_lib.experiments.weights import load_trained
from elm_lib.models.registry import build
from elm_lib.support import manifest
from elm_lib.support.files import write_atomically, write_json
from elm_lib.training.run import Run, read_result, threads_as_before, train_run

GROUP, EXPERIMENT = "shd_adding", "shd_adding_elm"
SEED = 1
BIN_MS = 20
SMALL: dict[str, Any] = {  # the ELM of SHD-Adding in params.yaml, with fewer memory units
    "kind": "elm",
    "d_m": 30,
    "lambda_": 5.0,
    "tau_m_range": [1, 150],
    "tau_m_bounds": [0, 1000],
}
TRAIN: dict[str, Any] = {"optimizer": "adamax", "lr": 5e-3, "batch_size": 8, "clip_grad_norm": None}
EPOCHS = 10
EVERY_MS = 50  # between two looks at the memory
AT_ONCE = 100  # pairs


@dataclass(frozen=True, eq=False)
class Listener:
    """A neuron that adds spoken digits, the words that it is tried on, and where it comes from."""

    model: nn.Module
    bin_ms: int
    words: ShdData
    origin: str


def listener(ledger: Path, digits: Path | None, work: Path, *, words: int = 40, steps: int = 1500) -> Listener:
    """The neuron of the ledger with the best validation accuracy; a small one where there are no weights.

    ledger  folder of the ledger
    digits  a prepared data set, of which valid.h5 and test.h5 are read; None or missing: `words` training and `words`
            test words are generated below `work`, half a second of a core each
    steps   of the small neuron's training, where it is trained
    """
    there = digits if digits and all((digits / f"{name}.h5").is_file() for name in ("valid", "test")) else None
    best = _best(ledger)
    if best is None:
        return _small(_own_words(there, work, words), work, steps)
    data = ShdData(there or _own_words(None, work, words))
    return Listener(load_trained(best["path"]), int(best["meaning"]["options"]["bin_ms"]), data, _said(best))


def _best(ledger: Path) -> dict[str, Any] | None:
    found = [
        entry
        for (experiment, _), entry in Ledger(ledger, (GROUP,)).entries.items()
        if experiment == EXPERIMENT and weights_of(entry) is not None
    ]
    return max(found, key=lambda entry: entry["scores"]["valid_accuracy"], default=None)


def _said(entry: dict[str, Any]) -> str:
    accuracy = entry["test"]["scores"]["test_accuracy"]
    return f"the ledger's ELM at {entry['size']} ms, {entry['steps']} steps: test accuracy of the sum {accuracy:.2f}"


def _own_words(digits: Path | None, work: Path, words: int) -> Path:
    """A data set to train the small neuron on: new words, or those that are there, of validation for training."""
    pairs = {"valid": 100, "test": 200}
    if digits is None:
        wanted = Shd(
            source="generated", seed=SEED, train=words, test=words, valid_pairs=pairs["valid"], test_pairs=pairs["test"]
        )
        folder = work / f"words_{words}"
        datasets.ensure("shd", wanted, raw=work / "raw", out=folder, splits=("train", "valid", "test"))
        return folder
    name = digest(manifest.checksums(digits, ("valid", "test"), "dvc repro preprocess_shd"))[:KEY_LENGTH]
    folder = work / f"words_{name}"
    if not (folder / manifest.NAME).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for theirs, ours in (("valid", "train"), ("test", "test")):
            write_atomically(folder / f"{ours}.h5", (digits / f"{theirs}.h5").read_bytes())
        write_json(folder / manifest.NAME, {"pairs": pairs})
    return folder


def _small(words: Path, work: Path, steps: int) -> Listener:
    options: dict[str, Any] = {"bin_ms": BIN_MS, "adding": True, "dropout": 0.5}
    train = TRAIN | {"epochs": EPOCHS, "batches_per_epoch": max(1, steps // EPOCHS)}
    model = SMALL | {"delta_t": float(BIN_MS)}
    key = digest({"model": model, "train": train, "options": options, "words": words.name})[:KEY_LENGTH]
    run = Run("explore", "shd", model, train, SEED, str(words), str(work / key), options)
    with threads_as_before():
        train_run(run)
    result = read_result(run.result)["result"]
    neuron = build(model, **Task.sizes(**options))
    neuron.load_state_dict(load_file(Path(run.folder) / "model.safetensors"))
    data = ShdData(words)
    heard = len(data.members("train"))
    origin = (
        f"a small ELM, trained here on {heard} words in {train['epochs'] * train['batches_per_epoch']} steps: test "
        f"accuracy of the sum {result['test_accuracy']:.2f}"
    )
    return Listener(neuron.eval(), BIN_MS, data, origin)


@dataclass(frozen=True, eq=False)
class Traces:
    """Memory while pairs of words are heard: m (n, T, d_m) at time_ms (T,); digits (n, 2); which pairs the probe is
    fitted to, bool (n,)."""

    m: np.ndarray
    time_ms: np.ndarray
    digits: np.ndarray
    fitted: np.ndarray
    tau_m: np.ndarray  # (d_m,) ms


@torch.no_grad()
def traces(heard: Listener, pairs: int = 1000) -> Traces:
    """Pairs of test words. Those that the probe is fitted to and those that it is scored on share no word."""
    recordings = heard.words.file("test")
    half = _halves(recordings.label)
    rng = np.random.default_rng(SEED)
    which = np.concatenate([rng.choice(np.flatnonzero(half == k), size=(pairs // 2, 2)) for k in (0, 1)])
    silent: Any = copy.deepcopy(heard.model).eval()
    silent.w_y = None  # the neuron then returns its memory
    binned, stride, found = heard.words.binned("test", heard.bin_ms), max(1, round(EVERY_MS / heard.bin_ms)), []
    for start in range(0, len(which), AT_ONCE):
        m, _ = silent(gather(binned, recordings, which[start : start + AT_ONCE]).x)
        found.append(m[:, stride - 1 :: stride].numpy())
    m = np.concatenate(found)
    tau_m = silent.tau_m.numpy()
    time_ms = heard.bin_ms * stride * (1 + np.arange(m.shape[1]))
    return Traces(m, time_ms, recordings.label[which] % 10, np.arange(len(which)) < pairs // 2, tau_m)


def _halves(label: np.ndarray) -> np.ndarray:
    """0 or 1 for each recording: those of a word in turn; of a digit in any language, where a word is there once."""
    kind = label if np.unique(label, return_counts=True)[1].min() > 1 else label % 10
    turn = np.zeros(len(label), int)
    for one in np.unique(kind):
        where = np.flatnonzero(kind == one)
        turn[where] = np.arange(len(where)) % 2
    return turn


def probe(found: Traces, which: int) -> np.ndarray:
    """Accuracy with which one memory unit alone tells the first (0) or second (1) digit, (T, d_m). Chance is 0.1.

    The probe names the digit whose mean of m is nearest: linear discriminant analysis of one number.
    """
    digit = found.digits[:, which]
    fitted, tried = found.fitted, ~found.fitted
    named = [k for k in range(10) if (digit[fitted] == k).any()]
    means = np.stack([found.m[fitted & (digit == k)].mean(0) for k in named])  # (10, T, d_m)
    nearest = np.argmin(np.abs(found.m[tried][:, None] - means), axis=1)  # (n, T, d_m)
    return (np.asarray(named)[nearest] == digit[tried][:, None, None]).mean(0)


def probe_thirds(found: Traces, which: int, every: int = 4) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The same of several units together, at every so many looks: times (ms), and accuracy by group of units.

    Groups are the third with the shortest tau_m, the third with the longest, and all. Linear discriminant analysis with
    a shrunken covariance.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    order, looks = np.argsort(found.tau_m), np.arange(every - 1, len(found.time_ms), every)
    third = max(1, len(order) // 3)
    groups = {"fastest third": order[:third], "slowest third": order[-third:], "all units": order}
    digit, scores = found.digits[:, which], {}
    for name, units in groups.items():
        row = []
        for at in looks:
            known = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
            known.fit(found.m[found.fitted, at][:, units], digit[found.fitted])
            row.append(known.score(found.m[~found.fitted, at][:, units], digit[~found.fitted]))
        scores[name] = np.array(row)
    return found.time_ms[looks], scores
