"""What an interruption leaves, and where the project lies: DVC goes on. Tried on a project of two stages."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from elm_lib.pipeline import notebook, repro

ROOT = Path(__file__).resolve().parents[2]
DVC_YAML = """
stages:
  one: {cmd: cp dvc.yaml a, outs: [{a: {cache: false}}]}
  two: {cmd: cp a b, deps: [a], outs: [{b: {cache: false}}]}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A small project in a folder with a space, without git."""
    folder = tmp_path_factory.mktemp("pro ject")
    (folder / "dvc.yaml").write_text(DVC_YAML)
    for name in (".dvc/config", ".dvcignore", "Makefile"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def start(project: Path) -> subprocess.Popen:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "elm_lib.pipeline.repro"]
    return subprocess.Popen(
        command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, umask=0
    )


def end(process: subprocess.Popen) -> tuple[str, str]:
    out, said = process.communicate()
    assert process.returncode == 0, said
    return out, said


def test_it_runs_without_git_in_a_folder_with_a_space_and_lets_nobody_else_write(project):
    (project / ".dvc/tmp/site/repo").mkdir(parents=True)
    (project / ".dvc/tmp/site/repo").chmod(0o777)  # as DVC leaves it
    (project / ".dvc/tmp/site/repo/planted").write_text("by somebody else")
    (project / ".dvc/tmp/rwlock").write_text('{"read": {"a')  # cut off by a kill
    out, _ = end(start(project))
    assert "Running stage 'two'" in out
    assert (project / "b").read_text() == DVC_YAML
    assert not (project / ".dvc/tmp/site/repo/planted").exists()
    modes = {path: path.stat().st_mode for path in (project / ".dvc/tmp").rglob("*")}
    modes |= {path: path.stat().st_mode for path in (project / "a", project / "b", project / "dvc.lock")}
    assert len(modes) > 6
    assert not {str(path) for path, mode in modes.items() if mode & (stat.S_IWOTH | stat.S_IWGRP)}
    (project / ".git").mkdir()
    repro.settle(project)
    assert "no_scm" not in (project / ".dvc/config.local").read_text()
    (project / ".git").rmdir()


def test_a_lock_that_was_cut_off_is_put_back_and_one_that_is_held_is_waited_for(project):
    end(start(project))
    lock = project / "dvc.lock"
    whole = lock.read_bytes()
    lock.write_bytes(whole[: len(whole) // 2])
    with (project / ".dvc/tmp/lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(project)
        with pytest.raises(subprocess.TimeoutExpired):  # by itself DVC gives up after 3 s
            process.wait(8)
    out, said = end(process)
    assert (
        "dvc.lock was cut off by an interruption (what is left of it: .dvc/tmp/dvc.lock.unreadable): the copy" in said
    )
    assert "Running stage" not in out
    assert lock.read_bytes() == whole
    assert (project / ".dvc/tmp/dvc.lock.unreadable").read_bytes() == whole[: len(whole) // 2]


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.71, 0.83, 0.9, 0.97])
def test_a_stage_keeps_the_lock_wherever_it_is_cut(tmp_path, monkeypatch, part):
    monkeypatch.chdir(tmp_path)
    stages = {
        f"stage{k}": {"cmd": "run", "deps": [{"path": "a", "md5": 32 * "0", "size": 1}], "params": {"p": {"x": [k]}}}
        for k in range(3)
    }
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    text = repro.yaml.safe_dump({"schema": "2.0", "stages": stages}, sort_keys=False)
    Path("dvc.lock").write_text(text)
    notebook.keep_lock()
    assert repro.mend_lock() == ""
    Path("dvc.lock").write_text(text[: int(part * len(text))])
    said = repro.mend_lock()
    # a file that ends between two entries is a whole one of fewer stages, which DVC takes: those are run again
    assert Path("dvc.lock").read_text() == text if said else repro._is_whole(Path("dvc.lock"))
    Path("dvc.lock").write_text("stages:\n  one:")
    Path(".dvc/tmp/dvc.lock.whole").unlink()
    assert "no copy" in repro.mend_lock()
    assert not Path("dvc.lock").exists()


def test_make_quotes_every_path(tmp_path):
    """`make -n` in a folder with a space: the shell gets every path as one word."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "requirements.txt", "requirements-torch.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    said = subprocess.run(
        ["make", "--no-print-directory", "-n", "repro", "lab"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert "pip install" in said
    assert "elm_lib.pipeline.repro" in said
    for line in said.splitlines():
        if str(folder) in line:
            assert f'"{folder}' in line, line


def test_a_killed_kernel_is_one_line(tmp_path):
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]}), nbformat.v4.new_code_cell(code)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "n.ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "elm_lib.pipeline.notebook", str(tmp_path / "n.ipynb"), str(tmp_path / "out.ipynb")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "n.ipynb: its kernel was killed" in done.stderr
    assert not (tmp_path / "out.ipynb").exists()


def test_ci_tests_beside_two_busy_processes_and_ends_them(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\npgrep -P "$PPID" -f "while True" > pids; exit 3\n')
    make.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=env, check=False)
    assert done.returncode == 3
    pids = list(map(int, (tmp_path / "pids").read_text().split()))
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
