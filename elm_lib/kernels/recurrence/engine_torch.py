"""The two loops over t in plain torch, for any number of layers and any device."""

from __future__ import annotations

import torch
from torch import Tensor

from elm_lib.kernels import affine
from elm_lib.kernels.recurrence import bptt


def forward_loop(p, m_all, kappa, gain_a, w_m, layers, activation: str, b: float, keep: bool) -> Tensor:
    """See `bptt.Loops`. Returns z_1 if it is to be kept; otherwise all steps share one row, which is not to be read."""
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
            elif activation == "relu2":
                torch.clamp_min(z, 0, out=h).square_()
            else:
                torch.mul(z, torch.sigmoid(z), out=h)
            z = torch.addmm(bias, h, weight, out=out)
        torch.tanh(z if b == 1 else torch.mul(z, b, out=tanh), out=tanh)
        torch.addcmul(u, tanh, gain_a, out=m_t[t + 1])
    return z_all


def reverse_loop(grad_m, errors, g_all, back_all, carry, kappa, w_m, weights) -> None:
    """See `bptt.backward_by`."""
    g_t, back_t, d_t, errors_t = g_all.unbind(), back_all.unbind(), grad_m.unbind(), [x.unbind() for x in errors]
    before = [x.new_empty(x.shape[1:]) for x in errors[:-1]]
    for t in range(len(g_t) - 1, -1, -1):
        g = torch.add(d_t[t], carry, out=g_t[t])
        e = errors_t[-1][t].mul_(g)
        for k in range(len(weights) - 1, -1, -1):
            e = errors_t[k][t].mul_(torch.mm(e, weights[k], out=before[k]))
        torch.mul(torch.addmm(g, e, w_m, out=back_t[t]), kappa, out=carry)


LOOPS = bptt.Loops(forward_loop, bptt.backward_by(reverse_loop))


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.kernels.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    return bptt.recur(p_tbh, m_0, kappa_m, gain, mlp, LOOPS)
