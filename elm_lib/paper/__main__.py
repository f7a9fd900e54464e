"""`python -m elm_lib.paper PROFILE` prints the verdicts of a profile, a line each."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from elm_lib.paper.page import write_page
from elm_lib.paper.verdict import TERMS, VERDICTS, kind

SHOWN = ("item", "published", "ours", "sampling_error", "seeds", "verdict", "note")


def text(verdicts: pd.DataFrame, *, every: bool = False) -> str:
    """The verdict table to read: what was run, by item of the paper, and how many rows there are of each verdict.

    every: rows that were not run, too
    """
    blocks, shown = [], verdicts.astype(object).where(verdicts.notna(), "")
    for claim, rows in shown.groupby("claim", sort=False):
        ran = rows if every else rows[rows.verdict != "not run"]
        missing = "" if len(ran) == len(rows) else f"  ({len(rows) - len(ran)} of {len(rows)} not run)"
        table = ran[list(SHOWN)].map(lambda value: f"{value:.5g}" if isinstance(value, float) else str(value))
        body = table.to_markdown(index=False, tablefmt="plain", disable_numparse=True) if len(ran) else ""
        blocks.append(f"{claim}{missing}\n{body}".rstrip())
    counts = verdicts.verdict.map(kind).value_counts()
    blocks.append("\n".join(f"{counts.get(name, 0):5}  {name}" for name in TERMS))
    return "\n\n".join(blocks)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elm_lib.paper", description="Print the verdicts of a profile.")
    parser.add_argument("profile", help="smoke, laptop, desk or paper")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the profiles' results")
    parser.add_argument("--all", action="store_true", help="also the rows that were not run")
    parser.add_argument(
        "--page", type=Path, help="also write the table between the marks of this page (docs/results.md)"
    )
    options = parser.parse_args(arguments)
    path = options.results / options.profile / VERDICTS
    if not path.is_file():
        raise SystemExit(
            f"{path} is missing: run the pipeline with profile {options.profile}, or `make paper` for desk"
        )
    verdicts = pd.read_csv(path)
    print(text(verdicts, every=options.all))
    if options.page:
        write_page(options.page, verdicts)


if __name__ == "__main__":
    main()
