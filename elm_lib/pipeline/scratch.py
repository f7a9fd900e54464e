"""Notebooks opened by hand work on smoke-sized data below scratch/.

What an earlier notebook would have left there is made here.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path("scratch")


def ensure(root: str | Path, *stages: str) -> None:
    """Run the notebooks of these stages, smoke-sized, where they have left nothing below scratch/ yet.

    stages  names as in dvc.yaml: "download@neuronio", "preprocess@shd", "train@lra"
    In the pipeline `root` is the project's folder, and this does nothing: what is missing there is an error.
    """
    if Path(root) != ROOT:
        return
    for stage in stages:
        kind, _, name = stage.partition("@")
        if kind == "download" and not (ROOT / f"data/raw/{name}_smoke.json").exists():
            _run(f"download_{name}")
        elif kind == "preprocess" and not (ROOT / f"data/smoke/{name}/.made").exists():
            ensure(root, f"download@{name}")
            _run(f"preprocess_{name}")
            (ROOT / f"data/smoke/{name}/.made").touch()
        elif kind == "train" and not any((ROOT / f"runs/ledger/{name}").glob("*/*.json")):
            ensure(root, f"preprocess@{name.split('_')[0]}")
            _run("train", f"train_{name}", group=name)


def _run(notebook: str, done: str = "", **parameters) -> None:
    from elm_lib.pipeline.notebook import run  # a stage needs none of it

    run(Path(f"{notebook}.ipynb"), ROOT / "notebooks" / f"{done or notebook}.ipynb", parameters)
