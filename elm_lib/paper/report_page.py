"""The report as one page to look at: each figure and table beside the rows of the verdict table that judge it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.experiments.ledger import Ledger
from elm_lib.experiments.plan import Planned
from elm_lib.paper import html, provenance
from elm_lib.paper.exhibits import DATASETS, EXHIBITS, Exhibit, dataset_of, title
from elm_lib.paper.items import DRAWINGS, FOLLOW_UP, HEADLINE, ITEMS, OURS
from elm_lib.paper.rows import read, rows_of, slug
from elm_lib.paper.verdict import TERMS, kind
from elm_lib.support.files import write_text

PAGE = "report.html"
NOTEBOOKS = ("figures_neuronio", "figures_ablations", "figures_shd", "figures_lra", "biophysical_neuron")


def write(
    out: str | Path,
    verdicts: pd.DataFrame,
    planned: Sequence[Planned],
    ledger: Ledger,
    params: Params,
    profile: str,
) -> Path:
    """Write out/report.html from the pictures and tables in `out`, and the executed figures notebooks as pages.

    verdicts  the verdict table as `elm_lib.paper.report.report` gives it
    planned   the runs of the profile, which the ledger has or lacks

    The same files give the same bytes. A picture, table or notebook that is not there is named as missing.
    """
    out = Path(out)
    verdicts = read(verdicts)
    for stage in NOTEBOOKS:
        if (out / "notebooks" / f"{stage}.ipynb").is_file():
            html.write_notebook(out / "notebooks" / f"{stage}.ipynb", out / "notebooks" / f"{stage}.html", f"../{PAGE}")
    shown = {}
    for claim, exhibit in EXHIBITS.items():
        values = _values(out, claim, exhibit, verdicts[verdicts.claim == claim], profile)
        values["made"] = provenance.made(exhibit, planned, ledger, params)
        values["train"] = " ".join(dict.fromkeys(params.group_of(name) for name in exhibit.experiments))
        shown[values["id"]] = values
    page = {
        "exhibits": shown,
        "headline": rows_of(verdicts[verdicts.claim == HEADLINE]),
        "verdicts": _counts(verdicts.verdict.map(kind), dict.fromkeys(TERMS, "")),
        "datasets": _counts(verdicts.claim.map(dataset_of), DATASETS),
        "terms": TERMS,
        "total": len(verdicts),
        "counted": int(((verdicts.verdict == "reproduced") & verdicts.budget.isna()).sum()),
        "sources": provenance.sources(params, profile),
        "profile": profile,
        "explore": profile == "desk",  # `make paper` writes it
    }
    cells = [
        nbformat.v4.new_markdown_cell(exhibit.claim, id=name)
        for name, exhibit in zip(shown, EXHIBITS.values(), strict=True)
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    write_text(out / PAGE, html.export(notebook, "report.html.j2", **page))
    return out / PAGE


def _counts(values: pd.Series, names: dict[str, str]) -> list[dict[str, Any]]:
    """Rows by value, in the order of names: key, name, class, n."""
    return [
        {"key": key, "name": name or key, "css": slug(key), "n": int((values == key).sum())}
        for key, name in names.items()
    ]


def _values(out: Path, claim: str, exhibit: Exhibit, verdicts: pd.DataFrame, profile: str) -> dict[str, Any]:
    """What the template shows of a figure or table."""
    name = claim.replace("Fig ", "fig").replace("Tab ", "tab")
    files = [path for form in ("pdf", "png", "svg", "csv", "md", "tex") for path in _file(out, name, form)]
    picture, table = out / "figures" / f"{name}.svg", out / "tables" / f"{name}.csv"
    kinds = verdicts.verdict.map(kind)
    return {
        "id": slug(claim),
        "title": title(claim),
        "what": (ITEMS | FOLLOW_UP | OURS)[claim],
        "alt": exhibit.picture,
        "picture": _picture(picture.read_text()) if picture.is_file() else None,
        "table": _table(table) if table.is_file() else None,
        "files": files,
        "rows": rows_of(verdicts),
        "counts": [count for count in _counts(kinds, dict.fromkeys(TERMS, "")) if count["n"]],
        "dataset": DATASETS.get(exhibit.dataset, ""),
        "stage": exhibit.stage,
        "function": f"elm_lib.paper.{exhibit.function}",
        "source": "elm_lib/paper/" + "/".join(exhibit.function.split(".")[:-1]) + ".py",
        "notebook": f"notebooks/{exhibit.stage}.html" if exhibit.stage in NOTEBOOKS else "",
        "command": f"python -m elm_lib.pipeline.stages {profile} {exhibit.stage}",
        "is_table": claim.startswith("Tab"),
        "ours": claim in OURS,
        "drawing": claim in DRAWINGS,
    }


def _file(out: Path, name: str, form: str) -> list[dict[str, str]]:
    """The file of that form beside the page, if it is there."""
    folder = "tables" if name.startswith("tab") else "figures"
    path = Path(folder) / f"{name}.{form}"
    return [{"form": form, "path": path.as_posix()}] if (out / path).is_file() else []


def _picture(svg: str) -> dict[str, Any]:
    """An SVG as an address that holds it whole, and its size, so that nothing moves when it is drawn."""
    size = re.search(r'<svg[^>]* width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    width, height = (round(float(points) * 4 / 3) for points in size.groups()) if size else ("", "")
    uri = "data:image/svg+xml," + quote(" ".join(svg.split()), safe=" ()*+,-./:;<=>?@[]^_`{|}~!$'")
    return {"uri": uri, "width": width, "height": height}


def _table(path: Path) -> dict[str, Any]:
    """A table as printed: columns, rows of text, and which column says whose the numbers are.

    Each row has its own label, so that it can be sorted.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    whose = next(k for k, name in enumerate(table.columns) if table[name].str.startswith("ours").any())
    label = table.columns[0]
    if whose:
        table[label] = table[label].replace("", pd.NA).ffill()
    columns = ["" if name.startswith("Unnamed") else name for name in table.columns]
    columns[whose] = "whose"
    return {"columns": [name or "row" for name in columns], "rows": table.to_numpy().tolist(), "whose": whose}
