"""Notebooks opened by hand work on smoke-sized data below scratch/.

What an earlier notebook would have left there is made here.
"""

from __future__ import annotations

from pathlib import Path

from elm_lib.support.files import write_text
from elm_lib.support.processes import locked

ROOT, PARAMS = Path("scratch"), Path("../params.yaml")  # from the folder of notebooks


def ensure(root: str | Path, *stages: str) -> None:
    """Run the notebooks of these stages, smoke-sized, where they have left nothing below scratch/ yet.

    stages  names as in dvc.yaml: "download@neuronio", "preprocess@shd", "train@lra"
    In the pipeline `root` is the project's folder, and this does nothing: what is missing there is an error.
    """
    if Path(root) != ROOT:
        return
    for stage in stages:
        made = ROOT / "made" / stage
        if not made.exists():
            with locked(ROOT / "locks" / stage):  # another notebook may be making it
                if not made.exists():
                    _make(root, *stage.split("@"))
                    write_text(made, "")


def _make(root: str | Path, kind: str, name: str) -> None:
    if kind == "download":
        _run(f"download_{name}")
    elif kind == "preprocess":
        ensure(root, f"download@{name}")
        _run(f"preprocess_{name}")
    else:
        from elm_lib.experiments import config  # slow, and of use here alone

        ensure(root, f"preprocess@{config.load(PARAMS).groups[name].data}")
        _run("train", f"train_{name}", group=name)


def _run(notebook: str, done: str = "", **parameters) -> None:
    from elm_lib.pipeline.notebook import run  # a stage needs none of it

    run(Path(f"{notebook}.ipynb"), ROOT / "notebooks" / f"{done or notebook}.ipynb", parameters)
