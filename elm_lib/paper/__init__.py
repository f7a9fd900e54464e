"""The paper's claims beside what came out here: published values, tables, verdicts, figures."""

from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"  # the paper's tables, and the points of its figures, as CSV files
