"""The pipeline itself, at profile smoke, in a copy of this project: killed, resumed, repeated, varied. Minutes long."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ENV = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@t",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@t",
}
STALLED_S = 600  # without a sign of progress
pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]


def call(project: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=project, env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def living(project: Path) -> list[str]:
    """Processes that work in this copy of the project."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(project):
                found.append(" ".join(process.cmdline())[:120])
        except (psutil.Error, OSError):
            continue
    return found


def kill_when(project: Path, pattern: str) -> None:
    """Start `dvc repro` and kill it -9, it alone, as soon as a file appears; what it had started must end by itself."""
    with subprocess.Popen(
        ["dvc", "repro"],
        cwd=project,
        env=ENV,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as dvc:
        seen, limit = 0, time.monotonic() + STALLED_S
        while not list(project.glob(pattern)):
            assert dvc.poll() is None, f"dvc repro ended before {pattern} appeared"
            files = sum(len(names) for _, _, names in os.walk(project))
            if files != seen:  # a guard against hanging, renewed by progress
                seen, limit = files, time.monotonic() + STALLED_S
            assert time.monotonic() < limit, f"no {pattern}, and no new file for {STALLED_S} s"
            time.sleep(0.2)
        dvc.send_signal(signal.SIGKILL)
    limit = time.monotonic() + STALLED_S
    while living(project) and time.monotonic() < limit:
        time.sleep(0.1)
    assert living(project) == []


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in call(ROOT, "git", "ls-files", "-co", "--exclude-standard").splitlines():
        if (ROOT / name).is_file() and not name.startswith("results/desk/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / "dvc.lock").unlink(missing_ok=True)
    params = (folder / "params.yaml").read_text()
    assert "profile: laptop" in params
    (folder / "params.yaml").write_text(params.replace("profile: laptop", "profile: smoke"))
    # results of smoke are compared with what git holds, as those of desk are in the project
    ignored = (folder / ".gitignore").read_text()
    assert "/results/smoke/\n" in ignored
    (folder / ".gitignore").write_text(ignored.replace("/results/smoke/\n", ""))
    if (ROOT / "data/raw/l5pc/C060114A7.asc").exists():  # else the download stage fetches it
        (folder / "data/raw/l5pc").mkdir(parents=True)
        shutil.copy2(ROOT / "data/raw/l5pc/C060114A7.asc", folder / "data/raw/l5pc")
    call(folder, "git", "init", "-q")
    call(folder, "git", "add", "-A")
    call(folder, "git", "commit", "-qm", "copy")
    return folder


def test_killed_anywhere_it_goes_on(project):
    for pattern in (
        "data/smoke/neuronio/train",
        "data/smoke/neuronio/test",
        "runs/work/*/lock",
        "results/smoke/figures/fig2.pdf",
    ):
        kill_when(project, pattern)
    call(project, "dvc", "repro")
    verdicts = (project / "results/smoke/verdicts.csv").read_text().splitlines()
    assert verdicts[0].startswith("claim,item,published,ours,std,seeds,tolerance,verdict,budget,profile,data,device,")
    assert any(line.startswith("headline,") for line in verdicts)


def test_a_second_run_does_nothing(project):
    assert "Running stage" not in call(project, "dvc", "repro")
    assert "up to date" in call(project, "dvc", "status")


def test_two_forced_runs_are_byte_identical(project):
    """A stage of each kind from nothing: data simulated again, models trained again, masks and routing drawn again; the
    lock holds a hash of every notebook, table and figure."""
    before, entries = (project / "dvc.lock").read_bytes(), _entries(project)
    for folder in ("data/smoke/neuronio", "data/smoke/shd", "runs/work", "runs/ledger/neuronio", "runs/ledger/shd"):
        shutil.rmtree(project / folder)
    names = ["preprocess@neuronio", "preprocess@shd", "train@neuronio", "train@shd", "evaluate"]
    names += ["figures_neuronio", "figures_shd", "report"]
    call(project, "dvc", "repro", "-f", "-s", *names)
    lock, again = (yaml.safe_load(text) for text in (before, (project / "dvc.lock").read_bytes()))
    for name in names:
        ours, theirs = (_outs(lock["stages"][name]) for lock in (lock, again))
        assert ours == theirs, name
    assert _entries(project) == entries
    call(project, "git", "add", "-A")
    call(project, "git", "commit", "-qm", "results")


def _entries(project: Path) -> dict[str, dict]:
    """The ledger without where and when each run was made."""
    found = {path.name: json.loads(path.read_text()) for path in (project / "runs/ledger").rglob("*.json")}
    assert found
    return {name: {key: value for key, value in entry.items() if key != "made"} for name, entry in found.items()}


def _outs(stage: dict) -> dict[str, str]:
    """md5 by path, without what says where and when a run was made: the ledger, in its block `made`, which is compared
    below, and the report page, which repeats hours and commits."""
    told = ("runs/ledger", "results/smoke/report.html")
    return {out["path"]: out["md5"] for out in stage["outs"] if not out["path"].startswith(told)}


def test_one_experiment_is_varied_alone_and_compared(project):
    kept = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (project / "runs/ledger").rglob("*.json")}
    out = call(project, "dvc", "exp", "run", "-S", "+experiments.neuronio.neuronio_lstm.train.lr=0.001")
    ran = [line.split("'")[1] for line in out.splitlines() if line.startswith("Running stage")]
    assert set(ran) == {"train@neuronio", "evaluate", "figures_neuronio", "figures_ablations", "figures_lra", "report"}
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == digest for path, digest in kept.items())
    changed = json.loads(call(project, "dvc", "metrics", "diff", "--json"))["results/smoke/metrics.json"]
    assert any(name.startswith("scores.neuronio_lstm.15.") for name in changed)
    assert not any(name.startswith("scores.neuronio_elm.") for name in changed)
    call(project, "dvc", "plots", "diff", "-o", "plots", "HEAD")
    assert "results/smoke/curves/neuronio/neuronio_lstm.csv" in (project / "plots/index.html").read_text()
