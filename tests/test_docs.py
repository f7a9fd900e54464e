"""README and docs/: short, plain, true to the files that they speak of."""

import ast
import importlib.util
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONGEST = 30  # words of a sentence
RESULTS = "results/desk/"

PAPER = [
    *(f"Figure {n}" for n in [*range(1, 6), *(f"S{k}" for k in range(1, 10))]),
    *(f"Table {n}" for n in [1, *(f"S{k}" for k in range(1, 13))]),
]  # 14 figures and 13 tables


def prose(text: str) -> str:
    """What is read as sentences: no code blocks, tables, headings, images, addresses of links."""
    text = re.sub(r"```.*?```|<!--.*?-->|!\[.*?\]\(.*?\)", "", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    return LINK.sub("]", "\n".join(lines))


def sentences(text: str) -> list[str]:
    """A list item or a paragraph ends a sentence, as a full stop, question mark or colon at the end of a line does."""
    parts = re.split(r"(?<=[.?!])\s+(?=[\W\d]*[A-Z`])|:\n|\n\s*\n|\n\s*(?:-|\d+\.)\s", prose(text))
    return [part for part in parts if part.split()]


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def relative_links(page: Path) -> list[Path]:
    """Files that a page links to, relative to the project."""
    targets = [link.split("#")[0].replace("\\", "") for link in LINK.findall(page.read_text())]
    files = [target for target in targets if target and "://" not in target]
    return [(page.parent / target).resolve().relative_to(ROOT) for target in files]


def test_readme_is_short():
    assert 450 <= len(prose(README).split()) <= 700


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page):
    text = page.read_text().split("<!-- verdicts -->")[0]
    assert not [sentence for sentence in sentences(text) if len(sentence.split()) > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = [str(path) for path in relative_links(page)]
    assert not [path for path in links if not path.startswith(RESULTS) and not (ROOT / path).exists()]


def test_results_that_are_linked_are_committed():
    links = {str(path) for page in PAGES for path in relative_links(page)}
    assert not sorted(path for path in links if path.startswith(RESULTS) and not (ROOT / path).is_file())


def test_every_page_of_docs_is_linked_from_the_readme():
    linked = set(relative_links(ROOT / "README.md"))
    assert not {page.relative_to(ROOT) for page in (ROOT / "docs").glob("*.md")} - linked


def test_headings_that_are_linked_are_there():
    for page in PAGES:
        for file, heading in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            target = page.parent / file if file else page
            titles = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], heading


# ---- from the paper to the code ------------------------------------------------------------------------------------


