"""Where the numbers of a figure or table come from, and what the missing ones would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elm_lib import datasets
from elm_lib.experiments.config import Params
from elm_lib.experiments.ledger import Ledger
from elm_lib.experiments.plan import SHOWN, Planned
from elm_lib.experiments.work import hours
from elm_lib.paper.exhibits import DATASETS, Exhibit
from elm_lib.paper.lra import TITLES

WHOLE = "paper"  # the profile of all published points, steps and seeds
# what a kind of data is, in words; the keys are those of the verdict table
SOURCES: dict[str, dict[str, str]] = {
    "neuronio": {
        "real": "the published simulations (Beniaguev et al. 2021)",
        "generated (exact)": "simulated here with our own simulator, the published cell and the published input "
        "statistics",
        "generated (default)": "simulated here, with another cell than the published one",
        "generated (point neuron)": "output of a point neuron whose constants are our choice",
    },
    "shd": {
        "real": "recordings of twelve people (Cramer et al. 2020)",
        "generated": "digits spoken by a speech synthesiser in twelve voices, through the published model of the ear",
    },
    "lra": {
        "real": "the published archives (Tay et al. 2021)",
        "generated": "made here by the published recipe",
        "generated, shortened": "made here by the published recipe, with shorter sequences",
        "stand-in": "other data of the same kind, whose scores cannot be compared with published ones",
        "scikit-learn": "small pictures of handwritten digits, which are real and not of the paper",
    },
}


@dataclass(frozen=True, kw_only=True)
class Made:
    """The runs behind a figure or table.

    done, planned      finished runs, of those that the profile plans
    commits, devices   of the finished runs, in the order of the plan
    core_h, gpu_h      hours that they took, evaluation included
    untimed            finished runs whose time is not known
    left_h             expected hours of one core for the planned runs that are missing
    whole              runs with all published points, steps and seeds
    whole_core_h, whole_gpu_h   expected hours of these, on one core or on one H100
    """

    done: int
    planned: int
    commits: tuple[str, ...]
    devices: tuple[str, ...]
    core_h: float
    gpu_h: float
    untimed: int
    left_h: float
    whole: int
    whole_core_h: float
    whole_gpu_h: float


def made(exhibit: Exhibit, planned: Sequence[Planned], ledger: Ledger, params: Params) -> Made:
    """What is known of the runs behind a figure or table. Runs that two experiments share count once."""
    mine: dict[str, Planned] = {}
    for one in planned:
        if one.experiment in exhibit.experiments and (one.is_shown or not exhibit.one_run):
            mine.setdefault(one.key, one)
    runs = [(one, ledger.entry(one)) for one in mine.values()]
    entries = [entry for _, entry in runs if entry]
    notes = [entry["made"] for entry in entries]
    spent = {kind: sum(note.get("wall_s") or 0 for note in notes if note["kind"] == kind) for kind in ("cpu", "cuda")}
    known = ledger.seconds_a_step()
    points = [point for name in exhibit.experiments for point in params.planned(name, WHOLE)]
    seeds = {id(point): 1 if exhibit.one_run else len(point.seeds) for point in points}
    points = [point for point in points if not exhibit.one_run or (point.experiment, point.value) in SHOWN]
    return Made(
        done=len(entries),
        planned=len(runs),
        commits=tuple(dict.fromkeys(note["commit"] for note in notes)),
        devices=tuple(dict.fromkeys(note["device"] for note in notes)),
        core_h=spent["cpu"] / 3600,
        gpu_h=spent["cuda"] / 3600,
        untimed=sum(not note.get("wall_s") for note in notes),
        left_h=sum(hours(one, known, "cpu") for one, entry in runs if not entry),
        whole=sum(seeds[id(point)] for point in points),
        whole_core_h=sum(seeds[id(point)] * point.hours("cpu") for point in points),
        whole_gpu_h=sum(seeds[id(point)] * point.hours("cuda") for point in points),
    )


def sources(params: Params, profile: str) -> list[dict[str, str]]:
    """What is generated and what is real in a profile: data set, label, words; a row each kind of data that it uses."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, experiment in params.experiments.items():
        settings = getattr(params.profiles[profile], experiment.data)
        for point in params.planned(name, profile):
            told = datasets.label(experiment.data, settings, point.options)
            kind = told["source"]
            if kind != "real" and told["morphology"]:
                kind += f" ({told['morphology']})"
            tasks = found.setdefault((experiment.data, kind), [])
            task = TITLES.get(point.options.get("name", ""), "")
            tasks += [task] * (task not in ("", *tasks))
    shown = DATASETS | {"shd": f"{DATASETS['shd']}, {DATASETS['shd_adding']}"}
    return [
        {
            "dataset": shown[data] + (f": {', '.join(tasks)}" if tasks else ""),
            "kind": kind,
            "words": SOURCES[data].get(kind, ""),
        }
        for (data, kind), tasks in found.items()
    ]
