"""The paper's claims beside what came out here: published values, tables, verdicts, figures."""

from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"  # the paper's tables, and the points of its figures, as CSV files
FULL = 1 - 1e-9  # a budget from which on a run had all of its published training: budgets are quotients
