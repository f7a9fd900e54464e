"""Notebooks as a supplement of the paper: each claim beside its picture, one download, no file from elsewhere."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from elm_lib.paper.exhibits import EXHIBITS, title
from elm_lib.paper.items import ITEMS
from elm_lib.pipeline.download import download
from elm_lib.pipeline.stages import stages
from elm_lib.support.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4).cells for path in (ROOT / "notebooks").glob("*.ipynb")}


def code(name: str) -> str:
    return "\n".join(cell.source for cell in NOTEBOOKS[name] if cell.cell_type == "code")


@pytest.mark.parametrize("claim", ITEMS)
def test_a_claim_its_picture_and_its_rows_follow_each_other(claim):
    exhibit = EXHIBITS[claim]
    cells = NOTEBOOKS[exhibit.stage]
    (start,) = (k for k, cell in enumerate(cells) if re.match(rf"## {title(claim)}\n", cell.source))
    assert exhibit.claim in cells[start].source
    after = [k for k, cell in enumerate(cells) if k > start and cell.cell_type == "markdown"]
    section = [cell.source for cell in cells[start + 1 : min(after, default=len(cells))]]
    name = claim.replace("Fig ", "fig").replace("Tab ", "tab")
    assert any(f'"{name}"' in source for source in section[:-1]) and f'supplement("{claim}")' in "\n".join(section)


@pytest.mark.parametrize("name", ["neuronio", "shd", "lra"])
def test_downloads_share_one_function(name):
    assert f'download("{name}", profile, raw, params_file)' in code(f"download_{name}")
    assert "prepare" not in code(f"download_{name}") and "write_json" not in code(f"download_{name}")


def test_a_download_leaves_what_the_next_stage_reads(tmp_path):
    sources = download("shd", "smoke", tmp_path, ROOT / "params.yaml")
    assert json.loads((tmp_path / "shd_smoke.json").read_text()) == sources
    with pytest.raises(ConfigError, match="not found"):
        download("shd", "smoke", tmp_path, tmp_path / "params.yaml")


def test_the_cell_is_shown_by_a_stage_without_files_from_elsewhere():
    assert not [name for name in NOTEBOOKS if re.search(r"\.\./shared|ELM_SHARED", code(name))]
    stage = stages(ROOT, "desk")["biophysical_neuron"]
    assert all(dep.startswith(("elm_lib", "notebooks", "tests/data")) for dep in stage["deps"])
    saved = set(re.findall(r'style\.save\(figure, folder, "(\w+)"\)', code("biophysical_neuron")))
    committed = {path.stem for path in (ROOT / "results/desk/cell").glob("*.svg")}
    assert saved == committed and len(saved) >= 7


def test_explore_is_a_page_without_a_kernel_too():
    page = (ROOT / "results/desk/explore.html").read_text()
    assert page.count("<img") >= 6 and page.count("<math") >= 5
    assert "<script" not in page and str(ROOT) not in page and "injected" not in page
    assert "live = True" in code("explore") and "No module named" not in page
