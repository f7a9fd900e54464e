"""The ledger: one small file for each finished run, under the key of what the run means.

    <ledger>/<group>/<experiment>/<key>.json          what the key hashes, scores, learning curve, sha256 of the weights
    <ledger>/<group>/<experiment>/<key>.npz           what a bootstrap needs: `statistics` of the data set's task
    <ledger>/<group>/<experiment>/<key>.safetensors   weights: first seed, up to 1 MB; larger where a figure shows them
    <ledger>/<group>/<experiment>/<key>_shown.npz     the simulation that Figures 2a, 4b and S9 show

results/ledger is committed and holds the runs of the profiles desk and paper. runs/ledger is not, and holds the others.
Tables, figures and verdicts read the ledger alone. Two branches that add runs merge without conflict.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from elm_lib.datasets import task_class
from elm_lib.experiments.plan import Planned
from elm_lib.experiments.scores import check_scores
from elm_lib.models import cost
from elm_lib.models.registry import build
from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, write_atomically, write_text

COMMITTED, LOCAL = Path("results/ledger"), Path("runs/ledger")
MOST_WEIGHTS = 1_000_000  # bytes of weights that are kept beside an entry
NOT_KNOWN = "not known"

# what every table of runs has, in this order, before the scores
RUN_COLUMNS = [
    "experiment",
    "size",
    "seed",
    "profile",
    "source",
    "morphology",
    "budget",
    "vary",
    "device",
    "parameters",
    "flops",
    "diverged",
    "steps",
    "best_epoch",
    "key",
    "commit",
    "published_steps",
    "statistics",
    "curve",
]


def home(profile: str, root: str | Path = ".", fresh: bool = False) -> Path:
    """The ledger that a profile's runs go to and come from."""
    return Path(root) / (COMMITTED if profile in ("desk", "paper") and not fresh else LOCAL)


class Runs(dict):
    """Tables of runs by experiment. Raises DataError for an experiment that params.yaml does not have."""

    def __missing__(self, experiment: str):
        raise DataError(f"no experiment {experiment!r} in the ledger's tables: there are {sorted(self)}")


