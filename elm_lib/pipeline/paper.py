"""`make paper`: profile desk from the ledger, every stage forced, and how many numbers came out as they were committed.

Validation and test sets are simulated again. The weights of the default points are evaluated on them. All tables, figures
and the report are drawn again. Nothing is trained: what the ledger lacks stays `not run`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from elm_lib.datasets.neuronio.morphology import is_at_hand
from elm_lib.experiments.evaluate import summary
from elm_lib.paper.compare import compare, numbers, say
from elm_lib.pipeline import stages

PROFILE = "desk"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elm_lib.pipeline.paper", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="evaluate all weights on the whole test sets")
    options = parser.parse_args(arguments)
    results = Path("results") / PROFILE
