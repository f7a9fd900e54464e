"""One set of versions: pyproject.toml, the lock, environment.yml and what is installed."""

import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = {
    canonicalize_name(line.split("==")[0]): line.split("==")[1]
    for line in (ROOT / "requirements.txt").read_text().splitlines()
    if "==" in line and ";" not in line
}


def test_the_lock_satisfies_the_project():
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["pipeline"], *extras["dev"]]:
        wanted = Requirement(text)
        if wanted.name == "triton":  # each torch build pins its own
            continue
        assert wanted.specifier.contains(LOCK[canonicalize_name(wanted.name)]), text


def test_what_is_installed_is_the_lock():
    differ = {name: (pinned, version(name)) for name, pinned in LOCK.items() if version(name).split("+")[0] != pinned}
    assert not differ


def test_the_lock_installs_on_the_oldest_python_that_is_promised():
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    wanted = {name: metadata(name)["Requires-Python"] or "" for name in LOCK}
    assert not {name: python for name, python in wanted.items() if not SpecifierSet(python).contains(oldest)}


def test_conda_users_get_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(
        entry for entry in environment["dependencies"] if isinstance(entry, str) and entry.startswith("python=")
    )
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.split("=")[1])
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert "-r requirements.txt" in pip
