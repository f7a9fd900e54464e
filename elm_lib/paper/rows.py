"""Rows of the verdict table as read: on the report page and in notebooks."""

from __future__ import annotations

from typing import Any

import pandas as pd

from elm_lib.paper.exhibits import dataset_of
from elm_lib.paper.verdict import NOT_KNOWN, TERMS, kind, steps

NOTHING = "–"


def read(verdicts: pd.DataFrame) -> pd.DataFrame:
    """The verdict table as its CSV file reads: NaN where there is nothing to show."""
    return verdicts.astype(object).where(verdicts != "", float("nan"))


def slug(text: str) -> str:
    """As a class or an address: "Fig S3" -> "fig-s3", "short at N %" -> "short"."""
    return text.removesuffix(" at N %").lower().replace(" ", "-")


def rows_of(verdicts: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the verdict table as read."""
    return [_row(row) for row in verdicts.to_dict("records")]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    found = kind(row["verdict"])
    error = row["sampling_error"] if row["sampling_error"] != NOT_KNOWN else float("nan")
    error = row["std"] if pd.isna(error) and _seeds(row) > 1 else error
    return {
        "item": row["item"],
        "note": "" if pd.isna(row["note"]) else row["note"],
        "published": _number(row["published"]),
        "ours": _number(row["ours"]),
        "error": "" if pd.isna(error) or pd.isna(row["ours"]) else f"± {float(error):.2g}",
        "n": f"{_seeds(row)}" if _seeds(row) else NOTHING,
        "training": steps(row) or NOTHING,
        "verdict": row["verdict"],
        "kind": found,
        "css": slug(found),
        "rank": list(TERMS).index(found),
        "data": NOTHING if pd.isna(row["data"]) else row["data"],
        "dataset": dataset_of(row["claim"]),
    }


def _seeds(row: dict[str, Any]) -> int:
    return 0 if pd.isna(row["seeds"]) else int(row["seeds"])


def _number(value: Any) -> str:
    if pd.isna(value):
        return NOTHING
    return f"{float(value):,.0f}" if abs(float(value)) >= 1e4 else f"{float(value):.5g}"
