"""One training loop for every task: cosine decay over the whole run, model selection, divergence, exact resume."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.models.registry import build
from elm_lib.support.errors import ConfigError, DataError
from elm_lib.support.files import write_text
from elm_lib.support.prefetch import prefetch
from elm_lib.support.processes import die_with, locked
from elm_lib.training.optimisation import Train, descend, learning_rate

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

OPTIMIZERS = {"adam": torch.optim.Adam, "adamax": torch.optim.Adamax}
_SEEDED = threading.Lock()
CHECKPOINT_S = 20.0  # seconds between checkpoints within an epoch
CHECK_EVERY = 100  # steps between looks at the loss: each look waits for a GPU


@dataclass(frozen=True)
class Run:
    """One model, one seed: all that decides its result, and where the result goes."""

    experiment: str
    task: str
    model: dict[str, Any]
    train: dict[str, Any]
    seed: int
    data: str  # folder of the data set
    folder: str  # runs/<experiment>/<key>
    options: dict[str, Any] = field(default_factory=dict)  # of the task
    device: str = "cpu"
    threads: int = 1
    labels: dict[str, Any] = field(default_factory=dict)  # carried into the result: profile, data source, budget, ...

    @property
    def result(self) -> Path:
        return Path(self.folder) / "result.json"


def pick_device(wanted: str) -> str:
    """ "auto" -> "cuda" or "cpu". Raises ConfigError when "cuda" is asked for and there is none."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "params.yaml: device = 'cuda', but torch sees no CUDA device: install a CUDA build of torch, or set device: auto"
        )
    return wanted


def train_run(run: Run, parent_pid: int | None = None, stop: Callable[[int], bool] = lambda step: False) -> None:
    """Train, select on validation, test; writes run.folder/{result.json, curve.csv, model.safetensors, cost.json}.

    A run that was killed goes on from its last checkpoint and ends with the same weights, bit for bit, on one machine's
    CPU with the same number of threads. result.json appears last and at once: where it is, the run is done.

    parent_pid  end when that process is gone
    stop        called after each step with the number of steps done; True abandons the run there, as a kill would (for tests)
    """
    if parent_pid:
        die_with(parent_pid)
    # runs in threads of one process share a GPU: each has its own stream, and graphs are never captured on the default one
    stream = torch.cuda.stream(torch.cuda.Stream()) if run.device.startswith("cuda") else nullcontext()
    with locked(Path(run.folder)), stream:
        if not run.result.exists():
            _train(run, Train.model_validate(run.train), stop)


def _train(run: Run, train: Train, stop: Callable[[int], bool]) -> None:
    folder, started = Path(run.folder), time.time()
    torch.set_num_threads(run.threads)
    task = task_class(run.task)(run.data, train.batch_size, run.seed, **run.options)
    with _SEEDED:  # runs in threads share torch's generator
        torch.manual_seed(run.seed)
        model = build(run.model, **task.sizes(**run.options)).to(run.device)
    advance, optimizer, loss_sum = _on_gpu(run, task, model, train) or _step_by_step(run, task, model, train)
    state = {
        "step": 0,
        "curve": [],
        "best": None,
        "best_score": math.inf,
        "best_epoch": -1,
        "loss_sum": 0.0,
        "seconds": 0.0,
        "diverged": False,
        "devices": [],  # each that did a part, in order
    }
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = _read(checkpoint, run.device)
        model.load_state_dict(saved["model"])
        _restore(optimizer, saved["optimizer"])
        state = saved["state"]
    before, device = state["seconds"], _device_name(run.device)
    state["devices"] += [] if device in state["devices"] else [device]

    def save() -> None:
        state["seconds"] = before + time.time() - started
        temporary = checkpoint.with_suffix(".tmp")
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "state": state}, temporary
        )
        os.replace(temporary, checkpoint)

    loss_sum.fill_(state["loss_sum"])
    saved_at = told_at = time.time()
    model.train()
    for done in advance(state["step"]):
        state["step"] = done
        last = state["step"] % train.batches_per_epoch == 0
        if not last and state["step"] % CHECK_EVERY:
            if stop(state["step"]):
                return
            continue
        state["loss_sum"] = float(loss_sum)
        state["diverged"] = not math.isfinite(state["loss_sum"])
        if last and not state["diverged"]:
            scores = task.validate(model)
            model.train()
            epoch = state["step"] // train.batches_per_epoch - 1
            row = {"epoch": epoch, "step": state["step"], "train_loss": state["loss_sum"] / train.batches_per_epoch}
            state["curve"].append(row | {f"valid_{name}": value for name, value in scores.items()})
            score = scores[task.select]
            state["diverged"] = not math.isfinite(score)
            if score < state["best_score"]:
                state |= {
                    "best_score": score,
                    "best_epoch": epoch,
                    "best": {k: v.detach().cpu().clone() for k, v in model.state_dict().items()},
                }
            loss_sum.zero_()
            state["loss_sum"] = 0.0
        if state["diverged"]:
            break
        if last or time.time() - saved_at > CHECKPOINT_S:
            save()
            saved_at = time.time()
        if time.time() - told_at > 0.5:
            write_text(folder / "progress.json", json.dumps({"step": state["step"]}))
            told_at = time.time()
        if stop(state["step"]):
            return

    cost = {"wall_s": round(before + time.time() - started, 1), "device": ", then ".join(state["devices"])}
    write_text(folder / "cost.json", json.dumps(cost))
    _finish(run, task, model, state)
    checkpoint.unlink(missing_ok=True)


