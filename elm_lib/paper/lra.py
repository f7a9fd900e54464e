"""The Long Range Arena: Tables 1 and S5 to S7, the runs of Figure S8, and their verdicts. Accuracies in percent, S7 as published in parts of 1."""

from __future__ import annotations

import numpy as np
import pandas as pd

from elm_lib.paper.verdict import PUBLISHED, row, where_from
from elm_lib.paper.verdict import describe as describe_runs

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
TAU_S, TAU_S_VALUES = "lra_pathfinder_x_tau_s", 8
COUNTS = {"text": 200e3, "retrieval": 150e3}  # Table 1: about 100 thousand parameters, but for these
# from here on something was learned: 5 points above chance; one ListOps answer (0 or 9) is right in about a sixth
LEARNED = {"image": 15.0, "pathfinder": 55.0, "pathfinder_x": 55.0, "listops": 22.0, "text": 55.0, "retrieval": 55.0}
TOLERANCE = 2.0  # points: standard error of 2,000 test samples is 1.1, the published values are means of three runs
SOLVED = 70.0  # "over 70 % accuracy" on Pathfinder-X
COMPARABLE = ("real", "generated")  # a stand-in, or other lengths, is another task than the published one


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
    """A row each size: parameters, mean, standard deviation and maximum of the accuracies over the runs that did not diverge."""
    rows = []
    for size, group in runs.groupby("size"):
        kept = group[~group.diverged.astype(bool)]
        line = {
            "size": size,
            "parameters": group.parameters.iloc[0],
            "seeds": len(kept),
            "diverged": len(group) - len(kept),
        }
        for split in ("train", "valid", "test"):
            values = unit * kept.get(f"{split}_accuracy", pd.Series(dtype=float)).astype(float)
            line |= {f"{split}_mean": values.mean(), f"{split}_std": values.std(ddof=0), f"{split}_max": values.max()}
        rows.append(line | {"budget": group.budget.iloc[0], "source": group.source.iloc[0]})
    scores = [f"{split}_{what}" for split in ("train", "valid", "test") for what in ("mean", "std", "max")]
    columns = ["size", "parameters", "seeds", "diverged", *scores, "budget", "source"]
    return pd.DataFrame(rows, columns=columns)


