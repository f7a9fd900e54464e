"""Optimiser steps as a CUDA graph: ten steps are one launch.

Batch, loss, gradients, Adam and learning rate stay on the GPU. A step of a small neuron is some hundred short
kernels; launched one by one from Python they wait for Python.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import nn

from elm_lib.training.optimisation import Train, descend, learning_rate

_CAPTURE = threading.Lock()  # runs in threads of one process capture one after another
WARM_UP = 3  # steps before capture: libraries allocate, kernels compile
STEPS = 10  # of a launch, at most


class GraphedSteps:
    """Steps of one run on the current CUDA stream.

    task       has `first_rows(epoch, steps)` -> int64 (steps, B), `window_ms` and `loss(model, batch)`
    data       the training set on the GPU: `batch(first_row, window_ms)`
    optimizer  capturable, its learning rate a tensor; after this its state exists, as after no step
    loss_sum   float64 (), the sum of the losses since it was last set to zero
    """

    def __init__(self, task, data, model: nn.Module, optimizer, train: Train) -> None:
        self.task, self.train, self.epoch = task, train, -1
        device = next(model.parameters()).device
        rates = [learning_rate(train, step) for step in range(train.steps)]
        self.rates = torch.tensor(rates, dtype=torch.float32, device=device)
        self.first_rows = torch.zeros(train.batches_per_epoch, train.batch_size, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # of the whole run
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = math.gcd(STEPS, train.batches_per_epoch)  # of a launch

        def one() -> None:
            for group in optimizer.param_groups:
                group["lr"].copy_(self.rates.index_select(0, self.step).squeeze())
            first_row = self.first_rows.index_select(0, self.step % train.batches_per_epoch).squeeze(0)
            loss = task.loss(model, data.batch(first_row, task.window_ms))
            self.loss_sum += descend(model, optimizer, [loss], train.clip_grad_norm)
            self.step += 1

        before = {name: value.clone() for name, value in model.state_dict().items()}
        self.graph = torch.cuda.CUDAGraph()
        with _CAPTURE:
            for _ in range(WARM_UP):
                one()
            torch.cuda.current_stream().synchronize()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                for _ in range(self.steps):
                    one()
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.copy_(before[name])
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()
        self.loss_sum.zero_()

    def seek(self, step: int) -> None:
        """The next step is number `step` of the run."""
        self.step.fill_(step)

    def run(self, step: int) -> int:
        """The next steps, from number `step` on, which follows the one before; returns the number after them."""
        epoch = step // self.train.batches_per_epoch
        if epoch != self.epoch:
            self.first_rows.copy_(self.task.first_rows(epoch, self.train.batches_per_epoch))
            self.epoch = epoch
        self.graph.replay()
        return step + self.steps
