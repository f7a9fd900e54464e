"""The notebook `explore` as a page without a kernel, as its sliders stand at first: results/<profile>/explore.html.

python -m elm_lib.pipeline.explore results/desk
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from elm_lib.paper.html import write_notebook
from elm_lib.pipeline.notebook import run

PAGE = "explore.html"


def write(root: str | Path, out: str | Path) -> Path:
    """Run the notebook of the project in `root` and write out/explore.html. Returns its path.

    Takes 20 s of a core; at first 1 to 2 minutes more, for the small neuron that it trains where the ledger has none
    on SHD-Adding (`elm_lib.paper.digit_memory`). Raises SystemExit with one line where a cell of the notebook fails.
    """
    root, page = Path(root).resolve(), Path(out) / PAGE
    given = {"live": False, "raw": str(root / "data/raw"), "project": str(root)}
    given |= {"digits": str(root / "data" / Path(out).name / "shd"), "work": str(root / "runs/explore"), "steps": 4000}
    with tempfile.TemporaryDirectory() as folder:
        executed = Path(folder) / "explore.ipynb"
        run(root / "notebooks" / executed.name, executed, given)
        write_notebook(executed, page, back="report.html", hidden=("injected-parameters",))
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m elm_lib.pipeline.explore", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the page")
    print("open", write(".", parser.parse_args().out))
