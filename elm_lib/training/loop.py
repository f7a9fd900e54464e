"""The training loop: cosine decay over the whole run, model selection on validation, divergence, exact resume."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from elm_lib.support.errors import DataError
from elm_lib.support.files import read_or_set_aside, write_atomically, write_text
from elm_lib.support.prefetch import prefetch
from elm_lib.training.optimisation import Train, descend, learning_rate

OPTIMIZERS = {"adam": torch.optim.Adam, "adamax": torch.optim.Adamax}
CHECKPOINT_S = 20.0  # seconds between checkpoints within an epoch
CHECK_EVERY = 100  # steps between looks at the loss: each look waits for a GPU
TOLD_S = 0.5  # seconds between notes of how far a run is

Advance = Callable[[int], Iterator[int]]


@dataclass
class Progress:
    """How far a run is: all that a checkpoint holds beside weights and optimiser."""

    step: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)  # a row an epoch
    best: dict[str, Tensor] | None = None  # weights of the epoch with the lowest validation score
    best_score: float = math.inf
    best_epoch: int = -1
    loss_sum: float = 0.0  # of the steps of this epoch
    seconds: float = 0.0  # spent so far, over all processes that worked on the run
    diverged: bool = False
    devices: list[str] = field(default_factory=list)  # each that did a part, in order
    pieces: int = 0  # of a batch, where free memory decides it; 0: not decided yet

    def is_over(self, train: Train) -> bool:
        """Whether all steps are done, or the run diverged."""
        return self.diverged or self.step >= train.steps

    def select(self, epoch: int, score: float, model: nn.Module) -> None:
        """Keep the weights of the epoch if its validation score is the lowest so far. A score that is not finite:
        divergence."""
        self.diverged = not math.isfinite(score)
        if score < self.best_score:
            self.best_score, self.best_epoch = score, epoch
            self.best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}

    def save(self, path: Path, model: nn.Module, optimizer) -> None:
        """Write a checkpoint: this, the weights, the optimiser's moments."""
        image = io.BytesIO()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "progress": vars(self)}
        torch.save(state, image)
        write_atomically(path, image.getbuffer())

    def restore(self, path: Path, model: nn.Module, optimizer, device: str) -> None:
        """Go on where a checkpoint left off. Nothing changes where there is none, or where it cannot be read (it is set
        aside then)."""
        saved = read_or_set_aside(path, lambda file: _load(file, device))
        if saved is not None:
            model.load_state_dict(saved["model"])
            _restore_moments(optimizer, saved["optimizer"])
            vars(self).update(saved["progress"])


def train_loop(
    task,
    model: nn.Module,
    train: Train,
    progress: Progress,
    advance: Advance,
    loss_sum: Tensor,
    *,
    save: Callable[[], None],
    note: Path,
    stop: Callable[[int], bool],
    over: Callable[[int], bool],
) -> None:
    """Go on from `progress.step` to the end of the run, or until it diverges, or is stopped.

    advance   goes on from a step and yields the number of steps done, after each or after several
    loss_sum  float64 (), which `advance` adds each step's loss to
    save      writes a checkpoint
    note      file that says how many steps are done, for progress bars
    stop      called with the number of steps done; True ends the loop there, as a kill would
    over      likewise; True: the loop saves a checkpoint and ends
    """
    loss_sum.fill_(progress.loss_sum)
    saved_at = told_at = time.monotonic()
    model.train()
    for done in advance(progress.step):
        progress.step = done
        last, now, ends = done % train.batches_per_epoch == 0, time.monotonic(), over(done)
        due = last or ends or now - saved_at >= CHECKPOINT_S
        looks = last or done % CHECK_EVERY == 0
        if not due and not looks:
            if stop(done):
                return
            continue
        progress.loss_sum = float(loss_sum)
        progress.diverged = looks and not math.isfinite(progress.loss_sum)  # at steps that no clock decides
        if last and not progress.diverged:
            _end_epoch(task, model, train, progress)
            loss_sum.zero_()
        if progress.diverged:
            return
        if due:
            save()
            saved_at = time.monotonic()
        if now - told_at > TOLD_S:
            with suppress(DataError, OSError):  # only a progress bar reads it
                write_text(note, json.dumps({"step": done}), durable=False)
            told_at = now
        if stop(done) or ends:
            return


