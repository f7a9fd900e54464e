"""dvc.yaml held to the notebooks and the code: parameters, dependencies, keys. Notebooks held to their form."""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import papermill
import pytest
import yaml
from imports import PACKAGE, imported, modules

from elm_lib.experiments.config import load
from elm_lib.paper.figures import style
from elm_lib.pipeline import notebook
from elm_lib.pipeline.stages import stages

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
STAGES = [
    pytest.param(name, stage, id=f"{name}-{profile}")
    for profile in PARAMS["profiles"]
    for name, stage in stages(ROOT, profile).items()
]


def _code(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def _paths(entries) -> list[str]:
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries]


def _reached(source: str) -> set[str]:
    """Modules of elm_lib that a source text imports, at any depth. What is found by name at run time is not among
    them."""
    known, todo, found = modules(), imported(source), set()
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo |= imported(known[module].read_text())
    return found


def _covered(path: Path, deps: list[str]) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == dep or name.startswith(f"{dep}/") for dep in deps)


def test_dvc_yaml_is_read_top_to_bottom():
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) < 300
    order = list(stages(ROOT))
    made = {out: name for name, stage in stages(ROOT).items() for out in _paths(stage["outs"])}
    for name, stage in stages(ROOT).items():
        for dep in stage["deps"]:
            if dep in made:
                assert order.index(made[dep]) < order.index(name), f"{name} stands before {made[dep]}, which it needs"


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_a_stage_says_what_it_uses(name, stage):
    words = stage["cmd"].split()
    assert words[:3] == ["python", "-m", "elm_lib.pipeline.notebook"]
    source, target = words[3:5]
    # each -p stands in the notebook's parameters cell, and no default of the notebook reaches the pipeline
    given = {words[k + 1]: words[k + 2] for k, word in enumerate(words) if word == "-p"}
    assert set(given) == set(papermill.inspect_notebook(str(ROOT / source)))

    # deps: the notebook, every module that it or its runner imports at any depth, and no package that does not exist
    code = _code(ROOT / source)
    used = _reached(code) | _reached("import elm_lib.pipeline.notebook") | {"elm_lib.pipeline.notebook"}
    missing = [module for module in used if module != "elm_lib" and not _covered(modules()[module], stage["deps"])]
    assert not missing, f"{name} lacks deps: {sorted(missing)}"
    assert source in stage["deps"]
    assert all((ROOT / dep).exists() for dep in stage["deps"] if dep.startswith(("elm_lib", "notebooks")))
    # what is published is package data of elm_lib.paper: a corrected value reruns what shows it
    if any(module.startswith("elm_lib.paper.") and "figures" not in module for module in _reached(code)):
        for table in (PACKAGE / "paper" / "published").glob("*.csv"):
            assert _covered(table, stage["deps"]), f"{name} does not depend on {table.name}"
    if any(module.startswith("elm_lib.paper.html") for module in _reached(code)):
        for part in (PACKAGE / "paper" / "templates").rglob("*.*"):
            assert _covered(part, stage["deps"]), f"{name} does not depend on {part.name}"

    # outs: the executed notebook too; figures, tables and numbers in git or ignored, so never in DVC's cache
    outs = stage["outs"] + stage.get("metrics", []) + stage.get("plots", [])
    assert target in _paths(outs)
    for entry in outs:
        path, options = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
        assert (options.get("cache", True) is False) == path.startswith(("results/", "runs/")), path

    # each params key exists in params.yaml
    for key in stage.get("params", []):
        value = PARAMS
        for part in key.split("."):
            assert part in value, f"{name}: params key {key} does not exist"
            value = value[part]


@pytest.mark.parametrize("profile", PARAMS["profiles"])
def test_every_out_is_made_once_and_every_dep_is_made_or_in_git(profile):
    mine = list(stages(ROOT, profile).values())
    outs = [path for s in mine for path in _paths(s["outs"] + s.get("metrics", []) + s.get("plots", []))]
    assert len(outs) == len(set(outs))
    for stage in mine:
        for dep in stage["deps"]:
            made = any(dep == out or dep.startswith(out + "/") or out.startswith(dep + "/") for out in outs)
            assert made or (ROOT / dep).exists(), dep


