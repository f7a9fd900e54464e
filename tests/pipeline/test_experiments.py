"""`dvc exp run` beside the project: in a temporary workspace, and from the queue. Tried on a project of one stage."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DVC_YAML = """
stages:
  one: {cmd: "echo ${x} > a && pwd > b", params: [x], outs: [{a: {cache: false}}, {b: {cache: false}}]}
"""
ENV = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
    **{f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def call(project: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=project, env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_experiments_in_workspaces_of_their_own(tmp_path):
    project = tmp_path / "pro ject"
    (project / ".dvc").mkdir(parents=True)
    shutil.copy(ROOT / ".dvc/config", project / ".dvc/config")
    (project / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (project / "dvc.yaml").write_text(DVC_YAML)
    (project / "params.yaml").write_text("x: 1\n")
    call(project, "git", "init", "-q")
    call(project, "git", "add", "-A")
    call(project, "git", "commit", "-qm", "project")
    call(project, sys.executable, "-m", "elm_lib.pipeline.repro", "--prepare")  # what `make` does
    assert not (project / "a").exists()
    call(project, "dvc", "exp", "run", "--temp", "-n", "temp", "-S", "x=2")
    call(project, "dvc", "exp", "run", "--queue", "-n", "queued", "-S", "x=3")
    call(project, "dvc", "exp", "run", "--run-all")
    for name, x in (("temp", 2), ("queued", 3)):
        found = f"refs/exps/*/*/{name}"
        ref = call(project, "git", "for-each-ref", "--format=%(refname)", found).strip()
        assert call(project, "git", "show", f"{ref}:a") == f"{x}\n"
        assert f"{project}/.dvc/tmp/exps/" in call(project, "git", "show", f"{ref}:b")
    assert not (project / "a").exists()
