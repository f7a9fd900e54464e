"""Notebooks opened by hand work on smoke-sized data below scratch/; what an earlier notebook would have left there is made here."""

from __future__ import annotations

from pathlib import Path

from elm_lib.notebook import run

ROOT = "scratch"


def ensure(*needed: str | Path) -> None:
    """Run the notebooks before this one, smoke-sized, where a needed file below scratch/ is missing; elsewhere do nothing.

    The pipeline passes its own paths, so there this never acts: what is missing there is an error.
    """
    missing = [Path(path) for path in needed if Path(path).parts[0] == ROOT and not Path(path).exists()]
    if not missing:
        return
    done = Path(ROOT) / "notebooks"
    shd = [path for path in missing if path.name.startswith("shd")]  # raw/shd_smoke.json, data/shd
    if shd:
        run(Path("download_shd.ipynb"), done / "download_shd.ipynb", {})
        if any(path.suffix == "" for path in shd):
            run(Path("preprocess_shd.ipynb"), done / "preprocess_shd.ipynb", {})
    if len(shd) == len(missing):
        return
    run(Path("download.ipynb"), done / "download.ipynb", {})
    run(Path("preprocess_neuronio.ipynb"), done / "preprocess_neuronio.ipynb", {})
    for experiment in ("neuronio_branch_elm", "neuronio_elm", "neuronio_lstm"):
        path = Path(ROOT) / "results" / "runs" / f"{experiment}.csv"
        if path in map(Path, needed) and not path.exists():
            run(Path("train.ipynb"), done / f"train_{experiment}.ipynb", {"experiment": experiment})


def ensure_lra(needed: str | Path) -> None:
    """The same for the Long Range Arena: what its download leaves."""
    if Path(needed).parts[0] == ROOT and not Path(needed).exists():
        run(Path("download_lra.ipynb"), Path(ROOT) / "notebooks" / "download_lra.ipynb", {})
