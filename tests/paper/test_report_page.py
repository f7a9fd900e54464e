"""The report page: complete, one file, the same at each writing; notebooks as pages. See it work: test_browser.py."""

import re
import shutil
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from elm_lib.experiments.ledger import Ledger
from elm_lib.experiments.plan import plan
from elm_lib.paper import html, provenance, report_page
from elm_lib.paper.exhibits import EXHIBITS, title
from elm_lib.paper.figures import style
from elm_lib.paper.items import FOLLOW_UP, ITEMS, OURS
from elm_lib.paper.verdict import VERDICTS
from elm_lib.support.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
DESK = ROOT / "results/desk"


@pytest.fixture(scope="module")
def planned(params):
    return plan(params, "desk", data=ROOT / "data/desk")


@pytest.fixture(scope="module")
def ledger():
    return Ledger(ROOT / "results/ledger")


@pytest.fixture(scope="module")
def verdicts():
    return pd.read_csv(DESK / VERDICTS)


@pytest.fixture(scope="module")
def page(tmp_path_factory, verdicts, planned, ledger, params):
    """The page of the committed results."""
    out = tmp_path_factory.mktemp("desk")
    for folder in ("figures", "tables", "notebooks"):
        shutil.copytree(DESK / folder, out / folder, ignore=shutil.ignore_patterns("*.html"))
    return report_page.write(out, verdicts, planned, ledger, params, "desk")


@pytest.fixture(scope="module")
def soup(page):
    return BeautifulSoup(page.read_text(), "html.parser")


def rows(article) -> list[tuple[str, str]]:
    """(item, verdict) of each row."""
    lines = article.select(".rows tbody tr")
    return [(line.th.find(string=True).strip(), line.select_one(".chip").text) for line in lines]


def test_every_item_of_the_paper_has_its_claim_its_runs_and_its_function(params):
    assert set(EXHIBITS) == {*ITEMS, *FOLLOW_UP, *OURS}
    shown = {name for exhibit in EXHIBITS.values() for name in exhibit.experiments}
    assert shown == set(params.experiments)
    readme = (ROOT / "README.md").read_text()
    for claim, exhibit in EXHIBITS.items():
        assert exhibit.claim.endswith((".", "?", "$$")) and exhibit.picture.endswith("."), claim
        if claim in {*FOLLOW_UP, *OURS}:
            continue
        (line,) = re.findall(rf"^\| {title(claim)} \|.*$", readme, flags=re.MULTILINE)
        file = exhibit.function.rpartition(".")[0].replace(".", "/")
        assert f"({exhibit.notebook})" in line, claim
        assert f"[`{exhibit.function.split('.')[-1]}`](elm_lib/paper/{file}.py)" in line, claim


def test_the_page_shows_every_row_under_its_item(soup, verdicts):
    articles = soup.select("article")
    assert [article.h2.a.text for article in articles] == [title(claim) for claim in EXHIBITS]
    for claim, article in zip(EXHIBITS, articles, strict=True):
        of = verdicts[verdicts.claim == claim]
        assert rows(article) == list(zip(of["item"], of.verdict, strict=True))
    row = soup.select_one(".headline")
    assert "0.9924" in row.text and row.select_one(".chip").text == "reproduced"
    counts = {label.input["value"]: int(label.b.text) for label in soup.select("#filters label")}
    assert sum(counts[name] for name in report_page.TERMS) == len(verdicts)
    assert counts["not run"] == (verdicts.verdict == "not run").sum()


def test_a_row_says_ours_its_error_its_runs_and_its_training(soup):
    row = soup.select_one("#tab-s8 tr:has(.chip.reproduced td), #tab-s8 .rows tbody")
    line = next(line for line in row.select("tr") if line.th.text.startswith("Branch-ELM d_m=20 AUC"))
    cells = {cell.get("data-name"): cell.text.strip() for cell in line.select("td")}
    assert cells["published"] == "0.9924" and cells["n"] == "1" and cells["training"] == "100 %"
    assert re.fullmatch(r"0\.99296 ± 0\.001\d", cells["ours"]) and cells["data"] == "generated (exact)"


def test_the_page_is_one_file_that_needs_nothing(page, soup):
    assert page.stat().st_size < 5e6
    assert not soup.select("link, iframe, object, script[src], img:not([src^='data:'])")
    styles = "".join(style.text for style in soup.select("style"))
    assert "url(" not in styles and "@import" not in styles
    assert len(soup.select("img")) == len(list((DESK / "figures").glob("*.svg")))
    for link in soup.select("a[href^='notebooks/'], a[href^='figures/'], a[href^='tables/']"):
        assert (page.parent / link["href"]).is_file(), link["href"]
    for link in soup.select("a[href^='../../']"):
        assert (ROOT / link["href"].removeprefix("../../")).is_file(), link["href"]


