"""The Long Range Arena: Tables 1 and S5 to S7 and their verdicts. Accuracies are in percent, in S7 in parts of 1.

Claims in words are in `elm_lib.paper.lra_claims`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import PUBLISHED, tables
from elm_lib.paper.claims import Score, cell, count
from elm_lib.paper.counts import counts
from elm_lib.paper.points import Runs, fullest, largest, table_of
from elm_lib.paper.verdict import Verdict, separation

GROUPS = ("lra", "lra_pathfinder")
MODELS = {"ELM": "lra_elm", "Chrono-LSTM": "lra_chrono"}
PUBLISHED_ONLY = ("Transformer", "Longformer", "S4", "Mega")
TASKS = {
    "image": "Image",
    "pathfinder": "Pathfinder",
    "pathfinder_x": "Pathfinder-X",
    "listops": "ListOps",
    "text": "Text",
    "retrieval": "Retrieval",
}
# table -> experiment, published file, name of the size there, unit of its accuracies, published columns by ours
ABLATIONS = {
    "tabS5": ("lra_pathfinder_d_m", "pathfinder_dm", "d_m", 100, {"accuracy": "test"}),
    "tabS6": ("lra_pathfinder_s5", "pathfinder_s5_layers", "layers", 100, {"accuracy": "test"}),
    "tabS7": (
        "lra_pathfinder_dropout",
        "pathfinder_dropout",
        "dropout",
        1,
        {"train_accuracy": "train", "test_accuracy": "test"},
    ),
}
TAU_S = "lra_pathfinder_x_tau_s"
COUNTS = {"text": 200e3, "retrieval": 150e3}  # Table 1: about 100 thousand parameters, but for these
# from here on something was learned: 5 points above chance; one ListOps answer (0 or 9) is right in about a sixth
LEARNED = {
    "digits": 20.0,
    "image": 15.0,
    "pathfinder": 55.0,
    "pathfinder_x": 55.0,
    "listops": 22.0,
    "text": 55.0,
    "retrieval": 55.0,
}
CHANCE = 50.0  # of what fails in Table 1
# of always giving the most frequent answer
CHANCES = dict.fromkeys(TASKS, CHANCE) | {"image": 10.0, "listops": 17.0, "digits": 10.0}
# a question of ours: models on a small real task of 64 steps
DIGITS = "digits"
TITLES = TASKS | {DIGITS: "Digits"}
SMALL = {"ELM": "digits_elm", "LSTM": "digits_lstm", "Chrono-LSTM": "digits_chrono", "S5": "digits_s5"}
SOLVED_DIGITS = 90.0  # percent
TOLERANCE = 1.0  # points: Table 1 has no sizes between which to tell; the standard error of 2,000 test samples is 1.1


def published() -> pd.DataFrame:
    """Table 1: model, name, accuracy_published (NaN where it failed), fails_published, parameters_published."""
    wide = pd.read_csv(PUBLISHED / "lra.csv")
    table = wide.melt(["model", "parameters"], list(TASKS), var_name="name", value_name="shown")
    fails = table.shown.astype(str) == "FAIL"
    ours = table.model.isin(MODELS)
    counts = table.name.map(COUNTS).fillna(100e3).where(ours, 600e3)
    found = table.assign(
        fails_published=fails, accuracy_published=pd.to_numeric(table.shown.where(~fails)), parameters_published=counts
    )
    return found[["model", "name", "parameters_published", "accuracy_published", "fails_published"]]


def averages(runs: pd.DataFrame, unit: float = 100) -> pd.DataFrame:
    """A row each size, of its largest budget: parameters; mean, standard deviation and maximum of the accuracies over
    the runs that did not diverge."""
    rows = []
    for size, group in fullest(runs).groupby("size"):
        kept = group[~group.diverged.astype(bool)]
        line = {
            "size": size,
            "parameters": group.parameters.iloc[0],
            "seeds": len(kept),
            "diverged": len(group) - len(kept),
        }
        for split in ("train", "valid", "test"):
            values = unit * kept.get(f"{split}_accuracy", pd.Series(dtype=float)).astype(float)
            line |= {
                f"{split}_mean": values.mean(),
                f"{split}_std": tables.spread(values),
                f"{split}_max": values.max(),
            }
        rows.append(line | {"budget": group.budget.iloc[0], "source": group.source.iloc[0]})
    scores = [f"{split}_{what}" for split in ("train", "valid", "test") for what in ("mean", "std", "max")]
    columns = ["size", "parameters", "seeds", "diverged", *scores, "budget", "source"]
    return pd.DataFrame(rows, columns=columns)


def table_1(runs: Runs) -> pd.DataFrame:
    """Table 1: a row each model and data set, published beside ours; `note` marks the models that are only cited."""
    ours = [averages(table_of(runs, experiment)).assign(model=model) for model, experiment in MODELS.items()]
    ours = pd.concat([frame for frame in ours if len(frame)] or ours).rename(columns={"size": "name"})
    both = published().merge(ours.astype({"name": str}), on=["model", "name"], how="left")
    both["note"] = np.where(both.model.isin(PUBLISHED_ONLY), "published only", "")
    order = [*MODELS, *PUBLISHED_ONLY]
    return both.sort_values(
        ["model", "name"], key=lambda column: column.map((order if column.name == "model" else list(TASKS)).index)
    ).reset_index(drop=True)


def ablation(runs: Runs, name: str) -> pd.DataFrame:
    """Table S5, S6 or S7: a row each size, published beside ours."""
    experiment, _, size, unit, _ = ABLATIONS[name]
    ours = averages(table_of(runs, experiment), unit).rename(columns={"size": size})
    both = published_ablation(name).astype({size: float}).merge(ours.astype({size: float}), on=size, how="outer")
    return both.sort_values(size).reset_index(drop=True)


def published_ablation(name: str) -> pd.DataFrame:
    """Table S5, S6 or S7: d_m, layers or dropout, {test, train}_published, parameters_published (not of S7)."""
    _, file, _, _, columns = ABLATIONS[name]
    theirs = pd.read_csv(PUBLISHED / f"{file}.csv")
    theirs = theirs.rename(columns={column: f"{split}_published" for column, split in columns.items()})
    if "trainable_parameters" in theirs:
        theirs["parameters_published"] = theirs.pop("trainable_parameters").map(_number)
    return theirs


def _number(text) -> float:
    """ "12k" -> 12000."""
    factor = {"k": 1e3, "M": 1e6}.get(str(text)[-1], 1)
    return factor * float(str(text).rstrip("kM"))


def tables_lra(runs: Runs, params: Params) -> dict[str, tables.Table]:
    """tab1, tabS5, tabS6, tabS7: the long form and the one that looks like the paper's."""
    found = {"tab1": table_1(runs), **{name: ablation(runs, name) for name in ABLATIONS}}
    for row, line in enumerate(found["tab1"].itertuples()):
        if line.model in MODELS:
            found["tab1"].loc[row, "parameters"] = counts(params, MODELS[line.model], line.name)[0]
    shown = {"tab1": _shown_table_1(found["tab1"])}
    for name, (experiment, _, size, _, _) in ABLATIONS.items():
        for row, value in enumerate(found[name][size]):
            found[name].loc[row, "parameters"] = counts(params, experiment, _as_written(params, experiment, value))[0]
        shown[name] = _shown_ablation(found[name], name)
    return {name: tables.Table(long, shown[name]) for name, long in found.items()}