def table_1(runs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Table 1: a row each model and data set, published beside ours; `note` marks the models that are only cited."""
    ours = [averages(runs[experiment]).assign(model=model) for model, experiment in MODELS.items()]
    ours = pd.concat([frame for frame in ours if len(frame)] or ours).rename(columns={"size": "name"})
    both = published().merge(ours.astype({"name": str}), on=["model", "name"], how="left")
    both["note"] = np.where(both.model.isin(PUBLISHED_ONLY), "published only", "")
    order = [*MODELS, *PUBLISHED_ONLY]
    return both.sort_values(
        ["model", "name"], key=lambda column: column.map((order if column.name == "model" else list(TASKS)).index)
    ).reset_index(drop=True)


def ablation(runs: dict[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Table S5, S6 or S7: a row each size, published beside ours."""
    experiment, file, size, unit, columns = ABLATIONS[name]
    theirs = pd.read_csv(PUBLISHED / f"{file}.csv")
    theirs = theirs.rename(columns={column: f"{split}_published" for column, split in columns.items()} | {size: "size"})
    if "trainable_parameters" in theirs:
        theirs["parameters_published"] = theirs.pop("trainable_parameters").map(_number)
    ours = averages(runs[experiment], unit)
    both = theirs.astype({"size": float}).merge(ours.astype({"size": float}), on="size", how="outer")
    return both.rename(columns={"size": size}).sort_values(size).reset_index(drop=True)


def _number(text) -> float:
    """ "12k" -> 12000."""
    factor = {"k": 1e3, "M": 1e6}.get(str(text)[-1], 1)
    return factor * float(str(text).rstrip("kM"))


def tables(runs: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """tab1, tabS5, tabS6, tabS7."""
    return {"tab1": table_1(runs), **{name: ablation(runs, name) for name in ABLATIONS}}


def describe(*runs: pd.DataFrame) -> str:
    """Where the numbers of a figure come from, in one line."""
    return describe_runs(*(part for frame in runs if len(frame) for _, part in frame.groupby("source")))


def verdicts(tables: dict[str, pd.DataFrame], runs: dict[str, pd.DataFrame]) -> list[dict]:
    """A row for each published cell of the tables that we can run, and each claim in words about them.

    reproduced: an accuracy is at least the published one less the tolerance; where the published model failed, ours learns
    nothing either, and the ELM does. Of a stand-in, or of other lengths, the verdict on a cell is "not comparable".
    """
    return _cells_of_table_1(tables["tab1"], runs) + _cells_of_ablations(tables, runs) + _claims(tables, runs)


def _size(runs: pd.DataFrame, size) -> pd.DataFrame:
    return runs[runs["size"].map(lambda value: value == size)]


def _count(claim, item, published, ours, relative, where) -> dict:
    good = abs(ours - published) <= relative * published if ours == ours else None
    return row(
        claim,
        f"{item} parameters",
        published,
        ours,
        np.nan,
        np.nan,
        relative * published,
        good,
        where | {"budget": np.nan},
    )


def _cells_of_table_1(table: pd.DataFrame, runs: dict[str, pd.DataFrame]) -> list[dict]:
    rows, elm = [], table[table.model == "ELM"].set_index("name").test_mean
    for line in table[table.note == ""].to_dict("records"):
        where = where_from(runs, _size(runs[MODELS[line["model"]]], line["name"]))
        item, ours = f"{line['model']} {TASKS[line['name']]}", line["test_mean"]
        if line[
            "fails_published"
        ]:  # as does everything that has not been trained: where the ELM learned, it says something
            learned = LEARNED[line["name"]]
            published, tolerance, good = 50.0, learned - 50, ours < learned <= elm[line["name"]]
        else:
            published, tolerance, good = (
                line["accuracy_published"],
                TOLERANCE,
                ours >= line["accuracy_published"] - TOLERANCE,
            )
        rows.append(
            row(
                "Tab 1",
                f"{item} accuracy (%)",
                published,
                ours,
                line["test_std"],
                line["seeds"],
                tolerance,
                good if line["seeds"] == line["seeds"] else None,
                where,
                line["source"] in COMPARABLE,
            )
        )
        rows.append(_count("Tab 1", item, line["parameters_published"], line["parameters"], 0.1, where))
    return rows


def _cells_of_ablations(tables: dict[str, pd.DataFrame], runs: dict[str, pd.DataFrame]) -> list[dict]:
    rows = []
    for name, (experiment, _, size, unit, columns) in ABLATIONS.items():
        claim = f"Tab {name[3:]}"
        for line in tables[name].to_dict("records"):
            where, ran = where_from(runs, _size(runs[experiment], line[size])), line["seeds"] == line["seeds"]
            for split in columns.values():
                published, ours, tolerance = line[f"{split}_published"], line[f"{split}_mean"], TOLERANCE * unit / 100
                if published == published:
                    shown = f"{size}={line[size]:g} {split} accuracy{' (%)' if unit == 100 else ''}"
                    rows.append(
                        row(
                            claim,
                            shown,
                            published,
                            ours,
                            line[f"{split}_std"],
                            line["seeds"],
                            tolerance,
                            ours >= published - tolerance if ran else None,
                            where,
                            line["source"] in COMPARABLE,
                        )
                    )
            if line.get("parameters_published", np.nan) == line.get("parameters_published"):
                rows.append(
                    _count(
                        claim, f"{size}={line[size]:g}", line["parameters_published"], line["parameters"], 0.05, where
                    )
                )
    return rows


def _claims(tables: dict[str, pd.DataFrame], runs: dict[str, pd.DataFrame]) -> list[dict]:
    """Each claim in words: the value is the margin by which it holds, in points; reproduced when it is not below 0 and the model
    that is said to be better learned something. Where the other learned nothing, though it does in the paper, the item says so."""
    rows = []
    cells = tables["tab1"].set_index(["model", "name"])
    by = {name: tables[name].set_index(ABLATIONS[name][2]).test_mean for name in ABLATIONS}
    data = {name: ABLATIONS[name][0] for name in ABLATIONS}
    tau_s = averages(runs[TAU_S]).set_index("size")

    def claim(label, item, published, margin, parts, learned=True):
        good = bool(margin >= 0 and learned) if margin == margin else None
        rows.append(row(label, item, published, margin, np.nan, np.nan, 0.0, good, where_from(runs, *parts)))

    def mean(table, *sizes):
        """Mean over sizes that all were run, else NaN."""
        return by[table].reindex(sizes).mean(skipna=False)

    def parts(table, *sizes):
        return [_size(runs[data[table]], size) for size in sizes]

    theirs_failed = cells.loc["Chrono-LSTM"].fails_published
    for name, title in TASKS.items():
        elm, chrono = (cells.test_mean[(model, name)] for model in MODELS)
        theirs, fails = (cells.accuracy_published[(model, name)] for model in MODELS), 50.0
        published = np.subtract(*(value if value == value else fails for value in theirs))
        both = [_size(runs[experiment], name) for experiment in MODELS.values()]
        learned = not chrono < LEARNED[name] <= elm or theirs_failed[name]
        says = (
            ""
            if learned
            else f", of which the latter learned nothing at {where_from(runs, *both)['budget']:.2g} of the budget"
        )
        claim(
            "Tab 1",
            f"ELM not below Chrono-LSTM on {title}{says}, margin (points)",
            published,
            elm - chrono,
            both,
            elm >= LEARNED[name],
        )
    for other in ("Transformer", "Longformer"):
        ours, theirs = cells.loc["ELM"], cells.accuracy_published[other].fillna(50.0)
        complete = ours.source.isin(COMPARABLE).all() and ours.test_mean.notna().all()
        wins = (ours.test_mean > theirs).sum() if complete else np.nan
        expected = (ours.accuracy_published > theirs).sum()
        where = where_from(runs, *(_size(runs["lra_elm"], name) for name in TASKS))
        rows.append(
            row(
                "Tab 1",
                f"ELM above the published {other}, tasks of 6",
                expected,
                wins,
                np.nan,
                np.nan,
                0.0,
                wins >= expected if complete else None,
                where,
            )
        )
    elm_x, chrono_x = (cells.test_mean[(model, "pathfinder_x")] for model in MODELS)
    x = [_size(runs[experiment], "pathfinder_x") for experiment in MODELS.values()]
    claim("Tab 1", "ELM solves Pathfinder-X: above 70 %, by", 77.29 - SOLVED, elm_x - SOLVED, x[:1])
    claim(
        "Tab 1",
        "Chrono-LSTM fails Pathfinder-X, which the ELM does not: below 55 %, by",
        5.0,
        LEARNED["pathfinder_x"] - chrono_x,
        x,
        elm_x >= LEARNED["pathfinder_x"],
    )

    claim(
        "Tab S5",
        "accuracy rises from d_m=10 to 150, by",
        71.54 - 57.83,
        mean("tabS5", 150) - mean("tabS5", 10),
        parts("tabS5", 10, 150),
        mean("tabS5", 150) >= LEARNED["pathfinder"],
    )
    claim(
        "Tab S5",
        "accuracy saturates: d_m=300 above the mean of 150 and 200 by less than 2, margin",
        2 - (71.85 - 72.26),
        2 - (mean("tabS5", 300) - mean("tabS5", 150, 200)),
        parts("tabS5", 150, 200, 300),
        mean("tabS5", 150) >= LEARNED["pathfinder"],
    )
    claim(
        "Tab S6",
        "S5 with one layer below an ELM with d_m=25, by",
        62.95 - 58.19,
        mean("tabS5", 25) - mean("tabS6", 1),
        parts("tabS5", 25) + parts("tabS6", 1),
        min(mean("tabS5", 25), mean("tabS6", 1)) >= LEARNED["pathfinder"],
    )
    claim(
        "Tab S6",
        "S5 drops steeply from two layers to one: by 10 points or more, margin",
        78.69 - 58.19 - 10,
        mean("tabS6", 2) - mean("tabS6", 1) - 10,
        parts("tabS6", 1, 2),
    )
    others = by["tabS7"].drop(0.3, errors="ignore")
    claim(
        "Tab S7",
        "dropout 0.3 best, by (points)",
        100 * (0.823 - 0.815),
        100 * (mean("tabS7", 0.3) - others.max(skipna=False)),
        [runs[data["tabS7"]]],
        mean("tabS7", 0.3) >= LEARNED["pathfinder"] / 100,
    )
    claim(
        "Tab S7",
        "ELM with dropout 0.3 above S5 with two layers, by",
        82.3 - 78.69,
        100 * mean("tabS7", 0.3) - mean("tabS6", 2),
        parts("tabS7", 0.3) + parts("tabS6", 2),
        mean("tabS7", 0.3) >= LEARNED["pathfinder"] / 100,
    )

    whole = len(tau_s) >= TAU_S_VALUES
    short, long = (tau_s[found & whole] for found in (tau_s.index < 75, tau_s.index >= 150))
    claim(
        "Fig S8",
        "mean accuracy higher with tau_s of 150 ms or more than below 75 ms, by",
        np.nan,
        long.test_mean.mean() - short.test_mean.mean(),
        [runs[TAU_S]],
        long.test_mean.max() >= LEARNED["pathfinder_x"],
    )
    claim(
        "Fig S8",
        "maximum accuracy higher with some tau_s below 75 ms than from 150 ms on, by",
        np.nan,
        short.test_max.max() - long.test_max.max(),
        [runs[TAU_S]],
        short.test_max.max() >= LEARNED["pathfinder_x"],
    )
    between = tau_s.test_mean.reindex([75.0, 100.0]).mean(skipna=False)
    around = tau_s.test_mean.reindex([50.0, 150.0]).mean(skipna=False)
    claim(
        "Fig S8",
        "mean accuracy drops at 75 and 100 ms against 50 and 150 ms, by",
        np.nan,
        around - between,
        [runs[TAU_S]],
        around >= LEARNED["pathfinder_x"],
    )
    return rows
