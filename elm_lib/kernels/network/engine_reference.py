"""A layer as `elm_lib.kernels.network` writes it, one step after another, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.kernels.autograd import first_derivative
from elm_lib.kernels.network.parts import SHARPNESS, Ensemble, Feedback, Masks, Past, Run, nothing_sent
from elm_lib.kernels.recurrence.engine_reference import ACTIVATIONS


class Spike(torch.autograd.Function):
    """1 where x > 0, else 0 (NaN stays NaN). Its surrogate derivative is 1 / (1 + sharpness |x|)^2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, sharpness: float) -> Tensor:
        return torch.where(x.isnan(), x, (x > 0).to(x.dtype))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.sharpness = inputs[1]

    @staticmethod
    @first_derivative("a spike has a surrogate gradient alone")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + ctx.sharpness * x.abs()).square(), None


def out(x: Tensor, name: str) -> Tensor:
    """One of `OUTPUTS` of x."""
    return x if name == "identity" else F.relu(x) if name == "relu" else Spike.apply(x, SHARPNESS)


def step(
    p: Tensor, past: Past, q: Tensor | None, e: Ensemble, feedback: Feedback | None, masks: Masks
) -> tuple[Past, Tensor | None]:
    """One step: p (B, d_1, N), the state and q before it -> the state and q after it."""
    z = p
    if feedback is not None and q is not None:
        sent = past.a if masks.a is None else masks.a * past.a
        if feedback.send is None:
            q = feedback.kappa * q + sent  # (B, N)
            z = z + torch.einsum("bj,jhn->bhn", q, feedback.read)
        else:
            q = feedback.kappa * q + torch.einsum("bj,jkn->bkn", sent, feedback.send)  # (B, d_tree, N)
            z = z + torch.einsum("bkn,hkn->bhn", q, feedback.read)
    u = e.kappa_m * past.m
    z = z + torch.einsum("bin,hin->bhn", u, e.w_m)
    for weight, bias in e.layers:
        z = torch.einsum("bin,oin->bon", ACTIVATIONS[e.activation](z), weight) + bias
    z = z if masks.z is None else masks.z * z
    a, b = e.scale
    m = u + e.gain * (a * torch.tanh(b * z))
    y = (e.w_r * m).sum(1)
    r = e.kappa_r * past.r + (1 - e.kappa_r) * y
    return Past(m, r, out(y - r + e.b_r, e.output)), q


def run(p: Tensor, past: Past, e: Ensemble, feedback: Feedback | None, masks: Masks, lengths: Tensor | None) -> Run:
    """See `elm_lib.kernels.network.run`."""
    q, outputs = nothing_sent(past, feedback), []
    for t, p_t in enumerate(p):
        after, q_after = step(p_t, past, q, e, feedback, masks)
        if lengths is None:
            outputs.append(after.a)
        else:
            here = (t < lengths).view(-1, 1)  # (B, 1)
            outputs.append(torch.where(here, after.a, 0.0))
            after = Past(*(_kept(here, *pair) for pair in zip(after, past)))
            q_after = None if q is None or q_after is None else _kept(here, q_after, q)
        past, q = after, q_after
    return Run(torch.stack(outputs) if outputs else p.new_zeros(0, *past.a.shape), past, q)


def _kept(here: Tensor, after: Tensor, before: Tensor) -> Tensor:
    return torch.where(here.view(-1, *[1] * (after.dim() - 1)), after, before)
