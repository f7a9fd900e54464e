"""dvc.yaml held to the notebooks and the code: parameters, dependencies, keys. Notebooks held to their form."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import papermill
import pytest
import yaml

from elm_lib.experiments.config import load
from elm_lib.experiments.execute import PACKAGE, code_version, imported, module_path
from elm_lib.models.registry import KINDS
from elm_lib.paper import verdict
from elm_lib.paper.figures import style
from elm_lib.pipeline import notebook

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())


def _stages():
    """Every stage of dvc.yaml with its templates filled in, for every profile: (name, stage)."""
    for profile in PARAMS["profiles"]:
        for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items():
            items = PARAMS["experiments"] if "foreach" in stage else {None: None}
            for key, item in items.items():
                text = yaml.safe_dump(stage.get("do", stage)).replace("${profile}", profile)
                if key:
                    text = text.replace("${key}", key).replace("${item.data}", item["data"])
                assert "${" not in text, f"{name}: a template that this test does not know"
                yield pytest.param(
                    f"{name}@{key}" if key else name, yaml.safe_load(text), item, id=f"{name}-{key}-{profile}"
                )


def _code(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def _paths(entries) -> list[str]:
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries]


@pytest.mark.parametrize(("name", "stage", "item"), _stages())
def test_a_stage_says_what_it_uses(name, stage, item):
    words = stage["cmd"].split()
    assert words[:3] == ["python", "-m", "elm_lib.pipeline.notebook"]
    source, target = words[3:5]
    # each -p stands in the notebook's parameters cell
    given = {words[k + 1]: words[k + 2] for k, word in enumerate(words) if word == "-p"}
    assert set(given) <= set(papermill.inspect_notebook(str(ROOT / source)))
    assert set(given) == set(papermill.inspect_notebook(str(ROOT / source))), (
        "a default of the notebook would reach the pipeline"
    )

    # deps: the notebook, every module of elm_lib that it or its runner imports at any depth, or that its data set and model name
    modules = imported(_code(ROOT / source)) | imported(module_path("elm_lib.pipeline.notebook"))
    if item:
        named = {KINDS[entry["model"]["kind"]][0] for key, entry in item.items() if key != "data"}
        modules |= set().union(*(imported(module_path(name)) for name in (f"elm_lib.datasets.{item['data']}", *named)))
    expected = {str(path.relative_to(PACKAGE.parent)) for path in modules}
    deps = {dep for dep in stage["deps"] if dep.startswith("elm_lib/") and dep.endswith(".py")}
    assert expected <= deps, f"missing: {sorted(expected - deps)}"
    # what is listed beyond that is code found by name at run time: models and tasks
    assert all(
        dep.startswith(
            (
                "elm_lib/baselines/",
                "elm_lib/neuron",
                "elm_lib/recurrence/",
                "elm_lib/tasks/",
                "elm_lib/official",
                "elm_lib/traces",
                "elm_lib/masks",
                "elm_lib/data/",
                "elm_lib/metrics",
            )
        )
        for dep in deps - expected
    ), sorted(deps - expected)
    assert source in stage["deps"]
    assert all((ROOT / dep).exists() for dep in stage["deps"] if dep.startswith(("elm_lib", "notebooks")))

    # outs: the executed notebook too; figures, tables and numbers in git, so never in DVC's cache
    outs = stage["outs"] + stage.get("metrics", []) + stage.get("plots", [])
    assert target in _paths(outs)
    for entry in outs:
        path, options = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
        assert (options.get("cache", True) is False) == path.startswith("results/"), path

    # each params key exists in params.yaml
    for key in stage.get("params", []):
        value = PARAMS
        for part in key.split("."):
            assert part in value, f"{name}: params key {key} does not exist"
            value = value[part]


def test_every_out_is_made_once_and_every_dep_is_made_or_in_git():
    stages = {(p.values[0], re.search(r"-(\w+)$", p.id)[1]): p.values[1] for p in _stages()}
    for profile in PARAMS["profiles"]:
        mine = [stage for (_, name), stage in stages.items() if name == profile]
        outs = [
            path for stage in mine for path in _paths(stage["outs"] + stage.get("metrics", []) + stage.get("plots", []))
        ]
        assert len(outs) == len(set(outs))
        for stage in mine:
            for dep in stage["deps"]:
                assert (ROOT / dep).exists() or any(dep == out or dep.startswith(out + "/") for out in outs), dep


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
    path = _notebook(tmp_path, "a = 1", code)
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
    folders = {
        "runs_folder": tmp_path / "runs",
        "out": tmp_path,
        "weights_folder": tmp_path / "weights",
        "data": tmp_path,
    }
    given = {"group": "lra_pathfinder", "profile": "laptop", "params_file": ROOT / "params.yaml"} | folders
    notebook.run(
        ROOT / "notebooks/train.ipynb", tmp_path / "n.ipynb", {key: str(value) for key, value in given.items()}
    )
    runs = verdict.read_runs(tmp_path, "lra_pathfinder")
    assert set(runs) == set(PARAMS["profiles"]["laptop"]["points"]["lra_pathfinder"])
    assert all(len(frame) == 0 and "diverged" in frame for frame in runs.values())


def test_code_version_follows_code_not_comments(tmp_path, monkeypatch):
    package = tmp_path / "elm_lib"
    package.mkdir()
    monkeypatch.setattr("elm_lib.experiments.execute.PACKAGE", package)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from elm_lib import b\nX = 1\n")
    (package / "b.py").write_text("Y = 1\n")
    (package / "c.py").write_text("Z = 1\n")
    before = code_version("elm_lib.a")
    (package / "a.py").write_text('"""Doc."""\nfrom elm_lib import b\n\nX = 1  # why\n')
    (package / "c.py").write_text("Z = 2\n")
    assert code_version("elm_lib.a") == before
    (package / "b.py").write_text("Y = 2\n")
    assert code_version("elm_lib.a") != before


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
