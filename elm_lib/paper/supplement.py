"""What stands under a picture in a notebook: how much of it is seen, and the rows of the verdict table behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper.points import Runs
from elm_lib.paper.report import report
from elm_lib.paper.rows import read, rows_of
from elm_lib.paper.verdict import TERMS, kind

MOST = 16  # rows that a notebook shows; verdicts.csv has all


@dataclass(frozen=True)
class Text:
    """Markdown that a notebook draws."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Supplement:
    """The verdict table of the runs that a notebook reads."""

    verdicts: pd.DataFrame

    @classmethod
    def of(cls, runs: Runs, params: Params, profile: str) -> Supplement:
        return cls(read(report(runs, params, profile)[0]))

    def __call__(self, *claims: str) -> Text:
        """What is seen of these claims ("Fig 2", "Tab S8"), and the rows that were run, at most `MOST`."""
        rows = self.verdicts[self.verdicts.claim.isin(claims)]
        ran = rows[rows.verdict != "not run"]
        shown = [_line(row) for row in rows_of(ran.head(MOST))]
        table = pd.DataFrame(shown).to_markdown(index=False, disable_numparse=True) if shown else ""
        more = f"{len(ran) - MOST} more rows are in verdicts.csv." if len(ran) > MOST else ""
        return Text("\n\n".join(part for part in (seen(rows), table, more) if part))


def seen(rows: pd.DataFrame) -> str:
    """One sentence: how many rows of a claim were run and with which verdicts, and what is missing."""
    kinds = rows.verdict.map(kind)
    missing = rows[kinds == "not run"]
    found = [f"{n} {name}" for name in TERMS if name != "not run" and (n := int((kinds == name).sum()))]
    said = f"Seen: {len(rows) - len(missing)} of {len(rows)} published values and claims"
    said += f" ({', '.join(found)})" if found else ""
    if len(missing):
        said += f"; not seen, for want of a run: {len(missing)}, such as “{missing['item'].iloc[0]}”"
    return said + "."


def _line(row: dict[str, Any]) -> dict[str, str]:
    return {
        "item": row["item"] + (f" ({row['note']})" if row["note"] else ""),
        "published": row["published"],
        "ours ± error": f"{row['ours']} {row['error']}".strip(),
        "n": row["n"],
        "training": row["training"],
        "verdict": row["verdict"],
    }