def items() -> dict[str, list[str]]:
    """Rows of the README's table by figure and table: notebook, function, result."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines()]
    rows = [row for row in rows if re.fullmatch(r"(Figure|Table) S?\d+", row[0])]
    assert [row[0] for row in rows] == PAPER
    return {row[0]: row[2:] for row in rows}


def test_readme_names_notebook_function_and_picture_of_every_item_of_the_paper():
    for item, (notebook, function, result) in items().items():
        kind, number = item.split()
        made = RESULTS + (f"figures/fig{number}.png" if kind == "Figure" else f"tables/tab{number}.md")
        assert LINK.findall(notebook)[0].startswith("notebooks/figures_")
        name, file = re.fullmatch(r"\[`(\w+)`\]\((.+)\)", function).groups()
        defined = [node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
        assert name in defined, f"{item}: {file} has no function {name}"
        assert LINK.findall(result) == [made]


# ---- what can be tried ---------------------------------------------------------------------------------------------


def test_the_lines_of_the_readme_do_what_they_say():
    (code,) = code_blocks(README, "python")
    assert len(code.strip().splitlines()) <= 7  # six and an empty one
    found = {}
    exec(code, found)
    told = re.search(r"# y: (\d+) x (\d+) x (\d+)", code).groups()
    assert tuple(found["y"].shape) == tuple(map(int, told))
    assert torch.isfinite(found["y"]).all()


def test_the_lines_of_the_page_on_the_neuron_do_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {}
    for code in code_blocks((ROOT / "docs/neuron.md").read_text(), "python"):
        exec(code, found)
    assert found["y"].shape == (8, 100, 2) and found["final"].shape == (8, 2) and found["y_t"].shape == (2,)
    assert all((tmp_path / name).stat().st_size for name in ("neuron.pt2", "stream.pt2"))


@pytest.mark.parametrize("page", ["networks", "examples"])
def test_the_lines_of_other_pages_run(page):
    found = {}
    for code in code_blocks((ROOT / f"docs/{page}.md").read_text(), "python"):
        exec(code, found)
    shapes = {"networks": {"y": (4, 50, 19), "outputs": (4, 30, 40), "y_t": (19,)}}
    shapes["examples"] = {"final": (6, 10), "slope": (1, 30, 5)}
    assert {name: tuple(found[name].shape) for name in shapes[page]} == shapes[page]


def test_commands_exist():
    text = "\n".join(page.read_text() for page in PAGES)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)", text)) <= targets
    for module in set(re.findall(r"python -m (elm_lib[\w.]*)", text)):
        found = importlib.util.find_spec(module)
        assert found, module
        assert found.submodule_search_locations is None or importlib.util.find_spec(f"{module}.__main__"), module
    for script in set(re.findall(r"(?:python|bash) ((?:benchmarks|\.ci)/[\w./]+)", text)):
        assert (ROOT / script).is_file(), script


# ---- numbers that stand elsewhere ----------------------------------------------------------------------------------


def test_results_have_a_place_for_the_verdicts():
    text = (ROOT / "docs/results.md").read_text()
    assert text.count("<!-- verdicts -->") == text.count("<!-- /verdicts -->") == 1
    assert text.index("<!-- verdicts -->") < text.index("<!-- /verdicts -->")


def test_generated_data_shows_the_measured_table_and_speed():
    text = (ROOT / "docs/generated-data.md").read_text()
    (table,) = [path for path in (ROOT / "results").rglob("released_weights.md")]
    assert table.read_text().strip() in text
    speed = pd.read_csv(ROOT / "results/benchmarks/simulator.csv", keep_default_na=False)
    times = speed[(speed.engine == "ours") & (speed.dt_ms == "0.05")].times_cvode.astype(float).item()
    assert f"it is {times:.0f} times faster" in text


def test_engines_show_the_measured_times():
    measured = pd.read_csv(ROOT / "results/benchmarks/recurrence.csv")
    measured = measured[(measured.machine == "CPU: AMD EPYC") & (measured.threads == 1)]
    shown = (
        ("Branch-ELM of Figure 2", "neuronio_branch_elm", "spikes", 20, 8, 500),
        ("ELM of Figure 2", "neuronio_elm", "spikes", 20, 8, 500),
        ("ELM on SHD", "shd", "spikes", 100, 8, 500),
        ("ELM on Pathfinder", "pathfinder", "dense", 150, 32, 1024),
        ("ELM on Pathfinder-X", "pathfinder_x", "dense", 150, 2, 16384),
    )
    for name, configuration, sparse, d_m, batch, steps in shown:
        here = measured[(measured.configuration == configuration) & (measured.d_m == d_m)]
        here = here[(here.batch == batch) & (here.steps == steps)].set_index(["engine", "input"]).ms_median
        times = [here["cpu", sparse], here["torch", sparse], here["step_loop", "dense"], here["lstm_paper", "dense"]]
        cells = [f"{ms:.3g}" if ms < 1000 else f"{ms:,.0f}" for ms in times]
        assert (
            " | ".join(["|", name, str(batch), f"{steps:,}", *cells]).replace("| |", "|")
            in (ROOT / "docs/engines.md").read_text()
        )


# ---- for other readers than people ---------------------------------------------------------------------------------


def test_a_checker_finds_what_the_manifest_names():
    """CODECHECK 2.0: starts with ---, names existing files with comments, and invents nothing that a checker must
    write."""
    text = (ROOT / "codecheck.yml").read_text()
    assert text.startswith("---\n") and not re.search("FIXME|TODO|XXXX", text)
    check = yaml.safe_load(text)
    assert set(check) == {"version", "paper", "manifest"}
    assert check["paper"]["title"] and check["paper"]["reference"].startswith("https://doi.org/")
    assert all(entry["comment"] for entry in check["manifest"])
    assert not [entry["file"] for entry in check["manifest"] if not (ROOT / entry["file"]).is_file()]


def test_the_paper_is_cited_alike_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["authors"]  # CFF 1.2 asks for them at the top level
    paper = cited["preferred-citation"]
    check = yaml.safe_load((ROOT / "codecheck.yml").read_text())["paper"]
    assert check["title"] == paper["title"]
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert [author["name"] for author in check["authors"]] == names
    (bibtex,) = code_blocks(README, "bibtex")
    assert paper["title"] in bibtex