def _step_by_step(run: Run, task, model: nn.Module, train: Train):
    """How to go on from a step (an iterator over numbers of steps done), the optimiser, and the sum of losses that it fills."""
    options = {"fused": True} if train.optimizer == "adam" else {}
    optimizer = OPTIMIZERS[train.optimizer]([p for p in model.parameters() if p.requires_grad], lr=train.lr, **options)
    loss_sum = torch.zeros((), dtype=torch.float64, device=run.device)
    random = _random_parts(model)

    def losses(batch, step: int):
        for k, (piece, share) in enumerate(batch.pieces(train.accumulate) if train.accumulate > 1 else [(batch, 1.0)]):
            for part in random:
                part.reseed(run.seed, step, k)
            loss = task.loss(model, piece.to(run.device))
            yield loss if share == 1 else share * loss

    def advance(first: int):
        keys = [divmod(step, train.batches_per_epoch) for step in range(first, train.steps)]
        for step, batch in enumerate(prefetch(lambda key: task.batch(*key), keys), start=first):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(train, step)
            loss_sum.add_(descend(model, optimizer, losses(batch, step), train.clip_grad_norm))
            yield step + 1

    return advance, optimizer, loss_sum


def _on_gpu(run: Run, task, model: nn.Module, train: Train):
    """The same, its steps a CUDA graph over data that lie on the GPU. None where there is no GPU, or not room enough, or
    steps that a graph cannot repeat: parts of a batch, random numbers drawn anew."""
    if not run.device.startswith("cuda") or train.accumulate > 1 or _random_parts(model):
        return None
    data = task.resident(run.device)
    if data is None:
        return None
    from elm_lib.training.cuda_graph import GraphedSteps

    optimizer = OPTIMIZERS[train.optimizer](
        [p for p in model.parameters() if p.requires_grad],
        lr=torch.tensor(train.lr, device=run.device),
        capturable=True,
        **({"fused": True} if train.optimizer == "adam" else {}),
    )
    steps = GraphedSteps(task, data, model, optimizer, train)

    def advance(first: int):
        steps.seek(first)
        while first < train.steps:
            first = steps.run(first)
            yield first

    return advance, optimizer, steps.loss_sum


def _random_parts(model: nn.Module) -> list[nn.Module]:
    """Modules that draw random numbers in training: each takes reseed(*key) before a step, so a step depends on its number alone."""
    return [module for module in model.modules() if hasattr(module, "reseed")]


def _read(checkpoint: Path, device: str) -> dict:
    try:
        return torch.load(checkpoint, weights_only=True, map_location=device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise DataError(f"{checkpoint} cannot be read ({error}): delete it, and the run starts again") from None


def _restore(optimizer, saved: dict) -> None:
    """Load the moments of a checkpoint; on a GPU into the tensors that are there, as a CUDA graph holds on to them."""
    if not optimizer.state:
        optimizer.load_state_dict({"state": saved, "param_groups": optimizer.state_dict()["param_groups"]})
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for k, parameter in enumerate(parameters):
        for name, value in optimizer.state[parameter].items():
            value.copy_(saved[k][name])


def _finish(run: Run, task, model: nn.Module, state: dict) -> None:
    """Test the selected weights and write the results; result.json last."""
    folder = Path(run.folder)
    scores = {}
    if not state["diverged"]:
        model.load_state_dict(state["best"])
        scores = task.test(model)
        save_file({k: v.contiguous().cpu() for k, v in model.state_dict().items()}, folder / "model.safetensors")
    header = list(state["curve"][0]) if state["curve"] else ["epoch", "step", "train_loss"]
    write_text(
        folder / "curve.csv",
        "\n".join([",".join(header), *(",".join(repr(row[k]) for k in header) for row in state["curve"])]) + "\n",
    )
    result = {"diverged": state["diverged"], "steps": state["step"], "best_epoch": state["best_epoch"], **scores}
    kinds = list(dict.fromkeys("cpu" if name.startswith("CPU") else "cuda" for name in state["devices"]))
    write_text(run.result, json.dumps({"run": asdict(run), "device": "+".join(kinds), "result": result}, indent=1))


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    try:
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
    except OSError:
        names = []
    return f"CPU: {names[0]}" if names else "CPU"
