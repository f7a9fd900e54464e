"""Published values beside ours: tables, verdicts, and the table in the README. `python -m elm_lib.paper.verdict` prints the verdicts."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from elm_lib.support.errors import DataError

PUBLISHED = Path(__file__).parent / "published"
VERDICTS = "verdicts.csv"
COLUMNS = [
    "claim",
    "item",
    "published",
    "ours",
    "std",
    "seeds",
    "tolerance",
    "verdict",
    "budget",
    "profile",
    "data",
    "device",
]
MODELS = {
    "neuronio_branch_elm": ("Tab S8", "Branch-ELM"),
    "neuronio_elm": ("Tab S9", "ELM"),
    "neuronio_lstm": ("Tab S10", "LSTM"),
}
GROUPS = ("neuronio",)
MANY = ("Tab S11", "Tab S12")  # a line in the README for all their cells
SIZE = {"Branch-ELM": "d_m", "ELM": "d_m", "LSTM": "n"}

# score -> (column of a run, published column, tolerance, which way is better). AUC and RMSE by the released evaluation, as published.
# Tolerances: sampling error of a test set of 64 simulations (bootstrap SD 0.0014 and 0.05 mV) and of three seeds.
SCORES = {
    "auc": ("test_released_auc", "spike_auc_mean", 0.002, "higher"),
    "rmse": ("test_released_rmse", "voltage_rmse_mean", 0.05, "lower"),
}
COUNTS = {"parameters": ("trainable_parameters", 0.02), "flops": ("flops_per_sample", 0.01)}  # relative tolerance
SUFFICIENT_AUC = 0.991  # "sufficiently good" spike prediction, Section 4.1
README_MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")


def published_neuronio() -> pd.DataFrame:
    """Tables S8 to S10: model, size, trainable_parameters, flops_per_sample, voltage_rmse_mean/_std (mV), spike_auc_mean/_std."""
    return pd.read_csv(PUBLISHED / "neuronio_models.csv")


class Runs(dict):
    """Tables of runs by experiment. Raises DataError for one that is not there."""

    def __missing__(self, experiment: str):
        raise DataError(
            f"there are no results of {experiment}: its csv is missing below results/runs; run `dvc repro` of its train stage"
        )


def read_runs(folder: str | Path, *groups: str) -> Runs:
    """Results of groups of experiments, by experiment: a row each run, divergent ones included. Raises DataError when a group was
    not run."""
    found = Runs()
    for group in groups:
        paths = sorted((Path(folder) / "runs" / group).glob("*.csv"))
        if not paths:
            raise DataError(f"{Path(folder) / 'runs' / group} has no results: run `dvc repro train@{group}`")
        found.update({path.stem: pd.read_csv(path) for path in paths})
    return found


def neuronio_table(runs: pd.DataFrame, model: str) -> pd.DataFrame:
    """One of Tables S8 to S10: ours beside the published values, a row each size that either has.

    Means and standard deviations (population, as one run then has 0) are over the runs that did not diverge.
    """
    kept = runs[~runs.diverged]
    columns = {
        **{k: v[0] for k, v in SCORES.items()},
        "auc_clean": "test_auc",
        "rmse_clean": "test_rmse",
        "tp": "test_released_tp_at_0.0025_fp",
        "tp_01": "test_released_tp_at_0.01_fp",
    }
    rows = []
    for size, group in kept.groupby("size"):
        row = {"size": size, "parameters": group.parameters.iloc[0], "flops": group.flops.iloc[0], "seeds": len(group)}
        for name, column in columns.items():
            row |= {f"{name}_mean": group[column].mean(), f"{name}_std": group[column].std(ddof=0)}
        rows.append(row)
    ours = pd.DataFrame(
        rows, columns=["size", "parameters", "flops", "seeds", *(f"{n}_{s}" for n in columns for s in ("mean", "std"))]
    )
    ours = ours.merge(runs.groupby("size").diverged.sum().rename("diverged").astype(int), on="size", how="outer")
    theirs = (
        published_neuronio()
        .query("model == @model")
        .rename(
            columns={
                "trainable_parameters": "parameters",
                "flops_per_sample": "flops",
                "voltage_rmse_mean": "rmse_mean",
                "voltage_rmse_std": "rmse_std",
                "spike_auc_mean": "auc_mean",
                "spike_auc_std": "auc_std",
            }
        )
        .drop(columns=["model", "size_name"])
    )
    table = theirs.merge(ours, on="size", how="outer", suffixes=("_published", "")).sort_values("size")
    table.insert(0, "model", model)
    return table.reset_index(drop=True)


def labels(runs: pd.DataFrame) -> dict:
    """Where the numbers of an experiment come from: budget, profile, data, device. Raises DataError if runs of two kinds are mixed."""
    mixed = [name for name in ("profile", "source", "morphology", "device", "budget") if runs[name].nunique() > 1]
    if mixed:
        raise DataError(f"runs of {runs.experiment.iloc[0]} differ in {mixed}: a table never mixes them")
    first = runs.iloc[0]
    morphology = "" if first.morphology != first.morphology or not first.morphology else f" ({first.morphology})"
    data = "real" if first.source == "real" else f"{first.source}{morphology}"
    return {"budget": float(first.budget), "profile": first.profile, "data": data, "device": first.device}


def describe(*runs: pd.DataFrame) -> str:
    """The same in one line, for figures, of one experiment or more; those without runs are left out."""
    where = [labels(part) for frame in runs if len(frame) for _, part in frame.groupby("budget")]
    if not where:
        return "not run under this profile"
    budgets = [found["budget"] for found in where]
    share = " to ".join(dict.fromkeys(f"{100 * budget:.3g}" for budget in (min(budgets), max(budgets))))
    devices = ", ".join(dict.fromkeys(found["device"] for found in where))
    return f"profile {where[0]['profile']}, {where[0]['data']} data, {devices}, {share} % of the published optimiser budget"


def where_from(runs: dict[str, pd.DataFrame], *parts: pd.DataFrame) -> dict:
    """Of the runs behind a row of the report: the smallest budget, and every source that they had. Without runs: the profile alone."""
    ran = [labels(part) for part in parts if len(part)]
    if not ran:
        profile = next((frame.profile.iloc[0] for frame in runs.values() if len(frame)), "")
        return {"budget": np.nan, "profile": profile, "data": "", "device": ""}
    joined = {key: ", ".join(dict.fromkeys(found[key] for found in ran)) for key in ("profile", "data", "device")}
    return {"budget": min(found["budget"] for found in ran), **joined}


def verdicts(tables: dict[str, pd.DataFrame], runs: dict[str, pd.DataFrame]) -> list[dict]:
    """A row for each published cell of Tables S8 to S10 and each claim in words about them.

    reproduced: a score is at least as good as the published one less the tolerance; a count is within it.
    """
    rows, origins = [], {experiment: labels(runs[experiment]) for experiment in MODELS}
    if len({tuple(where[key] for key in ("profile", "data")) for where in origins.values()}) > 1:
        raise DataError(f"results of different profiles or data are not put into one table: {origins}; run `dvc repro`")
    for experiment, (claim, model) in MODELS.items():
        where = origins[experiment]
        for entry in tables[experiment].dropna(subset=["auc_mean_published"]).itertuples():
            item = f"{model} {SIZE[model]}={int(entry.size)}"
            ran = (
                entry.seeds == entry.seeds or entry.diverged > 0
            )  # a size whose every run diverged ran, and reproduced nothing
            for name, (_, _, tolerance, better) in SCORES.items():
                published, ours = getattr(entry, f"{name}_mean_published"), getattr(entry, f"{name}_mean")
                good = ours >= published - tolerance if better == "higher" else ours <= published + tolerance
                rows.append(
                    row(
                        claim,
                        f"{item} {name.upper()}{'' if name == 'auc' else ' (mV)'}",
                        published,
                        ours,
                        getattr(entry, f"{name}_std"),
                        entry.seeds,
                        tolerance,
                        good if ran else None,
                        where,
                    )
                )
            for name, (_, relative) in COUNTS.items():
                published, ours = getattr(entry, f"{name}_published"), getattr(entry, name)
                rows.append(
                    row(
                        claim,
                        f"{item} {name}",
                        published,
                        ours,
                        np.nan,
                        np.nan,
                        relative * published,
                        abs(ours - published) <= relative * published if ran else None,
                        {**where, "budget": np.nan},
                    )
                )
    return rows + _claims(tables, runs)


def frame(rows: list[dict]) -> pd.DataFrame:
    """Rows of `row` as the verdict table."""
    return pd.DataFrame(rows, columns=COLUMNS)


def _claims(tables: dict[str, pd.DataFrame], runs: dict[str, pd.DataFrame]) -> list[dict]:
    """Claims in words, each a rule over the tables."""
    where = labels(runs["neuronio_branch_elm"])

    def at(table, **cell):
        ((name, value),) = cell.items()
        found = table[(table[name] == value) & table.auc_mean.notna()]
        return found.iloc[0] if len(found) else None

    def passes(claim, item, experiment, size):
        where, found = labels(runs[experiment]), at(tables[experiment], size=size)
        if found is None:
            return row(claim, item, SUFFICIENT_AUC, np.nan, np.nan, np.nan, 0.0, None, where)
        good = found.auc_mean >= SUFFICIENT_AUC
        return row(claim, item, SUFFICIENT_AUC, found.auc_mean, found.auc_std, found.seeds, 0.0, good, where)

    def above(ours, better, theirs, worse, where):
        """Two rows: how much higher the AUC, how much lower the RMSE."""
        items = [f"AUC of {ours} above that of {theirs}, by", f"RMSE of {ours} below that of {theirs}, by (mV)"]
        if better is None or worse is None:
            return [row("Fig 2", item, np.nan, np.nan, np.nan, np.nan, 0.0, None, where) for item in items]
        learned = worse.auc_mean > 0.5  # to be above a baseline that learned no spikes shows nothing
        gaps = [better.auc_mean - worse.auc_mean, worse.rmse_mean - better.rmse_mean]
        stds = [np.hypot(better[f"{score}_std"], worse[f"{score}_std"]) for score in ("auc", "rmse")]
        seeds, good = min(better.seeds, worse.seeds), [learned and gaps[0] > 0, gaps[1] > 0]
        return [
            row("Fig 2", *values, where) for values in zip(items, [0.0] * 2, gaps, stds, [seeds] * 2, [0.0] * 2, good)
        ]

    def pair(ours, better, size, theirs, worse, worse_size):
        """A comparison has the budget of the run that had less."""
        budget = min(labels(runs[name])["budget"] for name in (better, worse))
        return above(
            ours, at(tables[better], size=size), theirs, at(tables[worse], size=worse_size), where | {"budget": budget}
        )

    branch, elm, lstm = MODELS
    pairs = [
        pair("ELM (d_m=20)", elm, 20, "an LSTM of as many parameters (n=10)", lstm, 10),
        pair("ELM (d_m=20)", elm, 20, "an LSTM of 1.5 times its parameters (n=15)", lstm, 15),
        pair("Branch-ELM (d_m=20)", branch, 20, "an LSTM of 1.3 times its parameters (n=2)", lstm, 2),
        pair("Branch-ELM (d_m=20)", branch, 20, "an LSTM of 9.7 times its parameters (n=15)", lstm, 15),
    ]
    headline = "Branch-ELM with about 8 thousand parameters (d_m=20) reaches AUC 0.991"
    return [
        passes("headline", headline, branch, 20),
        passes("Fig 2", "ELM with about 53 thousand parameters (d_m=20) reaches AUC 0.991", elm, 20),
        passes("Fig 2", "LSTM with 266 thousand parameters (n=50) reaches AUC 0.991", lstm, 50),
        *(line for two in pairs for line in two),
    ]


def row(claim, item, published, ours, std, seeds, tolerance, good, where, comparable=True) -> dict:
    """A line of the verdict table. good: True, False, or None for what was not run; where: `labels` of the runs behind it;
    comparable: whether they had the published data, or data made by the published recipe."""
    verdict = (
        "not run"
        if good is None
        else "not comparable"
        if not comparable
        else "reproduced"
        if good
        else "not reproduced"
    )
    seeds = 0 if good is None else int(seeds) if seeds == seeds else ""
    values = {"published": published, "ours": ours, "std": std, "tolerance": tolerance}
    values = {name: "" if value != value else float(f"{value:.6g}") for name, value in values.items()}
    budget = "" if where["budget"] != where["budget"] or good is None else float(f"{where['budget']:.3g}")
    return {"claim": claim, "item": item, **values, "seeds": seeds, "verdict": verdict, **where, "budget": budget}


def markdown(frame: pd.DataFrame) -> str:
    """The verdict table for the README: rows that were run, and one line that counts the rest."""
    ran = frame[frame.verdict != "not run"]
    scored = ran[ran.budget.astype(str).ne("") & ran.budget.notna()]
    lines = ["| claim | item | published | ours | verdict | budget |", "|---|---|---|---|---|---|"]
    many = scored.claim.isin(MANY)
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in scored[many].verdict.value_counts().sort_index().items())
    for line in scored[~many].itertuples():
        spread = f" ± {line.std:.2g}" if pd.to_numeric(line.seeds) > 1 else ""
        lines.append(
            f"| {line.claim} | {line.item} | {_number(line.published)} | {line.ours:.5g}{spread} | {line.verdict} | {line.budget:.3g} |"
        )
    first = frame.iloc[0]
    counts = ran.drop(scored.index)
    lines += [
        "",
        f"Profile `{first.profile}`, {first.data} data, {first.device}. Budget: fraction of the published optimiser steps. "
        f"Parameter and FLOP counts: {int((counts.verdict == 'reproduced').sum())} of {len(counts)} within tolerance. "
        f"Accuracies of {' and '.join(MANY)}: {verdicts or 'not run'}. "
        f"Not run under this profile: {len(frame) - len(ran)} of {len(frame)} rows. All rows: `results/verdicts.csv`.",
    ]
    return "\n".join(lines)


def _number(value) -> str:
    return "" if value != value or value == "" else f"{float(value):.5g}"


def write_readme(path: Path, frame: pd.DataFrame) -> None:
    """Put the verdict table between its marks in a README. Raises DataError when the marks are gone."""
    text = path.read_text()
    start, end = README_MARKS
    if start not in text or end not in text:
        raise DataError(f"{path} has lost {start} or {end}: put them back where the verdict table belongs")
    head, tail = text.split(start)[0], text.split(end)[1]
    path.write_text(f"{head}{start}\n{markdown(frame)}\n{end}{tail}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elm_lib.paper.verdict", description="Print every verdict.")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--readme", type=Path, help="also renew the verdict table in this README")
    options = parser.parse_args(arguments)
    path = options.results / VERDICTS
    if not path.is_file():
        raise SystemExit(f"{path} is missing: run `make repro`")
    frame = pd.read_csv(path)
    print(frame.astype(object).fillna("").to_string(index=False))
    if options.readme:
        write_readme(options.readme, frame)


if __name__ == "__main__":
    main()