def _load(path: Path, device: str) -> dict:
    try:
        return torch.load(path, weights_only=True, map_location=device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise DataError(f"{path} is no checkpoint: {error}") from None


def _end_epoch(task, model: nn.Module, train: Train, progress: Progress) -> None:
    """Validate, select, and begin the sum of losses anew."""
    epoch, scores = progress.step // train.batches_per_epoch - 1, task.validate(model)
    model.train()
    row = {"epoch": epoch, "step": progress.step, "train_loss": progress.loss_sum / train.batches_per_epoch}
    progress.curve.append(row | {f"valid_{name}": value for name, value in scores.items()})
    progress.select(epoch, scores[task.select], model)
    progress.loss_sum = 0.0


def step_by_step(
    task, model: nn.Module, train: Train, seed: int, device: str, progress: Progress | None = None
) -> tuple[Advance, Any, Tensor]:
    """Steps launched one by one: how to go on from a step, the optimiser, the sum of losses.

    progress  holds the number of pieces of a batch where free memory decides it; None: as published. Pieces for which
              memory does not suffice are halved, and the step is done again.
    """
    optimizer = OPTIMIZERS[train.optimizer](
        [p for p in model.parameters() if p.requires_grad], lr=train.lr, **_fused(train)
    )
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    random = random_parts(model)

    def losses(batch, step: int) -> Iterator[Tensor]:
        n = train.accumulate if progress is None else progress.pieces
        for k, (piece, share) in enumerate(batch.pieces(n) if n > 1 else [(batch, 1.0)]):
            for part in random:
                part.reseed(seed, step, k)
            loss = task.loss(model, piece.to(device))
            yield loss if share == 1 else share * loss

    def descended(batch, step: int) -> Tensor | float:
        while True:
            with suppress(torch.OutOfMemoryError) if _can_split(progress, batch) else nullcontext():
                return descend(model, optimizer, losses(batch, step), train.clip_grad_norm)
            assert progress is not None  # else the error was raised
            progress.pieces *= 2
            torch.cuda.empty_cache()

    def advance(first: int) -> Iterator[int]:
        keys = [divmod(step, train.batches_per_epoch) for step in range(first, train.steps)]
        for step, batch in enumerate(prefetch(lambda key: task.batch(*key), keys), start=first):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(train, step)
            loss_sum.add_(descended(batch, step))
            yield step + 1

    return advance, optimizer, loss_sum


def _can_split(progress: Progress | None, batch) -> bool:
    """Whether free memory decides the pieces of a batch, and it can have more."""
    return progress is not None and hasattr(batch, "pieces") and progress.pieces < len(batch)


def on_gpu(task, model: nn.Module, train: Train, device: str) -> tuple[Advance, Any, Tensor] | None:
    """The same as a CUDA graph over data that lie on the GPU.

    None where there is no GPU, or not room enough, or where a graph cannot repeat the steps: batches in pieces, random
    numbers drawn anew at each step.
    """
    if not device.startswith("cuda") or train.accumulate > 1 or random_parts(model):
        return None
    data = task.resident(device)
    if data is None:
        return None
    from elm_lib.training.cuda_graph import GraphedSteps

    optimizer = OPTIMIZERS[train.optimizer](
        [p for p in model.parameters() if p.requires_grad],
        lr=torch.tensor(train.lr, device=device),
        capturable=True,
        **_fused(train),
    )
    steps = GraphedSteps(task, data, model, optimizer, train)

    def advance(first: int) -> Iterator[int]:
        steps.seek(first)
        while first < train.steps:
            first = steps.run(first)
            yield first

    return advance, optimizer, steps.loss_sum


@runtime_checkable
class Reseeded(Protocol):
    """A module that draws random numbers in training, such as `elm_lib.models.dropout.Masks`."""

    def reseed(self, *key: int) -> None: ...


def random_parts(model: nn.Module) -> list[Reseeded]:
    """Modules that draw random numbers in training. Each is reseeded before a step, so a step depends on its number
    alone."""
    return [module for module in model.modules() if isinstance(module, Reseeded)]


def _fused(train: Train) -> dict[str, bool]:
    return {"fused": True} if train.optimizer == "adam" else {}


def _restore_moments(optimizer, saved: dict) -> None:
    """Load the moments of a checkpoint; on a GPU into the tensors that are there, as a CUDA graph holds on to them."""
    if not optimizer.state:
        optimizer.load_state_dict({"state": saved, "param_groups": optimizer.state_dict()["param_groups"]})
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for k, parameter in enumerate(parameters):
        for name, value in optimizer.state[parameter].items():
            value.copy_(saved[k][name])
