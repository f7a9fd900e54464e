"""numba's cache, cut off by a kill or a full disk: compiled again."""

import errno
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from elm_lib.support import compiled

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
from elm_lib.support.compiled import njit_cached

@njit_cached(nogil=True)
def doubled(x):
    return 2 * x
"""


def fresh(path: Path):
    """The function of a module, as another process has it."""
    spec = importlib.util.spec_from_file_location("doubling", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.doubled


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("size", [0, 20, -1])
def test_a_file_that_was_cut_off_is_made_again(tmp_path, suffix, size):
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE)
    assert fresh(path)(3) == 6
    (file,) = tmp_path.rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:size])
    again = fresh(path)
    assert again(3) == 6
    assert not again.stats.cache_hits
    third = fresh(path)
    assert third(3) == 6
    assert third.stats.cache_hits  # what was made again is read


def test_a_cache_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch):
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(compiled.FunctionCache, "save_overload", full)
    assert fresh(path)(3) == 6


def test_every_compiled_function_is_kept_this_way():
    named = {path.name: path.read_text() for path in (ROOT / "elm_lib").rglob("*.py")}
    assert [name for name, text in named.items() if "cache=True" in text] == ["compiled.py"]
    assert sum("njit_cached" in text for text in named.values()) > 8


def test_a_change_of_a_code_generator_makes_new_machine_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    generator, path = tmp_path / "generator.py", tmp_path / "doubling.py"
    generator.write_text("FACTOR = 2\n")
    path.write_text(
        SOURCE.replace("\nfrom", "\nimport generator\nfrom", 1)
        .replace("nogil=True", "nogil=True, uses=(generator,)")
        .replace("2 * x", "generator.FACTOR * x")
    )
    assert fresh(path)(3) == 6
    again = fresh(path)
    assert again(3) == 6 and again.stats.cache_hits
    generator.write_text("FACTOR = 10\n")
    sys.modules.pop("generator")
    assert fresh(path)(3) == 30
