"""Where results go: tables, curves, numbers. Every file is whole or absent."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from elm_lib.support.files import write_text


def save_experiment(
    name: str, results: pd.DataFrame, curves: pd.DataFrame, cost: pd.DataFrame, out: str | Path
) -> None:
    """out/runs/<name>.csv, out/curves/<name>.csv, out/cost/<name>.csv."""
    for folder, frame in (("runs", results), ("curves", curves), ("cost", cost)):
        write_text(Path(out) / folder / f"{name}.csv", frame.to_csv(index=False))


def save_table(table: pd.DataFrame, folder: str | Path, name: str) -> None:
    """A table as csv (all digits), md and tex (rounded)."""
    rounded = table.map(
        lambda value: f"{value:.6g}" if isinstance(value, float) and value == value else "" if value != value else value
    )
    header = list(rounded.columns)
    rule = ["---"] * len(header)
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (header, rule, *rounded.itertuples(index=False))]
    tex = [
        " & ".join(str(cell).replace("_", r"\_") for cell in row) + r" \\"
        for row in (header, *rounded.itertuples(index=False))
    ]
    body = [
        r"\begin{tabular}{" + "l" + "r" * (len(header) - 1) + "}",
        r"\toprule",
        tex[0],
        r"\midrule",
        *tex[1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    write_text(Path(folder) / f"{name}.csv", table.to_csv(index=False))
    write_text(Path(folder) / f"{name}.md", "\n".join(lines) + "\n")
    write_text(Path(folder) / f"{name}.tex", "\n".join(body) + "\n")


def summary(verdicts: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> dict:
    """The numbers that `dvc metrics` shows: the scores of each experiment and size, and how many verdicts of each kind."""
    scores = {
        name: {
            str(int(row["size"])): {"auc": round(row.auc_mean, 6), "rmse": round(row.rmse_mean, 6)}
            for _, row in table.dropna(subset=["auc_mean"]).iterrows()
        }
        for name, table in tables.items()
    }
    return {"scores": scores, "verdicts": verdicts.verdict.value_counts().sort_index().to_dict()}
