"""The kernels as operations of torch, which torch.compile places in its graph and does not look into.

elm_lib::input_half    `synapses.input_half` of a dense input; backward computes it once more
elm_lib::recurrence    the memory through all steps, by the engine that would run without torch.compile
"""

import torch
from torch import Tensor

from elm_lib.kernels.recurrence import MemoryMLP, loops_of
from elm_lib.kernels.recurrence.bptt import gradients, with_two_layers
from elm_lib.kernels.synapses import input_half


@torch.library.custom_op("elm_lib::input_half", mutates_args=())
def input_half_op(
    x: Tensor, s_0: Tensor, rate: Tensor, w_s: Tensor, d_brch: int, w_1: Tensor, b_1: Tensor, phi: str
) -> tuple[Tensor, Tensor]:
    p, s = input_half(x, s_0, rate, w_s, d_brch, w_1, b_1, phi)
    return p.contiguous(), s


@input_half_op.register_fake
def _(x, s_0, rate, w_s, d_brch, w_1, b_1, phi):
    return x.new_empty(x.shape[1], x.shape[0], w_1.shape[0]), torch.empty_like(s_0)


def _input_half_backward(
    grad_p: Tensor,
    grad_s: Tensor,
    tensors: list[Tensor],
    d_brch: int,
    phi: str,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of x, s_0, rate, w_s, w_1, b_1, of those that are wanted."""
    with torch.enable_grad():
        x, s_0, rate, w_s, w_1, b_1 = leaves = [t.detach().requires_grad_(w) for t, w in zip(tensors, wanted)]
        out = input_half(x, s_0, rate, w_s, d_brch, w_1, b_1, phi)
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        along = [(y, grad) for y, grad in zip(out, (grad_p, grad_s)) if y.requires_grad]
        found = torch.autograd.grad([y for y, _ in along], asked, [grad for _, grad in along], materialize_grads=True)
    return [grad.clone(memory_format=torch.contiguous_format) for grad in found]


# Not a custom_op, which would run it below autograd: it differentiates.
LIBRARY = torch.library.Library("elm_lib", "FRAGMENT")
LIBRARY.define(f"input_half_backward{torch.library.infer_schema(_input_half_backward, mutates_args=())}")
LIBRARY.impl("input_half_backward", _input_half_backward, "CompositeExplicitAutograd")
LIBRARY.impl("input_half_backward", torch.library.fallthrough_kernel, "Autograd")


@torch.library.register_fake("elm_lib::input_half_backward", lib=LIBRARY)
def _(grad_p, grad_s, tensors, d_brch, phi, wanted):
    return [t.new_empty(t.shape) for t, w in zip(tensors, wanted) if w]


def _keep_inputs(ctx, inputs, output):
    x, s_0, rate, w_s, d_brch, w_1, b_1, phi = inputs
    ctx.save_for_backward(x, s_0, rate, w_s, w_1, b_1)
    ctx.d_brch, ctx.phi = d_brch, phi


def _input_half_gradients(ctx, grad_p, grad_s):
    wanted = [ctx.needs_input_grad[k] for k in (0, 1, 2, 3, 5, 6)]
    backward = torch.ops.elm_lib.input_half_backward
    found = iter(backward(grad_p, grad_s, list(ctx.saved_tensors), ctx.d_brch, ctx.phi, wanted))
    x, s_0, rate, w_s, w_1, b_1 = (next(found) if w else None for w in wanted)
    return x, s_0, rate, w_s, None, w_1, b_1, None


input_half_op.register_autograd(_input_half_gradients, setup_context=_keep_inputs)


@torch.library.custom_op("elm_lib::recurrence", mutates_args=())
def recurrence_op(
    p: Tensor,
    m_0: Tensor,
    kappa: Tensor,
    gain: Tensor,
    w_m: Tensor,
    layers: list[Tensor],
    activation: str,
    a: float,
    b: float,
    engine: str,
) -> tuple[Tensor, Tensor]:
    """m_0 .. m_T (T + 1, B, d_m), and z_1 (T, B, d_1) or, of an engine that keeps p, nothing."""
    loops, mlp = _chosen(p, w_m, layers, activation, (a, b), engine)
    m_all = p.new_empty(p.shape[0] + 1, *m_0.shape)
    m_all[0] = m_0
    flat = [tensor for layer in mlp.layers for tensor in layer]
    p = p.contiguous()
    z = loops.forward(p, m_all, kappa, a * gain, mlp.w_m, flat, mlp.activation, b, True)
    return m_all, z.clone() if z.data_ptr() == p.data_ptr() else z


@recurrence_op.register_fake
def _(p, m_0, kappa, gain, w_m, layers, activation, a, b, engine):
    return p.new_empty(p.shape[0] + 1, *m_0.shape), p.new_empty(p.shape)


@torch.library.custom_op("elm_lib::recurrence_backward", mutates_args=())
def recurrence_backward(
    grad_m: Tensor,
    z: Tensor,
    m_all: Tensor,
    kappa: Tensor,
    gain: Tensor,
    w_m: Tensor,
    layers: list[Tensor],
    activation: str,
    a: float,
    b: float,
    engine: str,
) -> list[Tensor]:
    """dL/d p, m_0, kappa, gain, w_m and each of layers."""
    loops, mlp = _chosen(z, w_m, layers, activation, (a, b), engine)
    flat = [tensor for layer in mlp.layers for tensor in layer]
    found = gradients(loops, grad_m[1:], z, m_all, kappa, gain, mlp.w_m, flat, mlp.activation, (a, b))
    found[1] = found[1] + grad_m[0]
    return [grad.contiguous() for grad in found[: 5 + len(layers)]]


@recurrence_backward.register_fake
def _(grad_m, z, m_all, kappa, gain, w_m, layers, activation, a, b, engine):
    return [t.new_empty(t.shape) for t in (z, m_all[0], kappa, gain, w_m, *layers)]


def _keep(ctx, inputs, output):
    _, _, kappa, gain, w_m, layers, activation, a, b, engine = inputs
    m_all, z = output
    ctx.save_for_backward(z, m_all, kappa, gain, w_m, *layers)
    ctx.rest = activation, a, b, engine
    ctx.set_materialize_grads(True)


def _recurrence_gradients(ctx, grad_m, grad_z):
    z, m_all, kappa, gain, w_m, *layers = ctx.saved_tensors
    found = recurrence_backward(grad_m, z, m_all, kappa, gain, w_m, layers, *ctx.rest)
    return *found[:5], found[5:], None, None, None, None


recurrence_op.register_autograd(_recurrence_gradients, setup_context=_keep)


def _chosen(p: Tensor, w_m: Tensor, layers: list[Tensor], activation: str, scale: tuple[float, float], engine: str):
    """The loops of an engine, and the MLP as they take it."""
    mlp = MemoryMLP(w_m, list(zip(layers[::2], layers[1::2])), activation, scale)
    name, loops = loops_of(engine, p, mlp)
    return loops, mlp if name == "torch" else with_two_layers(mlp)
