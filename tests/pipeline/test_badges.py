"""Badges that start notebooks elsewhere: they lead to notebooks that are there."""

import re
from pathlib import Path

import pytest

from elm_lib.pipeline.badges import END, START, badges, write
from elm_lib.support.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "address", ["https://github.com/a/b.c", "git@github.com:a/b.c.git", "https://github.com/a/b.c/"]
)
def test_badges_lead_to_notebooks(address):
    text = badges(address)
    assert "mybinder.org/v2/gh/a/b.c/main?" in text and "colab.research.google.com/github/a/b.c/blob/main/" in text
    notebooks = re.findall(r"notebooks/\w+\.ipynb", text)
    assert len(notebooks) == 2 and all((ROOT / name).is_file() for name in notebooks)


def test_they_stand_once_between_their_marks(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text())
    assert readme.read_text().count(START) == readme.read_text().count(END) == 1
    write(readme, "https://github.com/a/b")
    write(readme, "https://github.com/c/d")
    text = readme.read_text()
    assert "/a/b/" not in text and text.count("mybinder.org/v2/gh/c/d/") == 1
    for address in ("https://example.org/a/b", ""):
        with pytest.raises(ConfigError, match="GitHub"):
            write(readme, address)
