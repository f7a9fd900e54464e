"""Map the runs of experiments over local processes or a Slurm job array; what is done already is not done again."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import pandas as pd
import submitit

from elm_lib.datasets import task_class
from elm_lib.experiments.config import Params, Runner, share
from elm_lib.models import cost as flops
from elm_lib.models.registry import arguments_of, build, model_class
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.support.processes import progress
from elm_lib.training.run import Run, pick_device, train_run

PACKAGE = Path(__file__).resolve().parent
# Fast ways to what other files define; tests hold each to its definition, so a faster one makes no result obsolete.
ENGINES = (
    "recurrence/fused.py",
    "recurrence/cpu.py",
    "recurrence/cpu_kernels.py",
    "recurrence/cuda.py",
    "sparse_cpu.py",
    "cuda_steps.py",
    "pages.py",
    "data/windows_cpu.py",
    "data/prefetch.py",
)

# what every table of runs has, in this order but for the arguments of model and task
RUN_COLUMNS = [
    "experiment",
    "size",
    "seed",
    "profile",
    "source",
    "morphology",
    "budget",
    "vary",
    "device",
    "parameters",
    "flops",
    "diverged",
    "steps",
    "best_epoch",
]


class RunError(RuntimeError):
    """A training run failed in its own process; the line says which, why, and where its log is."""


class TrainTask(submitit.helpers.Checkpointable):
    """A run as submitit wants it: preempted or out of time on Slurm, it is queued again and resumes its checkpoint."""

    def __call__(self, run: Run, parent_pid: int | None = None) -> str:
        train_run(run, parent_pid)
        return str(run.result)


def plan(params: Params, experiment: str, profile: str, *, data: str | Path, folder: str | Path) -> list[Run]:
    """The runs of an experiment under a profile: every value of `vary` with every seed, each in a folder named by what decides it.

    Where a run is made is not part of its name: one that was made on a GPU counts on a laptop, and its result says so.
    """
    full, (capped, _) = params.experiment(experiment), params.capped(experiment, profile)
    task, device, runner = task_class(capped.data), pick_device(params.device), params.profiles[profile].runner
    runs = []
    for value in capped.values:
        options, model, train = capped.options_at(value), capped.model_at(value), capped.train_at(value)
        manifest = read_manifest(Path(data), options.get("name"))
        code = code_version("elm_lib.training.run", f"elm_lib.datasets.{capped.data}", model_class(model).__module__)
        try:
            task.sizes(**options)
            follow = task.arguments(**options) if hasattr(task, "arguments") else {}
        except TypeError as error:  # an option that the task does not have, or lacks, or a value that is no number
            names = list(inspect.signature(task.sizes).parameters)
            raise ConfigError(
                f"params.yaml: experiments, {experiment}.task = {options}: {error}; its options are {names}"
            ) from None
        model = {k: v for k, v in follow.items() if k in arguments_of(model_class(model))} | model
        for seed in capped.seeds:
            decides = {"model": model, "options": options, "train": train.model_dump(), "seed": seed}
            key = digest({**decides, "data": manifest["sha256"], "code": code})[:16]
            labels = {
                "profile": profile,
                "source": manifest["source"],
                "morphology": manifest.get("morphology", ""),
                "budget": share(train, full.train_at(value)),
                "vary": capped.vary,
                "commit": commit(),
            }
            runs.append(
                Run(
                    experiment,
                    capped.data,
                    **decides,
                    data=str(data),
                    folder=str(Path(folder) / experiment / key),
                    device=device,
                    threads=runner.threads,
                    labels=labels,
                )
            )
    return runs


def execute(runs: list[Run], runner: Runner, what: str = "runs") -> None:
    """Do the runs, of one experiment or more, that have no result yet: one after another here ("debug"), in `jobs` threads
    of this process ("threads": many small runs share one GPU), in `jobs` processes ("local"), or on Slurm.

    Killed at any point, the next call goes on from the checkpoints. Raises RunError, one line, when a run fails.
    """
    missing = [run for run in runs if not run.result.exists()]
    if not missing:
        return
    total = sum(run.train["epochs"] * run.train["batches_per_epoch"] for run in missing)
    with progress(total, what, "step") as bar:
        bar.initial = sum(_steps_done(run) for run in missing)  # by checkpoints; the rate is of this time's steps
        how = {"debug": _here, "threads": _threads}.get(runner.cluster, _submitted)
        for _ in how(missing, runner):
            bar.n = sum(_steps_done(run) for run in missing)
            bar.refresh()


def _here(runs: list[Run], runner: Runner) -> Iterator[None]:
    for run in runs:
        _train_named(run)
        yield


def _threads(runs: list[Run], runner: Runner) -> Iterator[None]:
    """A failure, or an interrupt, ends all of them; what they have done is in their checkpoints."""
    over, before = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # s: a thread that draws batches must not keep the others from launching theirs
    with ThreadPoolExecutor(runner.jobs) as pool:
        try:
            waiting = {pool.submit(_train_named, run, lambda step: over.is_set()) for run in runs}
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                yield
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            sys.setswitchinterval(before)


def _train_named(run: Run, stop=lambda step: False) -> None:
    """Train in this process; an error says which run it was."""
    if stop(0):
        return
    try:
        train_run(run, stop=stop)
    except Exception as error:
        raise RunError(f"{_said(run)}: {error}") from error


def _said(run: Run) -> str:
    return f"{run.experiment}, size {size(run)}, seed {run.seed}"


def _submitted(runs: list[Run], runner: Runner) -> Iterator[None]:
    """Yields now and then until all runs are done."""
    executor = submitit.AutoExecutor(folder=Path(runs[0].folder).parents[1] / "jobs", cluster=runner.cluster)
    executor.update_parameters(timeout_min=60 * 24 * 7)
    waiting, active, parent = list(runs), [], os.getpid()
    if runner.cluster == "slurm":
        executor.update_parameters(slurm_array_parallelism=runner.jobs, cpus_per_task=runner.threads, **runner.slurm)
        waiting, active = [], list(zip(runs, executor.map_array(TrainTask(), runs)))
    while waiting or active:
        while waiting and len(active) < runner.jobs:
            run = waiting.pop(0)
            active.append((run, executor.submit(TrainTask(), run, parent)))
        for run, job in list(active):
            if job.done():
                try:
                    job.result()
                except submitit.core.utils.UncompletedJobError as error:
                    for _, other in active:
                        other.cancel()
                    reasons = re.findall(r"^(?:\w+\.)*\w+: .+$", str(error), re.MULTILINE) or ["ended without a word"]
                    raise RunError(f"{_said(run)}: {reasons[-1]} (log: {job.paths.stderr})") from None
                active.remove((run, job))
        yield
        time.sleep(0.5)


def _steps_done(run: Run) -> int:
    try:
        if run.result.exists():
            return run.train["epochs"] * run.train["batches_per_epoch"]
        return json.loads((Path(run.folder) / "progress.json").read_text())["step"]
    except OSError:
        return 0


def collect(runs: list[Run]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Results, learning curves and cost of finished runs, a row each run (each epoch of a run).

    Cost (wall time, device) is kept apart: it differs from one execution to the next, results do not. Without a run the tables
    are empty.
    """
    if not runs:
        columns = (RUN_COLUMNS, ["size", "seed", "epoch", "step", "train_loss"], ["size", "seed"])
        return tuple(pd.DataFrame(columns=names) for names in columns)
    results, curves, costs = [], [], []
    for run in runs:
        content, task = json.loads(run.result.read_text()), task_class(run.task)
        model = build(run.model, **task.sizes(**run.options))
        counts = {
            "parameters": flops.parameters(model),
            "flops": flops.count(model, task.steps(**run.options)),
        }
        names = {"experiment": run.experiment, "size": size(run), "seed": run.seed}
        for prefix, arguments in (("model", run.model), ("task", run.options)):
            names |= {f"{prefix}_{k}": json.dumps(v) if isinstance(v, list | dict) else v for k, v in arguments.items()}
        labels = dict(content["run"]["labels"])  # as it was run, not as it is asked for now
        made_by = labels.pop("commit", "")
        results.append({**names, **labels, "device": content["device"], **counts, **content["result"]})
        curve = pd.read_csv(Path(run.folder) / "curve.csv")
        for name in ("seed", "size"):
            curve.insert(0, name, run.seed if name == "seed" else size(run))
        curves.append(curve)
        cost = Path(run.folder) / "cost.json"  # a kill right after the result can have left none
        costs.append(
            {
                "size": size(run),
                "seed": run.seed,
                **(json.loads(cost.read_text()) if cost.exists() else {}),
                "commit": made_by,
            }
        )
    return pd.DataFrame(results), pd.concat(curves, ignore_index=True), pd.DataFrame(costs)