def test_who_does_not_see_finds_his_way(soup):
    ids = [tag["id"] for tag in soup.select("[id]")]
    assert len(ids) == len(set(ids))
    assert all(link["href"][1:] in ids for link in soup.select("a[href^='#']"))
    assert all(len(image["alt"]) > 60 for image in soup.select("img"))
    assert all(head.get("scope") for head in soup.select("th"))
    assert all(table.caption.text for table in soup.select("table"))
    assert all(region.get("aria-label") for region in soup.select("[role=region]"))
    assert soup.html["lang"] == "en" and soup.select_one("meta[name=viewport]")
    formulas = soup.select("#fig-1 math")
    assert len(formulas) >= 5 and not re.search(r"\$|\\[a-z]+", soup.select_one("#fig-1 .claimed").text)
    colours = {one["mathcolor"] for one in soup.select("math [mathcolor]")}
    assert len(colours) == 4  # memory, synapses, update, output


def test_what_was_not_run_says_so_and_what_it_would_cost(soup):
    for name in ("fig-3", "fig-s8", "tab-s6", "routing"):
        said = soup.select_one(f"#{name} .warning").text
        assert "Not run" in said and re.search(r"about [\d,.]+ core hours", said), name
    assert not soup.select("#fig-1 .warning, #fig-2 .warning, #fig-5 .warning, #tab-s1 .warning")
    how = soup.select_one("#fig-2 .how").text
    assert "elm_lib.paper.figures.neuronio.data_and_results" in how and "stages desk figures_neuronio" in how
    assert "core hours" in how and "afebc8f" in how and "CPU: AMD EPYC" in how


def test_hours_and_runs_are_those_of_the_ledger(params, planned, ledger):
    of = provenance.made(EXHIBITS["Tab S8"], planned, ledger, params)
    entries = [entry for (name, _), entry in ledger.entries.items() if name == "neuronio_branch_elm"]
    assert of.done <= len(entries) and of.planned >= 7 and of.whole == 21  # 7 sizes, 3 seeds
    spent = [entry["made"]["wall_s"] for entry in entries if entry["key"] in {one.key for one in planned}]
    assert of.core_h == pytest.approx(sum(spent) / 3600)
    assert provenance.made(EXHIBITS["Fig S9"], planned, ledger, params).whole == 1
    nothing = provenance.made(EXHIBITS["Tab S1"], planned, ledger, params)
    assert (nothing.planned, nothing.whole, nothing.left_h) == (0, 0, 0)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "desk", "paper"])
def test_every_kind_of_data_is_told_in_words(params, profile):
    told = provenance.sources(params, profile)
    assert told and all(one["words"] for one in told)
    assert ("real" in {one["kind"] for one in told}) == (profile == "paper")


def test_a_page_without_pictures_says_what_draws_them_and_is_the_same_again(
    tmp_path, verdicts, planned, ledger, params
):
    written = [
        report_page.write(tmp_path / name, verdicts, planned, ledger, params, "desk").read_bytes() for name in "ab"
    ]
    assert written[0] == written[1]
    soup = BeautifulSoup(written[0], "html.parser")
    assert not soup.select("img") and len(soup.select("article")) == len(EXHIBITS)
    for claim, command in (("fig-2", "stages desk figures_neuronio"), ("tab-1", "stages desk figures_lra")):
        assert any(command in said.text for said in soup.select(f"#{claim} .warning"))


def test_the_committed_page_shows_the_committed_verdicts(verdicts):
    soup = BeautifulSoup((DESK / report_page.PAGE).read_text(), "html.parser")
    shown = [row for article in soup.select("article") for row in rows(article)]
    order = [(item, said) for claim in EXHIBITS for item, said in _of(verdicts, claim)]
    assert shown == order, "make paper writes the page again"
    assert len(soup.select("img")) == len(list((DESK / "figures").glob("*.svg")))


def _of(verdicts, claim):
    of = verdicts[verdicts.claim == claim]
    return zip(of["item"], of.verdict, strict=True)


# ---- notebooks as pages ----------------------------------------------------------------------------------------------


def test_a_notebook_becomes_a_page_with_formulas_and_described_pictures(tmp_path):
    style.use()
    png = nbformat.v4.new_output("display_data", {"image/png": "iVBORw0KGgo="})
    cells = [
        nbformat.v4.new_markdown_cell(
            "# A notebook\n\nWith $\\tau_m$ and\n\n$$\\mathcal L = \\tfrac12 x$$\n\n| a |\n|---|\n| 1 |"
        ),
        nbformat.v4.new_markdown_cell("## Figure S1"),
        nbformat.v4.new_code_cell("draw()", outputs=[png]),
        nbformat.v4.new_markdown_cell("## Elsewhere"),
        nbformat.v4.new_code_cell("draw(2)", outputs=[png]),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "n.ipynb")
    html.write_notebook(tmp_path / "n.ipynb", tmp_path / "n.html", back="report.html")
    soup = BeautifulSoup((tmp_path / "n.html").read_text(), "html.parser")
    assert soup.title.text == "A notebook" and soup.select_one("a")["href"] == "report.html"
    assert len(soup.select("math")) == 2 and len(soup.select("math[display=block]")) == 1
    assert len(soup.select("td")) == 1 and not soup.select("script, link")
    first, second = (image["alt"] for image in soup.select("img"))
    assert first == f"Figure S1. {EXHIBITS['Fig S1'].picture}" and "Elsewhere" in second
    assert [code.pre.text.strip() for code in soup.select("details.code")] == ["draw()", "draw(2)"]
    with pytest.raises(DataError, match="dvc repro figures_lra"):
        html.write_notebook(tmp_path / "figures_lra.ipynb", tmp_path / "f.html")
