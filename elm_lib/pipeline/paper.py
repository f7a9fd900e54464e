"""`make paper`: profile desk from the ledger, every stage forced, and how many numbers came out as they were before.

Validation and test sets are simulated again. The kept weights of the default points are evaluated on them. All tables,
figures and the report are drawn again, and the table of docs/results.md. A run that the ledger lacks is not trained
here: it stays `not run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pandas as pd

from elm_lib.datasets.neuronio.morphology import fetch_morphology
from elm_lib.experiments.config import load
from elm_lib.experiments.evaluate import summary
from elm_lib.paper.compare import compare, line, numbers
from elm_lib.paper.page import write_page
from elm_lib.paper.verdict import VERDICTS
from elm_lib.pipeline import explore, stages
from elm_lib.support.errors import DataError
from elm_lib.support.processes import die_with, for_owner_alone

PROFILE = "desk"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elm_lib.pipeline.paper", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="evaluate all kept weights, on the whole test sets")
    options = parser.parse_args(arguments)
    for_owner_alone()
    die_with(os.getppid())
    root, results = Path(), Path("results") / PROFILE
    before = numbers(results)
    chosen = list(stages.stages(root, PROFILE))
    missing = _missing_cell(root)
    if missing:
        print(f"{missing}: NeuronIO's test set is not simulated, what the ledger holds of it is drawn")
        of_cell = ("download@neuronio", "preprocess@neuronio", "biophysical_neuron")
        chosen = [name for name in chosen if name not in of_cell]
    stages.run(root, PROFILE, chosen, missing="leave", evaluate="all" if options.all else "part")
    if not missing:
        explore.write(root, results)
    write_page(root / "docs" / "results.md", pd.read_csv(results / VERDICTS))
    print(summary(pd.read_csv(results / "evaluation.csv")))
    print(line(compare(numbers(results), before), "results/desk as it was"))


def _missing_cell(root: Path) -> str:
    """Why the exact morphology cannot be had; nothing, where it is at hand or not asked for."""
    wanted = load(root / "params.yaml").profiles[PROFILE].neuronio
    if wanted.source != "generated":
        return ""
    try:
        fetch_morphology(root / "data" / "raw" / "l5pc", wanted.morphology)
    except DataError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(str(error))
