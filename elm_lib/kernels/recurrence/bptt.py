"""The recurrence with a hand-derived backward pass through time.

Forward keeps m and, in place of p, what the first layer gives before its activation (z_1 = p + W_m u: as large). Backward recomputes
every later activation from it for all t in a few large matrix products, runs one short reverse loop for the only quantity that is
sequential, dL/dm_t, and gets each weight gradient from one product. Long sequences are taken in chunks of time, from the last to the
first, so that only m, z_1 and their gradients are held for all t.

    g_t   = dL/dm_t + c_{t+1}                       c: what later steps send back
    e_t   = gain * g_t * f'(z_t)                    at the MLP's output
    h_t   = e_t W_L ... * act'(.) ... W_2 * act'(.) at the first layer, = dL/dp_t
    c_t   = kappa_m * (g_t + h_t W_m)

The two loops over t are plain torch here, for any l_mlp and device; `elm_lib.kernels.recurrence.engine_cpu` has them compiled. A forward loop may
give p itself back (`elm_lib.kernels.recurrence.engine_cuda`): then z_1 is computed again.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.kernels import affine
from elm_lib.kernels.traces import first_derivative, transformed

# numbers (of d_m + d_1 a step and sample) that backward holds each activation of at a time: on a CPU what its caches hold and its
# allocator keeps for the next chunk
CHUNK = {"cpu": 1 << 20, "cuda": 1 << 24}


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float, keep: bool) -> Tensor:
    """Fill m_all[1:] (T + 1, B, d_m) from m_all[0]; p (T, B, d_1). gain_a = a gain, f(z) = a tanh(b z). Returns z_1 like p, if it is to be kept."""
    weights, biases, w_mt = [w.T for w in layers[0::2]], layers[1::2], w_m.T.contiguous()
    u, tanh = torch.empty_like(m_all[:2]).unbind()
    hidden, sums = ([p.new_empty(p.shape[1], w.shape[k]) for w in weights] for k in (0, 1))
    z_all = affine.empty(p, *p.shape) if keep else torch.empty_like(p[:1]).expand(p.shape)
    m_t = m_all.unbind()  # views made once: indexing costs as much as the arithmetic
    for t, (p_t, z_t) in enumerate(zip(p.unbind(), z_all.unbind())):
        torch.mul(m_t[t], kappa, out=u)
        z = torch.addmm(p_t, u, w_mt, out=z_t)
        for weight, bias, h, out in zip(weights, biases, hidden, sums):
            if activation == "relu":
                torch.clamp_min(z, 0, out=h)
            else:
                torch.mul(z, torch.sigmoid(z), out=h)
            z = torch.addmm(bias, h, weight, out=out)
        torch.tanh(z if b == 1 else torch.mul(z, b, out=tanh), out=tanh)
        torch.addcmul(u, tanh, gain_a, out=m_t[t + 1])
    return z_all


def activations(z, slope, layers, activation: str, b: float, out: Tensor):
    """What each layer after the first reads, each layer's slope (the first's in out; slope: the last's tanh at 0), and the tanh."""
    inputs, slopes = [], []
    for k, (weight, bias) in enumerate(zip(layers[0::2], layers[1::2], strict=True)):
        activated, steep = _activate(activation, z, out if k == 0 else None)
        inputs.append(activated)
        slopes.append(steep)
        z = F.linear(activated, weight, bias)
    tanh = torch.tanh(z if b == 1 else b * z)
    slopes.append(torch.mul(slope, 1 - tanh * tanh, out=None if layers else out))
    return inputs, slopes, tanh


def reverse_loop(grad_m, errors, g_all, back_all, carry, kappa, w_m, weights) -> None:
    """Fill g_all and back_all, c_t / kappa_m (T, B, d_m), turn errors (slopes of every layer's output) into gradients there, leave
    dL/dm_0 in carry."""
    g_t, back_t, d_t, errors_t = g_all.unbind(), back_all.unbind(), grad_m.unbind(), [x.unbind() for x in errors]
    before = [x.new_empty(x.shape[1:]) for x in errors[:-1]]
    for t in range(len(g_t) - 1, -1, -1):
        g = torch.add(d_t[t], carry, out=g_t[t])
        e = errors_t[-1][t].mul_(g)
        for k in range(len(weights) - 1, -1, -1):
            e = errors_t[k][t].mul_(torch.mm(e, weights[k], out=before[k]))
        torch.mul(torch.addmm(g, e, w_m, out=back_t[t]), kappa, out=carry)


