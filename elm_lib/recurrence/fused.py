"""The recurrence with a hand-derived backward pass through time, in plain torch.

Forward keeps m alone. Backward recomputes every activation from m for all t in a few large matrix products, runs one
short reverse loop for the only quantity that is sequential, dL/dm_t, and gets each weight gradient from one product.

    g_t   = dL/dm_t + c_{t+1}                       c: what later steps send back
    e_t   = gain * g_t * f'(z_t)                    at the MLP's output
    h_t   = e_t W_L ... * act'(.) ... W_2 * act'(.) at the first layer, = dL/dp_t
    c_t   = kappa_m * (g_t + h_t W_m)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def _activation_derivative(name: str, z: Tensor) -> Tensor:
    if name == "relu":
        return (z > 0).to(z.dtype)
    sigma = torch.sigmoid(z)
    return sigma * (1 + z * (1 - sigma))


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, m_0, kappa, gain, w_m, activation, scale, *layers):
        a, b = scale
        act_ = F.relu_ if activation == "relu" else lambda z: z.mul_(torch.sigmoid(z))
        weights, biases = [w.T for w in layers[0::2]], layers[1::2]
        steps, batch, _ = p.shape
        m_all = p.new_empty((steps + 1, batch, m_0.shape[1]))  # row 0 is m_0: m_all[:-1] are the previous memories
        m_all[0] = m_0
        u, w_mt, gain_a = torch.empty_like(m_all[0]), w_m.T.contiguous(), gain * a
        h = [p.new_empty(batch, w.shape[1]) for w in (w_mt, *weights)]
        m_t = m_all.unbind()  # views made once: indexing costs as much as the arithmetic
        for t, p_t in enumerate(p.unbind()):
            torch.mul(m_t[t], kappa, out=u)
            z = torch.addmm(p_t, u, w_mt, out=h[0])
            for k, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
                z = torch.addmm(bias, act_(z), weight, out=h[k])
            if b != 1:
                z.mul_(b)
            torch.addcmul(u, z.tanh_(), gain_a, out=m_t[t + 1])
        ctx.save_for_backward(p, m_all, kappa, gain, w_m, *layers)
        ctx.activation, ctx.scale = activation, scale
        return m_all[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_m):
        p, m_all, kappa, gain, w_m, *layers = ctx.saved_tensors
        a, b = ctx.scale
        weights = layers[0::2]
        act = F.relu if ctx.activation == "relu" else F.silu
        m_prev = m_all[:-1]
        steps, batch, d_m = m_prev.shape

        # every activation of every step, from m alone
        u = kappa * m_prev
        z = p + u @ w_m.T
        inputs, slopes = [u], []
        for weight, bias in zip(weights, layers[1::2], strict=True):
            slopes.append(_activation_derivative(ctx.activation, z))
            inputs.append(act(z))
            z = F.linear(inputs[-1], weight, bias)
        tanh = torch.tanh(b * z)
        d_out = (a * b) * gain * (1 - tanh * tanh)  # dm_t/dz_t

        # the reverse loop: gradients at each layer's output, written in place of its slope
        g_all = torch.empty_like(m_prev)
        carry = m_prev.new_zeros(batch, d_m)
        errors = [*slopes, d_out]
        g_t, d_t, errors_t = g_all.unbind(), grad_m.unbind(), [x.unbind() for x in errors]
        for t in range(steps - 1, -1, -1):
            g = torch.add(d_t[t], carry, out=g_t[t])
            e = errors_t[-1][t].mul_(g)
            for k in range(len(weights) - 1, -1, -1):
                e = errors_t[k][t].mul_(e @ weights[k])
            torch.addmm(g, e, w_m, out=carry).mul_(kappa)

        flat = [x.reshape(steps * batch, x.shape[-1]) for x in errors]
        grad_layers = []
        for k in range(len(weights)):
            source = inputs[k + 1].reshape(steps * batch, -1)
            grad_layers += [flat[k + 1].T @ source, flat[k + 1].sum(0)]
        grad_p = errors[0]
        grad_kappa = (m_prev * (g_all + grad_p @ w_m)).sum((0, 1))
        grad_gain = a * (g_all * tanh).sum((0, 1))
        grad_w_m = flat[0].T @ u.reshape(steps * batch, d_m)
        return grad_p, carry, grad_kappa, grad_gain, grad_w_m, None, None, *grad_layers


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    layers = [tensor for layer in mlp.layers for tensor in layer]
    return _Recurrence.apply(p_tbh, m_0, kappa_m, gain, mlp.w_m, mlp.activation, mlp.scale, *layers)
