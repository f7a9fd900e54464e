"""SHD and SHD-Adding: Tables S11 and S12, the runs of Figures 5 and S5, and the verdicts on their numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import PUBLISHED, tables
from elm_lib.paper.claims import Score, cell, count
from elm_lib.paper.counts import counts
from elm_lib.paper.points import Point, Runs, fullest, largest, table_of
from elm_lib.paper.verdict import Verdict, separation

MODELS = {"branch_elm": "Branch-ELM", "elm": "ELM", "lstm": "LSTM", "snn": "SNN"}
SETS = {"shd": "Tab S11", "shd_adding": "Tab S12"}
TITLES = {"shd": "SHD", "shd_adding": "SHD-Adding"}
CHANCE = {"shd": 1 / 20, "shd_adding": 0.1}  # the sum 9 is one in ten
FIGURES = {"shd": "Fig S5", "shd_adding": "Fig 5"}
EXPERIMENTS = {name: [f"{name}_{kind}" for kind in MODELS] for name in SETS}
GROUPS = (*SETS, "shd_adding_ablations")
DRAWN = EXPERIMENTS | {"shd_adding": [*EXPERIMENTS["shd_adding"], "shd_adding_d_m", "shd_adding_tau_m"]}
SPLITS = ("train", "valid", "test")
ERRORS = ("valid", "test")  # splits of which runs keep which words were named right
OTHERS = ("test_accuracy_unseen_speakers", "test_accuracy_seen_speakers", "test_accuracy_dropped")
NEAR_CHANCE = 0.1  # accuracy above chance that still counts as chance
DIGIT = 0.01  # the published tables have two digits
# parameters in the caption of Figure 5; for the tolerance see elm_lib.paper.neuronio.COUNTS
CAPTION = {"Branch-ELM": 67e3, "ELM": 186e3, "LSTM": 956e3, "SNN": 51e3}
COUNT_TOLERANCE = 0.02
MORE = {"ELM": 3500, "Branch-ELM": 3500}  # parameters with which ours round to the caption's
SHOWN = {"Branch-ELM": "B-ELM"}


def published(name: str) -> pd.DataFrame:
    """Table S11 ("shd") or S12 ("shd_adding"): model, bin_ms, {train, valid, test}_accuracy_{mean, std}."""
    return pd.read_csv(Path(PUBLISHED) / f"{name}.csv").rename(columns={"bin_size_ms": "bin_ms"})


def table(runs: Runs, name: str) -> pd.DataFrame:
    """A row each model and bin size: published mean and standard deviation beside ours, and the binomial error of ours.

    Ours are over the runs of each bin's largest budget that did not diverge.
    """
    ours = []
    for experiment, model in zip(EXPERIMENTS[name], MODELS.values(), strict=True):
        for bin_ms, group in fullest(table_of(runs, experiment)).groupby("size"):
            gone = group.diverged.astype(bool)
            kept = group[~gone]
            line = {
                "model": model,
                "bin_ms": int(bin_ms),
                "parameters": int(group.parameters.iloc[0]),
                "seeds": len(kept),
                "diverged": int(gone.sum()),
                "budget": float(group.budget.iloc[0]),
            }
            for column in (*(f"{split}_accuracy" for split in SPLITS), *OTHERS):
                values = kept[column] if column in kept and len(kept) else pd.Series(dtype=float)
                line |= {f"{column}_mean": values.mean(), f"{column}_std": tables.spread(values)}
            point = Point(group)
            line |= {f"{split}_accuracy_error": point.error(f"{split}_accuracy") for split in ERRORS}
            ours.append(line)
    keys = ["model", "bin_ms"]
    scores = [f"{n}_{what}" for n in (*(f"{split}_accuracy" for split in SPLITS), *OTHERS) for what in ("mean", "std")]
    errors = [f"{split}_accuracy_error" for split in ERRORS]
    columns = [*keys, "parameters", "seeds", "diverged", "budget", *scores, *errors]
    both = published(name).merge(
        pd.DataFrame(ours, columns=columns).astype({"bin_ms": int}),
        on=keys,
        how="outer",
        suffixes=("_published", ""),
    )
    both["model"] = pd.Categorical(both["model"], list(MODELS.values()))
    return both.sort_values(keys).astype({"model": str}).reset_index(drop=True)


def tables_shd(runs: Runs, params: Params) -> dict[str, tables.Table]:
    """tabS11, tabS12: the long form and the one that looks like the paper's."""
    found = {}
    for name, claim in SETS.items():
        long, by_model = table(runs, name), dict(zip(MODELS.values(), EXPERIMENTS[name], strict=True))
        for row, line in enumerate(long.itertuples()):
            long.loc[row, "parameters"] = counts(params, by_model[line.model], int(line.bin_ms))[0]
        found[f"tab{claim.split()[1]}"] = tables.Table(long, _shown(long))
    return found