def in_two(reverse, kept: bool = True):
    """`backward_chunk` of an engine that has a reverse loop alone: activations for all t at once, then the loop. kept: whether its
    forward loop gives z_1, not p.

    z (z_1, or p), m_prev, grad_m (T, B, .); carry (B, d_m): in c of the step after, out dL/dm_0; slope (d_m,) = a b gain; grad_p is
    filled. Returns what each layer after the first reads, dL/d each layer's output, dL/dkappa, and the sum of g tanh, (d_m,) each.
    """

    def backward_chunk(z, m_prev, grad_m, carry, kappa, slope, w_m, layers, activation: str, b: float, grad_p):
        if not kept:
            z = torch.addmm(z.flatten(0, 1), (kappa * m_prev).flatten(0, 1), w_m.T).view_as(z)
        inputs, errors, tanh = activations(z, slope, layers, activation, b, grad_p)
        g_all, back_all = torch.empty_like(m_prev), torch.empty_like(m_prev)
        reverse(grad_m, errors, g_all, back_all, carry, kappa, w_m, layers[0::2])
        return inputs, errors, (m_prev * back_all).sum((0, 1)), (g_all * tanh).sum((0, 1))

    return backward_chunk


class Recurrence(torch.autograd.Function):
    """apply((forward_loop, backward_chunk), keep, p, m_0, kappa, gain, w_m, activation, (a, b), W_2, b_2, ...) -> (T, B, d_m).

    keep: whether backward will be asked for."""

    @staticmethod
    def forward(ctx, loops, keep, p, m_0, kappa, gain, w_m, activation, scale, *layers):
        a, b = scale
        p = p.contiguous()  # the loops take rows as they lie
        m_all = affine.empty(p, p.shape[0] + 1, *m_0.shape)  # row 0 is m_0: m_all[:-1] are the previous memories
        m_all[0] = m_0
        z = loops[0](p, m_all, kappa, a * gain, w_m, layers, activation, b, keep)
        ctx.save_for_backward(z, m_all, kappa, gain, w_m, *layers)
        ctx.loops, ctx.activation, ctx.scale = loops, activation, scale
        return m_all[1:]

    @staticmethod
    @first_derivative("engine='reference' has one")
    def backward(ctx, grad_m):
        z, m_all, kappa, gain, w_m, *layers = ctx.saved_tensors
        a, b = ctx.scale
        steps, batch, d_m = grad_m.shape
        grad_m, grad_p, carry = grad_m.contiguous(), affine.empty(z, *z.shape), m_all.new_zeros(batch, d_m)
        grad_kappa, g_tanh, grad_w_mt, *grad_layers = (x.new_zeros(x.shape) for x in (kappa, gain, w_m.T, *layers))
        chunk = max(1, CHUNK["cuda" if z.is_cuda else "cpu"] // max(1, batch * (d_m + z.shape[2])))
        for end in range(steps, 0, -chunk):
            at = slice(max(0, end - chunk), end)
            inputs, errors, *sums = ctx.loops[1](
                z[at], m_all[at], grad_m[at], carry, kappa, (a * b) * gain, w_m, layers, ctx.activation, b, grad_p[at]
            )
            grad_kappa.add_(sums[0])
            g_tanh.add_(sums[1])
            flat = [x.flatten(0, 1) for x in errors]
            for k, x in enumerate(inputs):
                grad_layers[2 * k].addmm_(flat[k + 1].T, x.flatten(0, 1))
                grad_layers[2 * k + 1].add_(flat[k + 1].sum(0))
            grad_w_mt.addmm_(m_all[at].flatten(0, 1).T, flat[0])
        return None, None, grad_p, carry, grad_kappa, a * g_tanh, grad_w_mt.T * kappa, None, None, *grad_layers


def _activate(name: str, z: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """act(z), and act'(z) written into out if given."""
    if name == "relu":
        activated = F.relu(z)
        return activated, torch.sign(activated, out=out)
    sigma = torch.sigmoid(z)
    return z * sigma, torch.mul(sigma, 1 + z * (1 - sigma), out=out)


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp, loops=None) -> Tensor:
    """See `elm_lib.kernels.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    if transformed():
        raise ValueError(
            "under torch.func.grad, vmap and their like: engine='reference' or 'auto' (argument or ELM_ENGINE)"
        )
    layers = [tensor for layer in mlp.layers for tensor in layer]
    loops = loops or (forward_loop, in_two(reverse_loop))
    return Recurrence.apply(
        loops, torch.is_grad_enabled(), p_tbh, m_0, kappa_m, gain, mlp.w_m, mlp.activation, mlp.scale, *layers
    )
