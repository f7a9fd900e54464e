"""Notebooks opened by hand work on smoke-sized data below scratch/; what an earlier notebook would have left there is made here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("scratch")


def ensure(*needed: str | Path) -> None:
    """Run the notebooks before this one, smoke-sized, where a needed file below scratch/ is missing; elsewhere do nothing.

    The pipeline passes its own paths, so there this never acts: what is missing there is an error.
    """
    for path in map(Path, needed):
        if path.name == "manifest.json" and path.parent.name == "lra":  # a collection, a manifest each task
            path = path.parent / "listops" / path.name
        if path.parts[0] == str(ROOT) and not path.exists():
            _make(path)


def _make(path: Path) -> None:
    """Run the notebook that leaves a file, and before it those that leave what that one needs."""
    match path.relative_to(ROOT).parts:
        case ("raw", "lra", _):
            _run("download_lra")
        case ("raw", name):
            _run("download_shd" if name.startswith("shd_") else "download")
        case ("data", data, *_):  # the notebook sees to its download
            _run(f"preprocess_{data}")
        case ("results", "runs", group):
            data = f"{ROOT}/data/{group.split('_')[0]}"
            ensure(f"{data}/manifest.json")
            _run("train", f"train_{group}", group=group, data=data)


def _run(notebook: str, done: str = "", **parameters) -> None:
    from elm_lib.pipeline.notebook import run  # a stage needs none of it

    run(Path(f"{notebook}.ipynb"), ROOT / "notebooks" / f"{done or notebook}.ipynb", parameters)
