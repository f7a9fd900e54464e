"""The recurrence through m: one function, several engines, the same results.

    u_t  = kappa_m * m_{t-1}
    z_t  = MLP([s_t, u_t])          the half that s_t feeds, p_t, arrives already computed for all t
    m_t  = kappa_m * m_{t-1} + gain * f(z_t)

Everything else of the neuron (synapses, branches, the input half of the MLP, the read-out) does not depend on m and
runs over all t at once (`elm_lib.kernels.synapses`). This is the only loop over t, and the only function to replace.

Engines
    reference   plain autograd, step by step, for any dtype; it has second derivatives. The specification.
    torch       backpropagation through time by hand (`bptt`), with loops in plain torch.
    cpu         the same with loops compiled by numba: at most one hidden layer, CPU. Needs numba.
    cuda        the same with loops as Triton kernels: at most one hidden layer, GPU. Needs triton.
Choose one by argument, or for a whole process with the environment variable ELM_ENGINE. "auto" takes the fastest.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elm_lib.kernels.autograd import transformed
from elm_lib.kernels.optional import say_that_numba_is_missing, there
from elm_lib.kernels.recurrence import engine_reference, engine_torch
from elm_lib.kernels.recurrence.bptt import Loops
from elm_lib.kernels.recurrence.engine_reference import ACTIVATIONS

SCALES = {"tanh": (1.0, 1.0), "scaled": (1.7159, 2.0 / 3.0)}  # (a, b) of f(z) = a tanh(b z)
PLAIN = {"reference": engine_reference.recur, "torch": engine_torch.recur}
# numba is optional for the library alone, triton comes with torch's CUDA builds
COMPILED = tuple(name for name, package in (("cuda", "triton"), ("cpu", "numba")) if there(package))
ENGINES = (*PLAIN, *COMPILED)


__all__ = ["ACTIVATIONS", "COMPILED", "ENGINES", "SCALES", "MemoryMLP", "loops_of", "recurrence"]


class MemoryMLP(NamedTuple):
    """The part of MLP_{w_p} that depends on m.

    w_m     (d_1, d_m)      columns of the first layer that read u_t; d_1 = d_mlp, or d_m if l_mlp = 0
    layers  [(W, b), ...]   the layers after the first: l_mlp of them, the last one ends in d_m
    activation              "relu" or "silu", after every layer but the last
    scale   (a, b)          f(z) = a tanh(b z): one of SCALES
    """

    w_m: Tensor
    layers: list[tuple[Tensor, Tensor]]
    activation: str
    scale: tuple[float, float]


def recurrence(
    p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp: MemoryMLP, engine: str = "auto"
) -> Tensor:
    """Run the memory over a whole sequence.

    p_tbh    (T, B, d_1)   input half of the MLP's first layer, bias included
    m_0      (B, d_m)      memory before the first step
    kappa_m  (d_m,)        decay a step, exp(-delta_t / tau_m)
    gain     (d_m,)        lambda (1 - kappa_m), or 1 - kappa_lambda in the improved update
    Returns  (T, B, d_m)   m_1 ... m_T
    Raises   ValueError    an unknown engine, or one that cannot run these tensors.

    Under autocast the memory stays in the parameters' dtype: p_tbh is cast to it.
    """
    name = _named(engine, p_tbh, mlp)
    with nullcontext() if p_tbh.is_meta else torch.autocast(p_tbh.device.type, enabled=False):
        run = PLAIN[name] if name in PLAIN else _compiled(name).recur
        return run(p_tbh.to(kappa_m.dtype), m_0, kappa_m, gain, mlp)


@cache
def _compiled(name: str) -> Any:
    """The module of a compiled engine, which takes long to import."""
    return import_module(f"elm_lib.kernels.recurrence.engine_{name}")


def _named(engine: str, p_tbh: Tensor, mlp: MemoryMLP) -> str:
    """The engine that runs. Raises ValueError for an unknown one."""
    name = (os.environ.get("ELM_ENGINE") or "auto") if engine == "auto" else engine
    if name == "auto" and transformed():
        name = "reference"  # plain torch, which torch.func can transform
    if name == "auto":
        name = p_tbh.device.type if p_tbh.device.type in COMPILED else "torch"
        if name != "torch" and not _compiled(name).serves(p_tbh, mlp):
            name = "torch"
        if p_tbh.device.type == "cpu" and "cpu" not in COMPILED:
            say_that_numba_is_missing()
    if name not in ENGINES:
        raise ValueError(f"engine={name!r} (argument or ELM_ENGINE): choose one of {sorted(ENGINES)} or 'auto'")
    return name


def loops_of(engine: str, p_tbh: Tensor, mlp: MemoryMLP) -> tuple[str, Loops]:
    """The name and the two loops of an engine; those of `torch` for `reference`, which has none."""
    name = _named(engine, p_tbh, mlp)
    return ("torch", engine_torch.LOOPS) if name in PLAIN else (name, _compiled(name).LOOPS)
