"""Notebooks as pages that open from disk: one file each, no network, formulas as MathML, no script from elsewhere.

nbconvert does it, with the templates beside this file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import latex2mathml.converter
import nbformat
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from elm_lib.paper.exhibits import EXHIBITS, title
from elm_lib.support.errors import DataError
from elm_lib.support.files import write_text

TEMPLATES = Path(__file__).with_name("templates")
HEADING = re.compile(r"^#+ .*", re.MULTILINE)


class MathML(IPythonRenderer):
    """Markdown to HTML in which formulas are MathML, which browsers draw without a script."""

    def inline_math(self, body: str) -> str:
        return latex2mathml.converter.convert(body)

    def block_math(self, body: str) -> str:
        return f'<div class="formula">{latex2mathml.converter.convert(body, display="block")}</div>\n'


class Page(HTMLExporter):
    """`HTMLExporter` with our templates and MathML."""

    def markdown2html(self, source: str) -> str:
        return MarkdownWithMath(renderer=MathML(escape=False, exclude_anchor_links=True)).render(source)


def export(notebook: nbformat.NotebookNode, template: str, **values: Any) -> str:
    """A page from a notebook and a template of templates/elm; what else the template needs, it finds in `page`."""
    exporter = Page(template_name="elm", template_file=template, extra_template_basedirs=[str(TEMPLATES)])
    page = {name: (TEMPLATES / "elm" / name).read_text() for name in ("style.css", "report.js")} | values
    html, _ = exporter.from_notebook_node(notebook, resources={"page": page})
    return "\n".join(line.rstrip() for line in html.splitlines()) + "\n"


def write_notebook(executed: str | Path, page: str | Path, back: str = "", hidden: Sequence[str] = ()) -> None:
    """An executed notebook as a page.

    back    the address of the report, for a link to it
    hidden  tags of cells that are left out, such as that of parameters with paths on this machine

    Raises DataError where the notebook is missing.
    """
    executed = Path(executed)
    if not executed.is_file():
        raise DataError(f"{executed} is missing: run the stage {executed.stem}, `dvc repro {executed.stem}`")
    notebook = nbformat.read(executed, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if not set(cell.metadata.get("tags", [])) & set(hidden)]
    describe_pictures(notebook)
    first = notebook.cells[0].source.splitlines()[0] if notebook.cells else ""
    write_text(page, export(notebook, "notebook.html.j2", title=first.lstrip("# ") or executed.stem, back=back))


def describe_pictures(notebook: nbformat.NotebookNode) -> None:
    """Give each picture of a notebook an alternative text, in place: that of the figure whose heading stands above,
    else the heading."""
    heading = "the notebook"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = ([line.lstrip("# ") for line in HEADING.findall(cell.source)] or [heading])[-1]
        for output in cell.get("outputs", []):
            for kind in ("image/png", "image/svg+xml"):
                if kind in output.get("data", {}):
                    output.metadata[kind] = nbformat.from_dict({"alt": _alternative(heading)})


def _alternative(heading: str) -> str:
    for claim, exhibit in EXHIBITS.items():
        if re.match(rf"{title(claim)}\b", heading):
            return f"{title(claim)}. {exhibit.picture}"
    return f"Picture of the section “{heading}”"