def _as_written(params: Params, experiment: str, size: float):
    """A size as params.yaml has it (10, not 10.0)."""
    return next((value for value in params.experiment(experiment).values if value == size), size)


def _shown_table_1(long: pd.DataFrame) -> pd.DataFrame:
    """A row each model, a column each data set; ours with its budgets under published; parameters below both."""
    parameters: list[list[str]] = []
    rows, by = [], long.set_index(["model", "name"])
    titles = {"ELM": "ELM Neuron", "Chrono-LSTM": "Chr.-LSTM"}
    for model in MODELS:
        lines = [by.loc[(model, name)] for name in TASKS]
        rows.append([titles[model], "published", *map(_accuracy, lines)])
        rows.append(["", "ours", *(_with_budget(line) or "not run" for line in lines)])
        if not parameters:
            about = (f"~{line.parameters_published / 1e3:g}k" for line in lines)
            parameters.append(["# parameters", "published", *about])
        parameters.append(["", f"ours, {titles[model]}", *(f"{line.parameters / 1e3:.0f}k" for line in lines)])
    rows += parameters
    for model in PUBLISHED_ONLY:
        rows.append([model, "published", *(_accuracy(by.loc[(model, name)]) for name in TASKS)])
    rows.append(["# parameters", "published", *["~600k"] * len(TASKS)])
    return pd.DataFrame(rows, columns=["", " ", *TASKS.values()])


def _accuracy(line: pd.Series) -> str:
    return "FAIL" if line.fails_published else f"{line.accuracy_published:g}"


def _with_budget(line: pd.Series) -> str:
    shown = tables.mean_std(line.test_mean, line.test_std, 2)
    kind = "" if line.source in ("real", "generated") else f", {line.source}"
    return shown and f"{shown} ({100 * line.budget:.2g} % of the budget{kind})"


