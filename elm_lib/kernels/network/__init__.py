"""N neurons side by side that hear each other: one function, several engines, the same results.

    q_t  = kappa_q * q_{t-1} + what a_{t-1} sends          feedback
    u_t  = kappa_m * m_{t-1}
    z_t  = MLP_n([b_t, u_t])       of each neuron n its own; what the input adds, p_t, arrives computed for all t
    m_t  = u_t + gain * f(z_t)
    y_t  = w_r m_t                 one number a neuron
    r_t  = kappa_r * r_{t-1} + (1 - kappa_r) * y_t         moving average; y_t - r_t is a high-pass
    a_t  = out(y_t - r_t + b_r)

This is `elm_lib.kernels.recurrence` for many neurons at once. Neurons lie in the last dimension: each line above is the
same arithmetic with other weights for each of them, so a step is a few batched products.

Engines
    reference   plain autograd, step by step, for any dtype; it has second derivatives. The specification.
    torch       backpropagation through time by hand, as batched products, on any device.
    cpu         the same compiled by numba: at most one hidden layer, one decay for all feedback. Needs numba.
"auto" takes the fastest. The environment variable ELM_ENGINE chooses for a whole process; its `cuda` is `torch` here.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from elm_lib.kernels.autograd import transformed
from elm_lib.kernels.network.parts import OUTPUTS, Ensemble, Feedback, Masks, Past, Run
from elm_lib.kernels.optional import say_that_numba_is_missing, there
from elm_lib.kernels.recurrence.engine_reference import ACTIVATIONS

ENGINES = ("reference", "torch", *(["cpu"] if there("numba") else []))

__all__ = ["ACTIVATIONS", "ENGINES", "OUTPUTS", "Ensemble", "Feedback", "Masks", "Past", "Run", "run"]


def run(
    p: Tensor,
    past: Past,
    ensemble: Ensemble,
    feedback: Feedback | None = None,
    masks: Masks | None = None,
    lengths: Tensor | None = None,
    engine: str = "auto",
) -> Run:
    """Run a layer over a whole sequence. q_0 is 0.

    p        (T, B, d_1, N)  what the first layer gets from the input, bias included
    lengths  (B,) int64      steps of each sample, 0 too; None: all T
    Raises   ValueError      an unknown engine, or one that cannot run these tensors

    Under autocast all stays in the parameters' dtype: p is cast to it.
    """
    name = _named(engine, p, ensemble, feedback)
    with nullcontext() if p.is_meta else torch.autocast(p.device.type, enabled=False):
        return _module(name).run(p.to(ensemble.kappa_m.dtype), past, ensemble, feedback, masks or Masks(), lengths)


@cache
def _module(name: str) -> Any:
    return import_module(f"elm_lib.kernels.network.engine_{name}")


def _named(engine: str, p: Tensor, ensemble: Ensemble, feedback: Feedback | None) -> str:
    """The engine that runs. Raises ValueError for an unknown one."""
    name = (os.environ.get("ELM_ENGINE") or "auto") if engine == "auto" else engine
    if engine == "auto" and name == "cuda":
        name = "torch"
    if name == "auto" and transformed():
        name = "reference"  # plain torch, which torch.func can transform
    if name == "auto":
        name = "torch"
        if p.device.type == "cpu" and "cpu" not in ENGINES:
            say_that_numba_is_missing()
        elif p.device.type == "cpu" and _module("cpu").serves(p, ensemble, feedback):
            name = "cpu"
    if name not in ENGINES:
        raise ValueError(f"engine={name!r} (argument or ELM_ENGINE): choose one of {sorted(ENGINES)} or 'auto'")
    return name
