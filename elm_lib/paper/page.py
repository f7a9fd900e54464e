"""The verdict table as a page to read: docs/results.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from elm_lib.paper.items import ITEMS
from elm_lib.paper.verdict import TERMS, VERDICTS, kind
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_text

MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")


def markdown(verdicts: pd.DataFrame) -> str:
    """The verdict table, a heading each item of the paper: rows of training runs that can be judged, and a line that counts the rest."""
    kinds = verdicts.verdict.map(kind)
    counts = ", ".join(f"{n} {name}" for name in TERMS if (n := int((kinds == name).sum())))
    blocks = [f"{len(verdicts)} rows: {counts}. All of them: `{VERDICTS}`."]
    for claim, rows in verdicts.groupby("claim", sort=False):
        blocks.append(f"### {claim}" + (f": {ITEMS[claim]}" if claim in ITEMS else ""))
        of_runs = pd.to_numeric(rows.budget, errors="coerce").notna()
        judged = rows[of_runs & (rows.verdict != "not comparable")]
        if len(judged):
            columns = ["item", "published", "ours", "verdict", "seeds", "budget"]
            blocks.append(
                pd.DataFrame([_line(row) for _, row in judged.iterrows()], columns=columns).to_markdown(index=False)
            )
        rest = rows[~rows.index.isin(judged.index)]
        counted = rest[~of_runs & (rest.verdict != "not run")]
        said = [
            f"{(counted.verdict == 'reproduced').sum()} of {len(counted)} counts within tolerance"
            if len(counted)
            else "",
            *(f"{n} {name}" for name in ("not comparable", "not run") if (n := int((rest.verdict == name).sum()))),
        ]
        if any(said):
            blocks.append("; ".join(filter(None, said)) + ".")
    return "\n\n".join(blocks)


def _line(row: pd.Series) -> list[str]:
    error = "" if pd.isna(row.sampling_error) else row.sampling_error
    error = (
        error if isinstance(error, str) and not _is_number(error) else f"± {float(error):.2g}" if error != "" else ""
    )
    budgets = [row.budget_ours, row.budget_theirs] if pd.notna(row.budget_theirs) else [row.budget]
    shares = " and ".join(dict.fromkeys(f"{100 * float(budget):.3g} %" for budget in budgets))
    ours = f"{row.ours:.5g}" + (f" {error}" if error.startswith("±") else "")
    note = f" ({row.note})" if isinstance(row.note, str) and row.note else ""
    published = "" if pd.isna(row.published) else f"{row.published:.5g}"
    return [f"{row['item']}{note}", published, ours, row.verdict, f"{row.seeds:g}", shares]


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("e-", "").isdigit()


def write_page(path: str | Path, verdicts: pd.DataFrame) -> None:
    """Put `markdown` between its marks in a page. Raises DataError when the marks are gone."""
    path, text = Path(path), Path(path).read_text()
    start, end = MARKS
    if text.count(start) != 1 or text.count(end) != 1:
        raise DataError(f"{path} has lost {start} or {end}: put each where the verdict table belongs, once")
    head, tail = text.split(start)[0], text.split(end)[1]
    write_text(path, f"{head}{start}\n\n{markdown(verdicts)}\n\n{end}{tail}")