def _shown_ablation(long: pd.DataFrame, name: str) -> pd.DataFrame:
    """A column each size; a row for parameters and each accuracy, ours under published."""
    _, _, size, unit, columns = ABLATIONS[name]
    heads = {"d_m": "d_m", "layers": "# layers", "dropout": "dropout"}
    rows, digits = [], 2 if unit == 100 else 4
    if "parameters_published" in long:
        rows.append(["# params", "published", *(f"{value:.10g}" for value in long.parameters_published)])
        rows.append(["", "ours", *(f"{value:.10g}" for value in long.parameters)])
    for split in columns.values():
        head = "ACC" if len(columns) == 1 else f"{split.title()} ACC"
        rows.append([head, "published", *(tables.number(value, digits) for value in long[f"{split}_published"])])
        ours = zip(long[f"{split}_mean"], long[f"{split}_std"], strict=True)
        rows.append(["", "ours", *(tables.mean_std(mean, std, digits) or "not run" for mean, std in ours)])
    if long.budget.notna().any():
        rows.append(["% of the budget", "ours", *("" if b != b else f"{100 * b:.2g}" for b in long.budget)])
    return pd.DataFrame(rows, columns=[heads[size], "", *(f"{value:g}" for value in long[size])])


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row for each published cell of the tables that we can run.

    Where the published model failed, ours is judged on whether it learned nothing either.
    """
    return [*_cells_of_table_1(runs, params, profile), *_cells_of_ablations(runs, params, profile)]


def learning(runs: Runs) -> pd.DataFrame:
    """Learning curves of all runs, in the form of `figures.lra.learning`."""
    theirs = published().set_index(["model", "name"]).accuracy_published
    named = [
        (model, title, experiment, name, CHANCES[name], theirs[model, name])
        for model, experiment in MODELS.items()
        for name, title in TASKS.items()
    ]
    for table, model in (("tabS5", "ELM"), ("tabS6", "S5")):
        experiment, _, size, _, _ = ABLATIONS[table]
        lines = published_ablation(table).set_index(size).test_published
        named += [(model, TASKS["pathfinder"], experiment, value, CHANCE, lines[value]) for value in lines.index]
    named += [
        (model, TITLES[DIGITS], experiment, DIGITS, CHANCES[DIGITS], np.nan) for model, experiment in SMALL.items()
    ]
    found = [_curves(runs, *one) for one in named]
    columns = ["model", "task", "run", "share", "accuracy", "chance", "published"]
    return pd.concat([pd.DataFrame(columns=columns), *found], ignore_index=True)


def _curves(runs: Runs, model: str, task: str, experiment: str, size, chance: float, theirs: float) -> pd.DataFrame:
    table = table_of(runs, experiment)
    table = table[[value == size for value in table["size"]]]
    parts = []
    for number, run in enumerate(table.itertuples()):
        curve = run.curve if isinstance(getattr(run, "curve", None), dict) else {}
        if "valid_accuracy" in curve:
            steps = np.array(curve["step"], float)
            parts.append(
                pd.DataFrame(
                    {
                        "model": model,
                        "task": task,
                        "run": f"{experiment}, {size}, {number}",
                        "share": 100 * run.budget * steps / steps[-1],
                        "accuracy": 100 * np.array(curve["valid_accuracy"], float),
                        "chance": chance,
                        "published": theirs,
                    }
                )
            )
    return pd.concat(parts) if parts else pd.DataFrame()


def _limit(model: str, size) -> float:
    """Accuracy (%) from which on something was learned; the models of Tables S5 to S7 are all on Pathfinder."""
    return LEARNED[size] if size in LEARNED else LEARNED["pathfinder"]


def score_of(split: str = "test", unit: float = 100) -> Score:
    """An accuracy, as the tables show it: times unit."""
    return Score(f"{split}_accuracy", limit=_limit, unit=unit)


def _cells_of_table_1(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    rows, where = [], {"dataset": "lra", "profile": profile}
    for line in published().itertuples():
        if line.model not in MODELS:
            continue
        experiment, item = MODELS[line.model], f"{line.model} {TASKS[line.name]}"
        fails, point = bool(line.fails_published), largest(runs, experiment, line.name)
        theirs = CHANCE if fails else line.accuracy_published
        below = LEARNED[line.name] if fails else None
        rows.append(
            cell("Tab 1", f"{item} accuracy (%)", theirs, point, score_of(), TOLERANCE, failed_below=below, **where)
        )
        ours = counts(params, experiment, line.name)[0]
        note = "published as about this many"
        rows.append(
            count("Tab 1", f"{item} parameters", line.parameters_published, ours, 0.1, profile=profile, note=note)
        )
    return rows


def _cells_of_ablations(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    rows = []
    for name, (experiment, _, size, unit, columns) in ABLATIONS.items():
        claim, lines = f"Tab {name[3:]}", published_ablation(name).set_index(size)
        for split in columns.values():
            tolerances = separation(lines[f"{split}_published"], digit=0.01 if unit == 100 else 0.0001)
            for value, theirs in lines[f"{split}_published"].items():
                item = f"{size}={value:g} {split} accuracy{' (%)' if unit == 100 else ''}"
                point, tolerance = largest(runs, experiment, value), tolerances[value]
                score = score_of(split, unit)
                rows.append(cell(claim, item, theirs, point, score, tolerance, dataset="lra", profile=profile))
        for value, theirs in lines.get("parameters_published", pd.Series(dtype=float)).items():
            ours = counts(params, experiment, _as_written(params, experiment, value))[0]
            rows.append(count(claim, f"{size}={value:g} parameters", theirs, ours, 0.05, profile=profile))
    return rows
