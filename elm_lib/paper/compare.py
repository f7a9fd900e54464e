"""How many numbers of a results folder equal a committed reference.

python -m elm_lib.paper.compare RESULTS REFERENCE.csv            a line: how many are equal, the largest difference
python -m elm_lib.paper.compare RESULTS REFERENCE.csv --write    RESULTS becomes the reference
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from elm_lib.paper.verdict import VERDICTS
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_text

KEYS = ["table", "row", "column"]
NAMES = (
    "claim",
    "model",
    "name",
    "parameter",
    "bin_ms",
    "size",
    "d_m",
    "layers",
    "dropout",
    "item",
)  # what names a row
DIGITS = 10  # of a number that is compared: the file has that many


class Comparison(NamedTuple):
    """n_equal of n numbers are equal; `largest` relative difference (inf: in one of the two alone), and where it is."""

    n_equal: int
    n: int
    largest: float
    where: str


def numbers(results: str | Path) -> pd.DataFrame:
    """Every number of ours in tables/*_long.csv, and `ours` and `std` of verdicts.csv: table, row, column, value.

    Published numbers are left out: they are equal whatever we do. Raises DataError when the folder has neither.
    """
    results = Path(results)
    paths = sorted(results.glob("tables/*_long.csv"))
    found = [_flat(path.name.removesuffix("_long.csv"), pd.read_csv(path)) for path in paths]
    if (results / VERDICTS).is_file():
        table = pd.read_csv(results / VERDICTS)
        found.append(_flat("verdicts", table[["claim", "item", "ours", "std"]]))
    if not found:
        raise DataError(f"{results} has neither tables/*_long.csv nor {VERDICTS}: run `make repro` first")
    return pd.concat(found, ignore_index=True)


def _flat(name: str, table: pd.DataFrame) -> pd.DataFrame:
    keys = [column for column in NAMES if column in table]
    row = table[keys].map(lambda value: f"{value:g}" if isinstance(value, float) else str(value)).agg(" ".join, axis=1)
    others = [c for c in table if c not in keys and not c.endswith("_published")]
    numeric = [c for c in others if pd.api.types.is_numeric_dtype(table[c]) and table[c].dtype != bool]
    long = table[numeric].assign(table=name, row=row).melt(["table", "row"], var_name="column").dropna(subset=["value"])
    return long[[*KEYS, "value"]].astype({"value": float})


def compare(ours: pd.DataFrame, reference: pd.DataFrame) -> Comparison:
    """Numbers as `numbers` gives them. A number that one side alone has is not equal."""
    both = ours.merge(reference, on=KEYS, how="outer", suffixes=("", "_reference"))
    rounded = [both[column].map(lambda value: f"{value:.{DIGITS}g}") for column in ("value", "value_reference")]
    equal = rounded[0] == rounded[1]
    if equal.all():
        return Comparison(len(both), len(both), 0.0, "")
    scale = both[["value", "value_reference"]].abs().max(axis=1)
    difference = ((both.value - both.value_reference).abs() / scale).fillna(math.inf).where(~equal, 0.0)
    worst = both.loc[difference.idxmax()]
    return Comparison(int(equal.sum()), len(both), float(difference.max()), " ".join(str(worst[key]) for key in KEYS))


def line(found: Comparison, reference: str | Path) -> str:
    """The comparison in one line."""
    start = f"{found.n_equal} of {found.n} numbers equal {reference}"
    if found.n_equal == found.n:
        return start
    if math.isinf(found.largest):
        return f"{start}; in one of the two alone: {found.where}"
    return f"{start}; largest difference {100 * found.largest:.2g} % ({found.where})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m elm_lib.paper.compare", description="Compare results with a reference."
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--write", action="store_true", help="make RESULTS the reference")
    options = parser.parse_args(arguments)
    try:
        ours = numbers(options.results)
    except DataError as error:
        raise SystemExit(str(error)) from None
    if options.write:
        text = ours.to_csv(index=False, float_format=f"%.{DIGITS}g")
        write_text(options.reference, text)
        print(f"{len(ours)} numbers of {options.results} are now {options.reference}")
    elif not options.reference.is_file():
        print(f"{len(ours)} numbers in {options.results}; no {options.reference} to compare them with (`make freeze`)")
    else:
        print(line(compare(ours, pd.read_csv(options.reference, keep_default_na=False)), options.reference))


if __name__ == "__main__":
    main()