def size(run: Run):
    """The value of the argument that the experiment varies: d_m of an ELM, hidden size of an LSTM, ..."""
    varied = run.labels.get("vary") or ("d_m" if "d_m" in run.model else "hidden_size")
    value = (run.model | run.options)[varied]
    return json.dumps(value) if isinstance(value, list) else value


def read_manifest(data: Path, name: str | None = None) -> dict:
    """manifest.json of a prepared data set, or of that name in a collection: its hash, source and morphology. Raises DataError
    when it is not there."""
    path = data / (name or "") / "manifest.json"
    if not path.is_file():
        raise DataError(f"{path} is missing: the data set is not prepared; run `dvc repro preprocess_{data.name}`")
    return json.loads(path.read_text())


def digest(content) -> str:
    """sha256 of anything JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def code_version(*modules: str) -> str:
    """sha256 over the code of modules of elm_lib and of all that they import of elm_lib, at any depth; comments, docstrings
    and engines aside."""
    paths = set().union(*(imported(module_path(module)) for module in modules)) - {PACKAGE / path for path in ENGINES}
    return digest({str(path.relative_to(PACKAGE)): _code(path) for path in sorted(paths)})


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def module_path(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(source: Path | str) -> set[Path]:
    """Files of elm_lib that a file (or source text) imports at any depth, itself included if it belongs to elm_lib."""
    todo, found = [source], set()
    while todo:
        current = todo.pop()
        if isinstance(current, Path):
            if current in found:
                continue
            found.add(current)
        for node in ast.walk(ast.parse(current.read_text() if isinstance(current, Path) else current)):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "elm_lib":
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.split(".")[0] == "elm_lib"]
            for name in names:
                parts = name.split(".")
                paths = [module_path(".".join(parts[:k])) for k in range(1, len(parts) + 1)]
                # the package's own __init__ only offers neuron lazily; it makes nobody depend on the neuron
                todo += [p for p in paths if p.is_file() and p != PACKAGE / "__init__.py"]
    return found


def commit() -> str:
    """The commit that the code was at, marked when elm_lib had changes. Where the code was copied without its
    repository, ELM_COMMIT says it; else "unknown"."""
    if os.environ.get("ELM_COMMIT"):
        return os.environ["ELM_COMMIT"]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