@dataclass(frozen=True)
class Ledger:
    """A ledger folder as it is at the first look at each part.

    A stage reads one snapshot. `check_unchanged` at its end raises DataError where a file changed meanwhile, because
    DVC hashes what a stage depends on only after the stage.
    """

    folder: Path
    groups: tuple[str, ...] | None = None  # None: all
    _seen: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def entries(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Entries by (experiment, key)."""
        self._seen.update(self._signature())
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for path in sorted(self._seen):
            if path.suffix == ".json":
                entry = _read(path)
                name = entry["experiment"], entry["key"]
                if name in found:
                    raise DataError(f"{path}: the same run as {found[name]['path']}: keep one of them")
                found[name] = entry | {"path": path}
        return found

    def _signature(self) -> dict[Path, str]:
        names = [self.folder] if self.groups is None else [self.folder / group for group in self.groups]
        return {
            path: file_digest(path)
            for name in names
            for path in sorted(name.rglob("*"))
            if path.suffix in (".json", ".npz", ".safetensors")
        }

    def check_unchanged(self) -> None:
        """Raise DataError, by name, where the ledger is not as it was read."""
        now = self._signature()
        changed = sorted(str(path) for path in set(now) ^ set(self._seen)) or sorted(
            str(path) for path in now if now[path] != self._seen[path]
        )
        if changed:
            raise DataError(
                f"{changed[0]} changed while this stage read the ledger ({len(changed)} files in all): "
                "run `dvc repro` again when the runs have ended"
            )

    def entry(self, planned: Planned) -> dict[str, Any] | None:
        """The entry of a planned run, if it is there."""
        return self.entries.get((planned.experiment, planned.key))

    def find(self, planned: Planned) -> dict[str, Any] | None:
        """The entry of a planned run. None: it is missing, or a figure needs weights that the entry does not have."""
        entry = self.entry(planned)
        if entry is None or (planned.is_shown and not entry["diverged"] and weights_of(entry) is None):
            return None
        return entry

    def missing(self, planned: Iterable[Planned]) -> list[Planned]:
        """The planned runs that the ledger lacks."""
        return [one for one in planned if self.find(one) is None]

    def read(self, planned: Iterable[Planned]) -> Runs:
        """A table each experiment, a row each planned run that is there; see RUN_COLUMNS. Other entries are ignored.

        A run that a figure needs and that lacks its weights still has its scores here.
        """
        rows: dict[str, list[dict]] = {}
        for one in planned:
            rows.setdefault(one.experiment, [])
            entry = self.entry(one)
            if entry:
                rows[one.experiment].append(_row(entry, one))
        return Runs({name: _frame(found) for name, found in rows.items()})

    def curves(self, planned: Iterable[Planned]) -> dict[str, pd.DataFrame]:
        """Learning curves by experiment: size, seed, epoch, step, train_loss, validation scores."""
        found: dict[str, list[pd.DataFrame]] = {}
        for one in planned:
            found.setdefault(one.experiment, [])
            entry = self.entry(one)
            if entry and entry["curve"]:
                curve = pd.DataFrame(entry["curve"])
                curve.insert(0, "seed", one.seed)
                curve.insert(0, "size", one.size)
                found[one.experiment].append(curve)
        empty = pd.DataFrame(columns=["size", "seed", "epoch", "step", "train_loss"])
        return {name: pd.concat(parts, ignore_index=True) if parts else empty for name, parts in found.items()}

    def seconds_a_step(self, machine: str | None = None) -> dict[tuple, float]:
        """What an optimiser step takes, by (experiment, size): the least over finished runs, as other work beside a run
        slows it.

        machine  as `elm_lib.training.run.device_name` names it: of runs made there alone; of all where it is None
        """
        spent: dict[tuple, float] = {}
        for entry in self.entries.values():
            if entry["made"].get("wall_s") and entry["steps"] and machine in (None, entry["made"].get("device")):
                name = (entry["experiment"], entry["size"])
                spent[name] = min(entry["made"]["wall_s"] / entry["steps"], spent.get(name, math.inf))
        return spent


def _read(path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(path.read_text())
        check_scores(str(path), entry["scores"] | entry["test"]["scores"])
        if (entry["experiment"], entry["key"]) != (path.parent.name, path.stem):
            raise DataError(f"{path} is named for another run than {entry['experiment']}/{entry['key']}: rename it")
        return entry
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no entry of the ledger ({type(error).__name__}: {error}): take it from git again, or delete it "
            "and train the run again"
        ) from None


def _frame(rows: list[dict]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype=bool if name == "diverged" else object) for name in RUN_COLUMNS})
    scores = [name for name in frame.columns if name not in RUN_COLUMNS]
    return frame[RUN_COLUMNS + scores]


def _row(entry: dict[str, Any], planned: Planned) -> dict[str, Any]:
    statistics = entry["path"].with_suffix(".npz")
    return {
        "experiment": planned.experiment,
        "size": planned.size,
        "seed": planned.seed,
        "profile": planned.labels["profile"],
        "source": entry["source"],
        "morphology": entry["morphology"],
        "budget": planned.budget,
        "vary": planned.vary,
        "device": entry["made"]["kind"],
        "parameters": entry["parameters"],
        "flops": entry["flops"],
        "diverged": entry["diverged"],
        "steps": entry["steps"],
        "best_epoch": entry["best_epoch"],
        "key": planned.key,
        "commit": entry["made"]["commit"],
        "published_steps": planned.published.steps,
        "statistics": str(statistics) if statistics.is_file() else None,
        "curve": entry["curve"],
        **entry["scores"],
        **entry["test"]["scores"],
    }


def weights_of(entry: dict[str, Any]) -> Path | None:
    """The file of an entry's weights beside it. None: they were not kept."""
    path = entry["path"].with_suffix(".safetensors")
    return path if entry["weights"] and path.is_file() else None


def shown_of(entry: dict[str, Any]) -> Path | None:
    """The file of the simulation that figures show, with this run's prediction. None: it was not kept."""
    path = entry["path"].with_name(f"{entry['key']}_shown.npz")
    return path if path.is_file() else None


def enter(planned: Planned, folder: str | Path, ledger: str | Path, commit: str) -> Path:
    """Write the entry of a finished run, whose working files are in `folder`. Returns the entry's path.

    The entry itself is written last: where it is, what belongs to it is there.
    """
    folder, content = Path(folder), json.loads((Path(folder) / "result.json").read_text())
    made, result = content["made"], content["result"]
    path = Path(ledger) / planned.group / planned.experiment / f"{planned.key}.json"
    for source, name in (("statistics.npz", f"{planned.key}.npz"), ("shown.npz", f"{planned.key}_shown.npz")):
        if (folder / source).exists():
            write_atomically(path.with_name(name), (folder / source).read_bytes())
    weights = None
    if (folder / "model.safetensors").exists():  # a divergent run has none
        image = (folder / "model.safetensors").read_bytes()
        weights = {"sha256": hashlib.sha256(image).hexdigest(), "bytes": len(image)}
        if planned.first_seed and (len(image) <= MOST_WEIGHTS or planned.is_shown):
            write_atomically(path.with_suffix(".safetensors"), image)
    curve = pd.read_csv(folder / "curve.csv")
    scores = {name: value for name, value in result.items() if name not in ("diverged", "steps", "best_epoch")}
    entry = entry_of(
        planned,
        result={name: result[name] for name in ("diverged", "steps", "best_epoch")},
        scores=scores,
        curve=curve.to_dict("list"),
        weights=weights,
        made={"profile": planned.labels["profile"], "kind": content["device"], "commit": commit, **made},
    )
    write_text(path, json.dumps(entry, indent=1) + "\n")
    return path


def copy_beside(key: str, source: Path, target: Path) -> None:
    """Copy what lies beside an entry from one folder to another: statistics, weights, the simulation that is shown."""
    for name in (f"{key}.npz", f"{key}_shown.npz", f"{key}.safetensors"):
        if (source / name).is_file():
            write_atomically(target / name, (source / name).read_bytes())


def enter_twin(planned: Planned, ledger: Ledger, target: str | Path) -> bool:
    """Enter a planned run that another experiment has done: the same key, so the same run. Returns whether there was
    one."""
    twins = [entry for (_, key), entry in ledger.entries.items() if key == planned.key]
    if not twins or (planned.is_shown and not any(shown_of(entry) for entry in twins)):
        return False
    twin = max(twins, key=lambda entry: (shown_of(entry) is not None, weights_of(entry) is not None))
    path = Path(target) / planned.group / planned.experiment / f"{planned.key}.json"
    copy_beside(planned.key, twin["path"].parent, path.parent)
    own = {name: getattr(planned, name) for name in ("group", "experiment", "vary", "size", "budget")}
    write_text(path, json.dumps({name: own.get(name, twin[name]) for name in twin if name != "path"}, indent=1) + "\n")
    return True


def entry_of(planned: Planned, *, result: dict, scores: dict, curve: dict, weights: dict | None, made: dict) -> dict:
    """The content of an entry. `made` says where and when: it is no part of what two runs have in common."""
    model = build(planned.model, **task_class(planned.task).sizes(**planned.options))
    return {
        "key": planned.key,
        "group": planned.group,
        "experiment": planned.experiment,
        "vary": planned.vary,
        "size": planned.size,
        "seed": planned.seed,
        "meaning": planned.meaning,
        "budget": planned.budget,
        "source": planned.labels["source"],
        "morphology": planned.labels["morphology"],
        "parameters": cost.parameters(model),
        "flops": cost.count(model, task_class(planned.task).steps(**planned.options)),
        **result,
        "scores": {name: value for name, value in scores.items() if not name.startswith("test_")},
        "test": {
            "recipe": planned.recipe["test"],
            "scores": {name: value for name, value in scores.items() if name.startswith("test_")},
        },
        "curve": curve,
        "weights": weights,
        "made": made,
    }


def make_folders(root: str | Path, group: str) -> None:
    """Make the folders of a group in both ledgers: DVC needs those that stay empty under this profile, too."""
    for folder in (COMMITTED, LOCAL):
        (Path(root) / folder / group).mkdir(parents=True, exist_ok=True)