def test_every_key_of_params_is_read():
    """The top level by name in a stage or in the code, the rest by the typed objects, which refuse a key that they
    lack."""
    text = (ROOT / "dvc.yaml").read_text()
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    read = {
        node.attr
        for node in ast.walk(ast.parse(code.replace("from __future__ import annotations\n", "")))
        if isinstance(node, ast.Attribute)
    }
    for key in PARAMS:
        assert key in read or f"${{{key}}}" in text or key == "experiments", key


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_text_call_picture(path):
    content = nbformat.read(path, as_version=4)
    assert content.cells[0].cell_type == "markdown"
    assert not re.search(r"^\s*(def|class|async def) ", _code(path), re.MULTILINE), "code belongs into elm_lib"
    parameters = papermill.inspect_notebook(str(path))
    for name, value in parameters.items():  # opened by hand, a notebook writes to scratch alone
        default = value["default"].strip("'\"")
        assert not default.startswith(
            ("data", "results", "weights", "runs", "../data", "../results", "../weights", "../runs")
        ), name
    for cell in content.cells:
        assert "papermill" not in cell.metadata
        if cell.cell_type == "code" and "NBVAL_CHECK_OUTPUT" in cell.source:
            assert cell.outputs, "a checked cell needs its stored output"
        elif cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


def _notebook(tmp_path, *cells) -> Path:
    nb = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    nb.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, tmp_path / "n.ipynb")
    return tmp_path / "n.ipynb"


def test_two_runs_are_byte_identical_whatever_goes_to_stderr(tmp_path):
    code = "import sys, time\nprint(time.time(), file=sys.stderr)\nprint(a, flush=True)\ntime.sleep(0.5)\nprint(8)\na"
    bar = "from elm_lib.support.processes import progress\nwith progress(2, 'x', 'step') as bar:\n    bar.update(2)\n"
    path = _notebook(tmp_path, "a = 1", bar + code)
    for name in ("first", "second"):
        notebook.run(path, tmp_path / f"{name}.ipynb", {"a": 7})
    first, second = ((tmp_path / f"{name}.ipynb").read_bytes() for name in ("first", "second"))
    assert first == second
    streams = [
        output for output in nbformat.reads(first.decode(), 4).cells[-1].outputs if output.output_type == "stream"
    ]
    assert [output.text for output in streams] == ["7\n8\n"]  # one, though it came in two messages
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".run")] == []


def test_unknown_parameter_missing_notebook_and_failing_cell_end_in_one_line(tmp_path):
    path = _notebook(
        tmp_path, "a = 1", "from elm_lib.support.errors import DataError\nraise DataError('file x: broken, do y')"
    )
    for call, words in [
        ((path, {"b": 2}), "has no parameter ['b']"),
        ((tmp_path / "none.ipynb", {}), "no such notebook"),
        ((path, {}), "DataError: file x: broken, do y"),
    ]:
        with pytest.raises(SystemExit) as error:
            notebook.run(call[0], tmp_path / "out.ipynb", call[1])
        assert words in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out.ipynb").exists()


def test_a_group_that_the_profile_does_not_run_leaves_empty_tables(tmp_path):
    given = {"group": "lra_pathfinder", "profile": "laptop", "params_file": ROOT / "params.yaml", "root": tmp_path}
    given |= {"out": tmp_path / "results/laptop"}
    notebook.run(
        ROOT / "notebooks/train.ipynb", tmp_path / "n.ipynb", {key: str(value) for key, value in given.items()}
    )
    assert (tmp_path / "runs/ledger/lra_pathfinder").is_dir()
    assert not any((tmp_path / "runs/ledger/lra_pathfinder").iterdir())


def test_profiles_load():
    assert set(load(ROOT / "params.yaml").profiles) == {"smoke", "laptop", "desk", "paper"}


def test_svg_names_do_not_depend_on_the_last_bit_of_a_layout(tmp_path):
    """Two figures whose axes differ by less than any printed digit."""
    style.use()
    written = []
    for shift in (0.0, 1e-15):
        figure = plt.figure()
        axes = figure.add_axes((0.1 + shift, 0.1, 0.5, 0.5))
        axes.plot([1, 2], marker="o")
        axes.imshow(np.eye(2), aspect="auto")
        written.append((style.save(figure, tmp_path, "f")[-1]).read_text())
        plt.close(figure)
    assert written[0] == written[1]
    assert 'clip-path="url(#p_' in written[0]
    used, made = (set(re.findall(pattern, written[0])) for pattern in (r'(?:url\(|href=")#([\w-]+)', r'id="([\w-]+)"'))
    assert used <= made
