"""The verdict table as a page to read: docs/results.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from elm_lib.paper.items import FOLLOW_UP, ITEMS, OURS
from elm_lib.paper.verdict import NOT_KNOWN, TERMS, VERDICTS, kind, steps
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_text

MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")


def markdown(verdicts: pd.DataFrame) -> str:
    """The verdict table, as read from its CSV file, under a heading for each item of the paper.

    Rows of training runs that can be judged are shown, the others counted in a line.
    """
    kinds = verdicts.verdict.map(kind)
    counts = ", ".join(f"{n} {name}" for name in TERMS if (n := int((kinds == name).sum())))
    blocks = [f"{len(verdicts)} rows: {counts}. All of them: `{VERDICTS}`."]
    for claim, rows in verdicts.groupby("claim", sort=False):
        of_runs = rows.budget.notna()
        judged = rows[of_runs & (rows.verdict != "not comparable")]
        counted = rows[~of_runs & ~rows.verdict.isin(["not run", "drawn"])]
        said = [f"{(counted.verdict == 'reproduced').sum()} of {len(counted)} counts within tolerance"] * (
            len(counted) > 0
        )
        for name in ("drawn", "not comparable", "not run"):
            n = int((rows.verdict == name).sum())
            said += [f"{n} {name}"] * (n > 0)
        says = (ITEMS | FOLLOW_UP | OURS).get(claim)
        blocks.append(f"### {claim}" + (f": {says}" if says else ""))
        if len(judged):
            lines = pd.DataFrame([_line(row) for _, row in judged.iterrows()])
            blocks.append(lines.to_markdown(index=False, disable_numparse=True))
        if said:
            blocks.append("; ".join(said) + ".")
    return "\n\n".join(blocks)


def _line(row: pd.Series) -> dict[str, str]:
    """A row as read: the sampling error beside ours, both budgets of a comparison, the note beside the item."""
    ours = "none" if pd.isna(row.ours) else f"{row.ours:.5g}"
    known = pd.notna(row.sampling_error) and row.sampling_error != NOT_KNOWN
    return {
        "item": row["item"] + (f" ({row.note})" if isinstance(row.note, str) and row.note else ""),
        "published": "" if pd.isna(row.published) else f"{row.published:.5g}",
        "ours": f"{ours} ± {float(row.sampling_error):.2g}" if known else ours,
        "verdict": row.verdict,
        "seeds": f"{row.seeds:g}",
        "steps": steps(row),
    }


def write_page(path: str | Path, verdicts: pd.DataFrame) -> None:
    """Put `markdown` between its marks in a page. Raises DataError when the marks are gone."""
    path, text = Path(path), Path(path).read_text()
    start, end = MARKS
    if text.count(start) != 1 or text.count(end) != 1:
        raise DataError(f"{path} has lost {start} or {end}: put each where the verdict table belongs, once")
    head, tail = text.split(start)[0], text.split(end)[1]
    write_text(path, f"{head}{start}\n\n{markdown(verdicts)}\n\n{end}{tail}")
