"""One set of versions: pyproject.toml, the lock, environment.yml and what is installed.

What is used is declared, and the reverse.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, metadata, packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import elm_lib

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def pins(file: str) -> dict[str, str]:
    """Version by name; lines for some systems alone are left out."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if "==" in line and ";" not in line]
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1].split()[0] for line in lines}


LOCK = pins("requirements.txt") | pins("requirements-torch.txt")


def test_the_lock_satisfies_the_project():
    extras = PROJECT["optional-dependencies"]
    for text in [
        *PROJECT["dependencies"],
        *(text for name in ("pipeline", "dev", "fit", "nwb") for text in extras[name]),
    ]:
        wanted = Requirement(text)
        if wanted.name == "triton":  # each torch build pins its own
            continue
        assert wanted.specifier.contains(LOCK[canonicalize_name(wanted.name)]), text


def test_the_lock_has_hashes_of_all_but_torch():
    text = (ROOT / "requirements.txt").read_text()
    assert pins("requirements.in") == pins("requirements.txt")
    hashes = {
        canonicalize_name(name): re.findall(r"--hash=sha256:[0-9a-f]{64}\b", rest)
        for name, rest in re.findall(r"^([\w.-]+)==(.*?)(?=^[\w.-]+==|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    }
    assert set(hashes) == set(pins("requirements.txt"))
    assert all(hashes.values())
    assert len(hashes["numpy"]) > 20  # of many platforms
    torch = [line for line in (ROOT / "requirements-torch.txt").read_text().splitlines() if not line.startswith("#")]
    assert [re.split("==", line)[0] for line in torch] == ["torch", "triton"]
    assert "hash" not in "".join(torch)
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    assert "--require-hashes -r requirements.txt" in installs[0]
    assert "-r requirements-torch.txt" in installs[1]


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
    assert {"-r requirements.in", "-r requirements-torch.txt"} < set(pip)


# ---- what is declared is used, what is used is declared --------------------------------------------------------------

DECLARED = {
    canonicalize_name(Requirement(text).name)
    for text in sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
}
BEHIND = {  # others load them: pytest the first three, mypy the fourth, pandas the last two; what asks for each
    "pytest-timeout": r"^timeout = ",
    "pytest-xdist": r"\bpytest -n ",
    "nbval": r"--nbval\b",
    "types-pyyaml": r"^\tmypy$",
    "tabulate": r"\.to_markdown\(",
    "jinja2": r"\.to_latex\(",
}
BROUGHT = {
    module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()
}  # module: distributions that bring it


def imported(*folders: str) -> dict[str, set[str]]:
    """Top-level modules that files below these folders import, those named in a string for an optional import too:
    where."""
    found: dict[str, set[str]] = {}
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.*")):
        if path.suffix == ".ipynb" and "checkpoint" not in path.name:
            cells = json.loads(path.read_text())["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        elif path.suffix == ".py":
            sources = [path.read_text()]
        else:
            continue
        for node in (node for source in sources for node in ast.walk(ast.parse(source))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("importorskip", "find_spec"):
                names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            for name in names:
                found.setdefault(name.split(".")[0], set()).add(str(path.relative_to(ROOT)))
    return found


def modules_of(name: str) -> set[str]:
    """Modules that a distribution brings; for one that is not installed here, its own name."""
    return {module for module, names in BROUGHT.items() if name in names} or {name.replace("-", "_")}


def scripts_of(name: str) -> set[str]:
    """Commands that a distribution brings; a program that is no Python has the name of its distribution."""
    try:
        return {name, *(entry.name for entry in distribution(name).entry_points if entry.group == "console_scripts")}
    except PackageNotFoundError:
        return {name}


def calls() -> str:
    """The lines that call tools: of make, CI, DVC, pre-commit, pytest's settings, and of elm_lib."""
    files = ["Makefile", ".ci/run", "dvc.yaml", ".pre-commit-config.yaml", "pyproject.toml"]
    paths = [*(ROOT / file for file in files), *(ROOT / "elm_lib").rglob("*.py")]
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return "\n".join(line for line in lines if not line.lstrip().startswith(("#", '"')))


def test_what_is_declared_is_used():
    imports, text = set(imported("elm_lib", "notebooks", "tests", "benchmarks")), calls()
    unused = set()
    for name in DECLARED:
        commands = "|".join(re.escape(script).replace(r"\-", "[- ]") for script in scripts_of(name))
        called = re.search(rf"(^|[@&:] |\t@?)({commands})( |$)", text, flags=re.MULTILINE)
        behind = name in BEHIND and re.search(BEHIND[name], text, flags=re.MULTILINE)
        if not (modules_of(name) & imports or called or behind):
            unused.add(name)
    assert not unused


def test_what_is_used_is_declared():
    allowed = {"elm_lib", *sys.stdlib_module_names}.union(*map(modules_of, DECLARED))
    strange = {module: where for module, where in imported("elm_lib").items() if module not in allowed}
    assert not strange, "declare what brings these in pyproject.toml"
    text = calls()
    assert not {name for name, asked in BEHIND.items() if re.search(asked, text, flags=re.MULTILINE)} - DECLARED


@pytest.mark.parametrize(
    ("names", "extras"), [("ELM, BranchELM, Spikes, load_released", ()), ("fit, load_fit", ("fit",))]
)
def test_a_part_of_the_library_needs_what_it_declares(names, extras):
    """What `from elm_lib import ELM` or `fit` reads imports the declared packages and the standard library; numba and
    triton only if they are there."""
    code = (
        "import builtins, sys; real = builtins.__import__; allowed = set(sys.argv[1:]); seen = set()\n"
        "def spy(name, where=None, *rest, **more):\n"
        "    if where and (where.get('__name__') or '').split('.')[0] == 'elm_lib': seen.add(name.split('.')[0])\n"
        "    return real(name, where, *rest, **more)\n"
        "builtins.__import__ = spy\n"
        f"from elm_lib import {names}\n"
        "print(*sorted(seen - allowed - set(sys.stdlib_module_names)))"
    )
    texts = sum((PROJECT["optional-dependencies"][extra] for extra in extras), PROJECT["dependencies"])
    declared = {module for text in texts for module in modules_of(Requirement(text).name)}
    command = [sys.executable, "-c", code, "elm_lib", "numba", "llvmlite", "triton", *declared]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


# ---- what is built ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """Names of the files in the wheel, which is built from a copy, so that nothing is left in the project."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", PROJECT["readme"], "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "elm_lib", folder / "elm_lib", ignore=shutil.ignore_patterns("__pycache__"))
    command = "-m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist ."
    subprocess.run([sys.executable, *shlex.split(command)], cwd=folder, check=True)
    (built,) = (folder / "dist").glob("*.whl")
    return [built.name, *zipfile.ZipFile(built).namelist()]


def test_the_wheel_is_of_the_version_that_the_package_names(wheel):
    assert wheel[0].startswith(f"elm_lib-{elm_lib.__version__}-")


def test_the_wheel_holds_the_library_the_published_values_and_the_page_templates(wheel):
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "elm_lib").rglob("*")
        if path.suffix == ".py"
        or path.name == "py.typed"
        or path.match("paper/published/*.csv")
        or path.match("paper/templates/elm/*")
    }
    assert any(name.endswith(".csv") for name in expected)
    assert {name for name in wheel[1:] if not name.split("/")[0].endswith(".dist-info")} == expected


# ---- what is committed -----------------------------------------------------------------------------------------------


def test_committed_notebooks_are_as_the_hook_leaves_them():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entry = shlex.split(next(hook["entry"] for hook in hooks if hook["id"] == "nbstripout"))
    notebooks = sorted(map(str, (ROOT / "notebooks").glob("*.ipynb")))
    command = [str(Path(sys.executable).parent / entry[0]), *entry[1:], "--verify", *notebooks]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run `{shlex.join(entry)} notebooks/*.ipynb`"
