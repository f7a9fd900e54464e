"""Notebooks opened by hand work on smoke-sized data below scratch/; what an earlier notebook would have left there is made here."""

from __future__ import annotations

from pathlib import Path

from elm_lib.notebook import run

ROOT = "scratch"


def ensure(*needed: str | Path) -> None:
    """Run the notebooks before this one, smoke-sized, where a needed file below scratch/ is missing; elsewhere do nothing.

    The pipeline passes its own paths, so there this never acts: what is missing there is an error.
    """
    lra = f"{ROOT}/data/lra"  # a collection: a manifest each task
    needed = [f"{lra}/listops/manifest.json" if str(path) == f"{lra}/manifest.json" else path for path in needed]
    missing = [Path(path) for path in needed if Path(path).parts[0] == ROOT and not Path(path).exists()]
    if not missing:
        return
    done = Path(ROOT) / "notebooks"
    for path in missing:
        if path.exists():  # made for one before
            continue
        if path.name.startswith("shd_") and path.parts[1] == "raw":
            run(Path("download_shd.ipynb"), done / "download_shd.ipynb", {})
        elif path.parts[1] == "data" and path.parts[2] == "shd":
            run(Path("download_shd.ipynb"), done / "download_shd.ipynb", {})
            run(Path("preprocess_shd.ipynb"), done / "preprocess_shd.ipynb", {})
        elif path.parts[1:3] == ("data", "lra"):
            run(Path("download_lra.ipynb"), done / "download_lra.ipynb", {})
            run(Path("preprocess_lra.ipynb"), done / "preprocess_lra.ipynb", {})
        elif path.parts[1] in ("data", "raw"):
            run(Path("download.ipynb"), done / "download.ipynb", {})
            run(Path("preprocess_neuronio.ipynb"), done / "preprocess_neuronio.ipynb", {})
        else:  # results/runs/<data set>_<..>.csv
            experiment = path.stem
            data = f"{ROOT}/data/{experiment.split('_')[0]}"
            ensure(f"{data}/manifest.json")
            run(Path("train.ipynb"), done / f"train_{experiment}.ipynb", {"experiment": experiment, "data": data})


def ensure_lra(needed: str | Path) -> None:
    """The same for the Long Range Arena: what its download leaves."""
    if Path(needed).parts[0] == ROOT and not Path(needed).exists():
        run(Path("download_lra.ipynb"), Path(ROOT) / "notebooks" / "download_lra.ipynb", {})
