"""One run, from settings to scores: build, train, select, test, write."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save

from elm_lib.datasets import task_class
from elm_lib.models.registry import build
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.support.files import file_digest, read_or_set_aside, write_atomically, write_npz, write_text
from elm_lib.support.processes import die_with, locked
from elm_lib.training.loop import Progress, on_gpu, step_by_step, train_loop
from elm_lib.training.optimisation import Train
from elm_lib.training.pieces import fewest

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

Device = Literal["cpu", "cuda"]
ENDING_S = 60.0  # s that a former process of a run, or the lock of a node that is gone, may take to end
_SEEDED = threading.Lock()


@dataclass(frozen=True)
class Run:
    """One model, one seed: all that decides its result, and where the result goes."""

    experiment: str
    task: str  # data set
    model: dict[str, Any]
    train: dict[str, Any]
    seed: int
    data: str  # folder of the data set
    folder: str  # of what the run writes
    options: dict[str, Any] = field(default_factory=dict)  # of the task
    device: str = "cpu"
    threads: int = 1
    labels: dict[str, Any] = field(default_factory=dict)  # carried into the result: profile, budget, commit, ...
    accumulate: Literal["published", "auto"] = "published"  # auto: pieces of a batch by the free memory of a GPU
    shown: bool = False  # also keep the simulation that figures show, with the prediction

    @property
    def result(self) -> Path:
        """The file that appears last: where it is, the run is done."""
        return Path(self.folder) / "result.json"

    def is_done(self) -> bool:
        """Whether the result is there, whole. Else it is set aside, and the run is done again."""
        return self.result.exists() and read_or_set_aside(self.result, read_result) is not None


def read_result(path: Path) -> dict:
    """result.json of a run, after comparing the files beside it with their checksums in it. Raises DataError."""
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds {content!r}, which is no result")
    for name, sha256 in content.get("files", {}).items():
        file = path.with_name(name)
        if not file.is_file() or file_digest(file) != sha256:
            raise DataError(f"{path}: {name} beside it is not what the run wrote")
    return content


def pick_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device:
    """ "auto" -> "cuda" or "cpu". Raises ConfigError when "cuda" is asked for and there is none."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "params.yaml: device = 'cuda', but torch sees no CUDA device: install a CUDA build of torch, "
            "or set device: auto"
        )
    return wanted


@contextmanager
def threads_as_before() -> Iterator[None]:
    """Leave torch's number of threads as it is, although a run sets its own: for runs within a user's process."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_run(
    run: Run,
    parent_pid: int | None = None,
    stop: Callable[[int], bool] = lambda step: False,
    over: Callable[[int], bool] = lambda step: False,
) -> None:
    """Train, select on validation, test. Writes run.folder/{result.json, curve.csv, model.safetensors, statistics.npz}.

    A run that was killed goes on from its last checkpoint and ends with the same weights, bit for bit, on one machine's
    CPU with the same number of threads. result.json appears last and at once: where it is, the run is done.

    parent_pid  end when that process is gone
    stop        called with the number of steps done; True abandons the run there, as a kill would (for tests)
    over        likewise; True: the run saves a checkpoint and ends without a result

    Raises DataError when another process has held the run's folder for a minute: it says which.
    """
    if parent_pid:
        die_with(parent_pid)
    # Runs in threads of one process share a GPU: each has its own stream. Graphs are never captured on the default one.
    stream = torch.cuda.stream(torch.cuda.Stream()) if run.device.startswith("cuda") else nullcontext()
    with locked(Path(run.folder), ENDING_S), stream:
        if not run.is_done():
            _train(run, Train.model_validate(run.train), stop, over)


def _train(run: Run, train: Train, stop: Callable[[int], bool], over: Callable[[int], bool]) -> None:
    folder, started = Path(run.folder), time.monotonic()
    torch.set_num_threads(run.threads)
    task = task_class(run.task)(run.data, train.batch_size, run.seed, **run.options)
    with _SEEDED:  # runs in threads share torch's generator
        torch.manual_seed(run.seed)
        model = build(run.model, **task.sizes(**run.options)).to(run.device)
    progress = Progress()
    advance, optimizer, loss_sum = on_gpu(task, model, train, run.device) or step_by_step(
        task, model, train, run.seed, run.device, progress if run.accumulate == "auto" else None
    )
    checkpoint = folder / "checkpoint.pt"
    progress.restore(checkpoint, model, optimizer, run.device)
    before, device = progress.seconds, device_name(run.device)
    if run.accumulate == "auto" and (progress.pieces == 0 or device not in progress.devices):
        progress.pieces = fewest(task, model, train, run.device)
    progress.devices += [] if device in progress.devices else [device]

    def save_checkpoint() -> None:
        progress.seconds = before + time.monotonic() - started
        progress.save(checkpoint, model, optimizer)

    train_loop(
        task,
        model,
        train,
        progress,
        advance,
        loss_sum,
        save=save_checkpoint,
        note=folder / "progress.json",
        stop=stop,
        over=over,
    )
    if progress.is_over(train) and not stop(progress.step):
        progress.seconds = before + time.monotonic() - started
        _finish(run, task, model, progress)
        checkpoint.unlink(missing_ok=True)


def _finish(run: Run, task, model: torch.nn.Module, progress: Progress) -> None:
    """Test the selected weights and write the results; result.json last."""
    folder, scores, written = Path(run.folder), {}, ["curve.csv"]
    if not progress.diverged:
        assert progress.best is not None  # a run that did not diverge has a best epoch
        model.load_state_dict(progress.best)
        scores, statistics = task.evaluate(model)
        write_npz(folder / "statistics.npz", statistics, compressed=True)
        written += ["statistics.npz", "model.safetensors"]
        if run.shown:
            write_npz(folder / "shown.npz", task.example(model), compressed=True)
            written.append("shown.npz")
        weights = {name: value.contiguous().cpu() for name, value in model.state_dict().items()}
        write_atomically(folder / "model.safetensors", save(weights))
    header = list(progress.curve[0]) if progress.curve else ["epoch", "step", "train_loss"]
    lines = [",".join(header), *(",".join(repr(row[name]) for name in header) for row in progress.curve)]
    write_text(folder / "curve.csv", "\n".join(lines) + "\n")
    result = {"diverged": progress.diverged, "steps": progress.step, "best_epoch": progress.best_epoch, **scores}
    kinds = list(dict.fromkeys("cpu" if name.startswith("CPU") else "cuda" for name in progress.devices))
    made = {
        "wall_s": round(progress.seconds, 1),
        "device": ", then ".join(progress.devices),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    files = {name: file_digest(folder / name) for name in written}
    content = {"run": asdict(run), "device": "+".join(kinds), "made": made, "result": result, "files": files}
    write_text(run.result, json.dumps(content, indent=1))


def device_name(device: str) -> str:
    """The processor or the GPU by its name."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"CPU: {names[0]}" if names else "CPU"