def _shown(long: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for line in long.to_dict("records"):
        for label, suffix in (("published", "_published"), (tables.ours(line), "")):
            means = [(line[f"{s}_accuracy_mean{suffix}"], line[f"{s}_accuracy_std{suffix}"]) for s in SPLITS]
            shown = SHOWN.get(line["model"], line["model"])
            rows.append([shown, line["bin_ms"], label, *(tables.mean_std(mean, std, 2) for mean, std in means)])
    return pd.DataFrame(rows, columns=["Model", "Bin Size", "", "Train Accuracy", "Valid Accuracy", "Test Accuracy"])


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row for each published cell of both tables, and for each parameter count of the captions.

    A cell that is published at chance (below chance + 0.1) is judged on whether ours is at chance too.
    """
    rows = []
    for name in SETS:
        rows += [*_cells(runs, name, profile), *_counts(params, name, profile)]
    return rows


def score_of(split: str, name: str) -> Score:
    """Accuracy on a split of a data set; what is below chance + 0.1 has learned nothing."""
    return Score(f"{split}_accuracy", limit=lambda model, size: CHANCE[name] + NEAR_CHANCE)


def _cells(runs: Runs, name: str, profile: str) -> list[Verdict]:
    rows, claim, chance = [], SETS[name], CHANCE[name]
    for experiment, model in zip(EXPERIMENTS[name], MODELS.values(), strict=True):
        lines = published(name).query("model == @model").set_index("bin_ms")
        tolerances = {split: separation(lines[f"{split}_accuracy_mean"], DIGIT) for split in SPLITS}
        for bin_ms, line in lines.iterrows():
            point = largest(runs, experiment, bin_ms)
            for split in SPLITS:
                theirs = line[f"{split}_accuracy_mean"]
                failed = theirs < chance + NEAR_CHANCE
                rows.append(
                    cell(
                        claim,
                        f"{model} {bin_ms} ms {split} accuracy",
                        theirs,
                        point,
                        score_of(split, name),
                        tolerances[split][bin_ms],
                        dataset="shd",
                        profile=profile,
                        failed_below=chance + NEAR_CHANCE if failed else None,
                    )
                )
    return rows


def _counts(params: Params, name: str, profile: str) -> list[Verdict]:
    """Parameters, of which the caption of Figure 5 tells those; Figure S5 has the same models with one output more."""
    rows = []
    for experiment, model in zip(EXPERIMENTS[name], MODELS.values(), strict=True):
        ours = counts(params, experiment, params.experiment(experiment).values[0])[0]
        note = "published in the caption of Figure 5" if name == "shd" else ""
        if model in MORE:
            note += "; " * bool(note) + f"{MORE[model]:,} more round to it"
        where = {"profile": profile, "note": note}
        rows.append(count(FIGURES[name], f"{model} parameters", CAPTION[model], ours, COUNT_TOLERANCE, **where))
    return rows
