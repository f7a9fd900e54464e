"""Backpropagation through time by hand: what the engines torch, cpu and cuda share.

Forward keeps m and, in place of p, what the first layer gives before its activation: z_1 = p + W_m u. Backward
computes every later activation from it, for all t in a few large products. Only dL/dm_t runs step by step, in a short
loop from the last step to the first. Each weight gradient is one product. Long sequences are taken in chunks of time,
from the last to the first, so that only m, z_1 and their gradients are held for all t.

    g_t   = dL/dm_t + c_{t+1}                       c: what later steps send back
    e_t   = gain * g_t * f'(z_t)                    at the MLP's output
    h_t   = e_t W_L ... * act'(.) ... W_2 * act'(.) at the first layer, = dL/dp_t
    c_t   = kappa_m * (g_t + h_t W_m)

An engine brings the two loops over t (`Loops`). Its forward loop may return p, as that of `engine_cuda` does. Then
backward computes z_1 again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.kernels import affine
from elm_lib.kernels.autograd import first_derivative, transformed

# Numbers in a chunk of time, d_m + d_1 a step and sample. On a CPU as many as its caches hold.
CHUNK = {"cpu": 1 << 20, "cuda": 1 << 24}
ACTIVATIONS = ("relu", "silu", "identity", "relu2")  # compiled loops know an activation by its place here


class Loops(NamedTuple):
    """The two loops over t of an engine. gain_a = a gain, where f(z) = a tanh(b z); layers is W_2, b_2, W_3, ...

    forward(p, m_all, kappa, gain_a, w_m, layers, activation, b, keep) -> z
        fills m_all[1:] (T + 1, B, d_m) from m_all[0] and p (T, B, d_1)
        keep: whether backward will ask for z (T, B, d_1), which is z_1 or p
    backward(z, m_prev, grad_m, carry, kappa, slope, w_m, layers, activation, b, grad_p)
            -> inputs, errors, grad_kappa, g_tanh
        z, m_prev, grad_m (T, B, .): a chunk of time; slope (d_m,) = a b gain; fills grad_p (T, B, d_1)
        carry (B, d_m): c of the step after the chunk; on return c of its first step, at t = 1 dL/dm_0
        inputs: what each layer after the first reads; errors: dL/d each layer's output, that of the first in grad_p
        grad_kappa: dL/dkappa (d_m,); g_tanh: the sum of g tanh (d_m,)
    """

    forward: Callable
    backward: Callable


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp, loops: Loops) -> Tensor:
    """`elm_lib.kernels.recurrence.recurrence` with these loops: (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m).

    Raises ValueError inside torch.func.
    """
    if transformed():
        raise ValueError(
            "under torch.func.grad, vmap and their like: choose engine='reference' or 'auto' (argument or ELM_ENGINE)"
        )
    layers = [tensor for layer in mlp.layers for tensor in layer]
    return Recurrence.apply(
        loops, torch.is_grad_enabled(), p_tbh, m_0, kappa_m, gain, mlp.w_m, mlp.activation, mlp.scale, *layers
    )


def with_two_layers(mlp):
    """The same MLP for loops that have a second layer: f(z) is f(I z) where there is none."""
    if mlp.layers:
        return mlp
    d_m, w_m = mlp.w_m.shape[1], mlp.w_m
    same = torch.eye(d_m, dtype=w_m.dtype, device=w_m.device)
    return mlp._replace(layers=[(same, w_m.new_zeros(d_m))], activation="identity")


class Recurrence(torch.autograd.Function):
    """apply(loops, keep, p, m_0, kappa, gain, w_m, activation, (a, b), W_2, b_2, ...) -> (T, B, d_m).

    keep: whether backward will be asked for.
    """

    @staticmethod
    def forward(ctx, loops: Loops, keep: bool, p, m_0, kappa, gain, w_m, activation: str, scale, *layers):
        a, b = scale
        p = p.contiguous()  # the loops take rows as they lie
        m_all = affine.empty(p, p.shape[0] + 1, *m_0.shape)  # row 0 is m_0: m_all[:-1] are the previous memories
        m_all[0] = m_0
        z = loops.forward(p, m_all, kappa, a * gain, w_m, layers, activation, b, keep)
        ctx.save_for_backward(z, m_all, kappa, gain, w_m, *layers)
        ctx.loops, ctx.activation, ctx.scale = loops, activation, scale
        return m_all[1:]

    @staticmethod
    @first_derivative("choose engine='reference', which has one")
    def backward(ctx, grad_m):
        z, m_all, kappa, gain, w_m, *layers = ctx.saved_tensors
        grads = gradients(ctx.loops, grad_m, z, m_all, kappa, gain, w_m, layers, ctx.activation, ctx.scale)
        return None, None, *grads[:5], None, None, *grads[5:]


def gradients(
    loops: Loops, grad_m: Tensor, z, m_all, kappa, gain, w_m, layers: list[Tensor], activation: str, scale
) -> list[Tensor]:
    """dL/d p, m_0, kappa, gain, w_m and each of layers, from grad_m = dL/dm (T, B, d_m) and what forward has kept."""
    a, b = scale
    steps, batch, d_m = grad_m.shape
    grad_m, grad_p, carry = grad_m.contiguous(), affine.empty(z, *z.shape), m_all.new_zeros(batch, d_m)
    grad_kappa, g_tanh, grad_w_mt, *grad_layers = (x.new_zeros(x.shape) for x in (kappa, gain, w_m.T, *layers))
    chunk = max(1, CHUNK["cuda" if z.is_cuda else "cpu"] // max(1, batch * (d_m + z.shape[2])))
    for end in range(steps, 0, -chunk):
        at = slice(max(0, end - chunk), end)
        inputs, errors, *sums = loops.backward(
            z[at], m_all[at], grad_m[at], carry, kappa, (a * b) * gain, w_m, layers, activation, b, grad_p[at]
        )
        grad_kappa.add_(sums[0])
        g_tanh.add_(sums[1])
        flat = [x.flatten(0, 1) for x in errors]
        for k, x in enumerate(inputs):
            grad_layers[2 * k].addmm_(flat[k + 1].T, x.flatten(0, 1))
            grad_layers[2 * k + 1].add_(flat[k + 1].sum(0))
        grad_w_mt.addmm_(m_all[at].flatten(0, 1).T, flat[0])
    return [grad_p, carry, grad_kappa, a * g_tanh, grad_w_mt.T * kappa, *grad_layers]


def backward_by(reverse: Callable, keeps_z: bool = True) -> Callable:
    """`Loops.backward` of an engine that has a reverse loop alone: activations for all t at once, then that loop.

    keeps_z: whether the engine's forward loop returns z_1, not p.
    reverse(grad_m, errors, g_all, back_all, carry, kappa, w_m, weights) gets each layer's slopes in errors and turns
    them into dL/d each layer's output. It fills g_all with g_t and back_all with c_t / kappa_m, (T, B, d_m) each, and
    updates carry.
    """

    def backward(z, m_prev, grad_m, carry, kappa, slope, w_m, layers, activation: str, b: float, grad_p):
        if not keeps_z:
            z = torch.addmm(z.flatten(0, 1), (kappa * m_prev).flatten(0, 1), w_m.T).view_as(z)
        inputs, errors, tanh = _activations(z, slope, layers, activation, b, grad_p)
        g_all, back_all = torch.empty_like(m_prev), torch.empty_like(m_prev)
        reverse(grad_m, errors, g_all, back_all, carry, kappa, w_m, layers[0::2])
        return inputs, errors, (m_prev * back_all).sum((0, 1)), (g_all * tanh).sum((0, 1))

    return backward


def _activations(z, slope, layers, activation: str, b: float, out: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What each layer after the first reads, each layer's slope (the first layer's in out), and the tanh.

    slope: the last layer's slope where tanh is 0.
    """
    inputs, slopes = [], []
    for k, (weight, bias) in enumerate(zip(layers[0::2], layers[1::2], strict=True)):
        activated, steep = activate(activation, z, out if k == 0 else None)
        inputs.append(activated)
        slopes.append(steep)
        z = F.linear(activated, weight, bias)
    tanh = torch.tanh(z if b == 1 else b * z)
    slopes.append(torch.mul(slope, 1 - tanh * tanh, out=None if layers else out))
    return inputs, slopes, tanh


def activate(name: str, z: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """act(z), and act'(z) written into out if given."""
    if name == "identity":
        return z, torch.ones_like(z) if out is None else out.fill_(1)
    if name == "relu":
        activated = F.relu(z)
        return activated, torch.sign(activated, out=out)
    if name == "relu2":
        activated = F.relu(z)
        return activated.square(), torch.mul(activated, 2, out=out)
    sigma = torch.sigmoid(z)
    return z * sigma, torch.mul(sigma, 1 + z * (1 - sigma), out=out)
