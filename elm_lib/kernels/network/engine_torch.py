"""A layer by batched products, differentiated by hand, on any device.

Inside, a number of neuron n lies at (N, B, .), as torch.baddbmm takes it. Forward keeps memories, outputs, what the
first layer gives before its activation and, of what feeds back, the traces. Backward computes later activations from
that, for all t at once. Only what a step sends back to the one before runs step by step:

    dL/dx_t  = (dL/da_t + what a_t sends) * out'(x_t)                         x: what `out` reads
    dL/dr_t  = c_r - dL/dx_t,  dL/dy_t = dL/dx_t + (1 - kappa_r) dL/dr_t      c_r = kappa_r dL/dr_{t+1}
    g_t      = dL/dm_t = c_m + w_r dL/dy_t                                    c: what later steps send back
    e_t      = gain g_t f'(z_t)                                               at the MLP's output
    h_t      = e_t W_L .. act'(.) .. W_2 act'(.)                              at the first layer, = dL/dp_t
    c_m      = kappa_m (g_t + h_t W_m),  dL/dq_t = c_q + h_t W_read,  c_q = kappa_q dL/dq_t
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from elm_lib.kernels.autograd import first_derivative, transformed
from elm_lib.kernels.network.parts import SHARPNESS, Ensemble, Feedback, Masks, Past, Run
from elm_lib.kernels.recurrence.bptt import activate


class Wires(NamedTuple):
    """`Feedback` as products take it: traces q are (1 or N, B, K), read (N, K, d_1)."""

    kappa: Tensor  # (), or (N, 1, K)
    send: Tensor | None  # (J, N K)
    read: Tensor  # (N, K, d_1)

    def sent(self, a: Tensor) -> Tensor:
        """What outputs a (B, J) add to the traces."""
        if self.send is None:
            return a.unsqueeze(0)
        return (a @ self.send).view(len(a), len(self.read), -1).transpose(0, 1)

    def back(self, dq: Tensor) -> Tensor:
        """dL/da (B, J) of `sent`, from dL/d its result."""
        return dq[0] if self.send is None else dq.transpose(0, 1).flatten(1) @ self.send.T


def run(p: Tensor, past: Past, e: Ensemble, feedback: Feedback | None, masks: Masks, lengths: Tensor | None) -> Run:
    """See `elm_lib.kernels.network.run`. Raises ValueError inside torch.func."""
    if transformed():
        raise ValueError(
            "under torch.func.grad, vmap and their like: choose engine='reference' or 'auto' (argument or ELM_ENGINE)"
        )
    kappa_q, send, read = feedback or (None, None, None)
    layers = [tensor for layer in e.layers for tensor in layer]
    fixed = e.activation, e.scale, e.kappa_r, e.output, masks, lengths, torch.is_grad_enabled()
    a, m, r, last, q = Layer.apply(
        fixed, p, *past, e.kappa_m, e.gain, e.w_m, e.w_r, e.b_r, kappa_q, send, read, *layers
    )
    return Run(a, Past(m, r, last), None if feedback is None else q)


def _wires(kappa: Tensor, send: Tensor | None, read: Tensor) -> Wires:
    if send is None:
        return Wires(kappa, None, read.permute(2, 0, 1).contiguous())  # (J, d_1, N) -> (N, J, d_1)
    sources = send.permute(0, 2, 1).flatten(1).contiguous()  # (J, K, N) -> (J, N K)
    return Wires(kappa.T.unsqueeze(1).contiguous(), sources, read.permute(2, 1, 0).contiguous())  # (d_1, K, N)


def out_and_slope(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """One of `OUTPUTS` of x, and its derivative, for a spike the surrogate one."""
    if name == "identity":
        return x, torch.ones_like(x)
    if name == "relu":
        a = torch.relu(x)
        return a, torch.sign(a)
    return torch.where(x.isnan(), x, (x > 0).to(x.dtype)), (1 + SHARPNESS * x.abs()).square().reciprocal()


class Layer(torch.autograd.Function):
    """apply(fixed, p, m_0, r_0, a_0, kappa_m, gain, w_m, w_r, b_r, kappa_q, send, read, W_2, b_2, ...)
    -> a (T, B, N); m, r, a and q after each sample's last step."""

    @staticmethod
    def forward(
        ctx, fixed: tuple[Any, ...], p, m_0, r_0, a_0, kappa, gain, w_m, w_r, b_r, kappa_q, send, read, *layers
    ):
        activation, (a_scale, b_scale), kappa_r, output, masks, lengths, keep = fixed
        steps, batch = p.shape[:2]
        n = p.shape[3]
        p_all = p.permute(0, 3, 1, 2).contiguous()  # (T, N, B, d_1)
        weights, biases = _per_neuron(layers)
        decay, most = kappa.T.unsqueeze(1).contiguous(), (a_scale * gain).T.unsqueeze(1)  # (N, 1, d_m)
        w_mt, w_read = w_m.permute(2, 1, 0).contiguous(), w_r.T.unsqueeze(1)  # (N, d_m, d_1), (N, 1, d_m)
        mask_z = None if masks.z is None else masks.z.permute(2, 0, 1)
        wires = None if read is None else _wires(kappa_q, send, read)
        m = m_0.permute(2, 0, 1).contiguous()  # (N, B, d_m)
        r, a = r_0.T.contiguous(), a_0  # (N, B), (B, N)
        q = p.new_zeros(1 if send is None else n, batch, 0 if wires is None else wires.read.shape[1])
        m_all, z_all, x_all, a_all, r_all, q_all = [m], [], [], [a], [r], []
        for p_t in p_all.unbind():
            z = p_t
            if wires is not None:
                q = wires.kappa * q + wires.sent(a if masks.a is None else a * masks.a)
                z = torch.baddbmm(z, q.expand(n, -1, -1), wires.read)
                q_all.append(q)
            u = decay * m
            z = torch.baddbmm(z, u, w_mt)
            z_all.append(z)
            for weight, bias in zip(weights, biases):
                z = torch.baddbmm(bias, activate(activation, z)[0], weight.transpose(1, 2))
            z = z if mask_z is None else z * mask_z
            m = torch.addcmul(u, torch.tanh(z if b_scale == 1 else b_scale * z), most)
            y = (m * w_read).sum(2)  # (N, B)
            r = kappa_r * r + (1 - kappa_r) * y
            x = (y - r).T + b_r  # (B, N)
            a = out_and_slope(x, output)[0]
            m_all.append(m)
            r_all.append(r)
            x_all.append(x)
            a_all.append(a)
        m, r, a, q_last = m_all[-1], r_all[-1], a_all[-1], q_all[-1] if q_all else q
        if lengths is not None:
            at, own = lengths, torch.arange(batch, device=p.device)
            m, a = torch.stack(m_all)[at, :, own].transpose(0, 1), torch.stack(a_all)[at, own]
            r = torch.stack(r_all)[at, :, own].T
            if wires is not None:
                q_last = torch.stack([torch.zeros_like(q), *q_all])[at, :, own].transpose(0, 1)
        outputs = torch.stack(a_all[1:]) if steps else p.new_zeros(0, batch, n)
        if lengths is not None:
            there = torch.arange(steps, device=p.device).unsqueeze(1) < lengths  # (T, B)
            outputs = torch.where(there.unsqueeze(2), outputs, 0.0)
        if keep:
            stacks = (torch.stack(x) if x else p.new_zeros(0) for x in (m_all, z_all, x_all, a_all, q_all))
            ctx.save_for_backward(*stacks, kappa, gain, w_m, w_r, kappa_q, send, read, *layers)
            ctx.fixed = fixed
        trace = q_last[0] if send is None else q_last.permute(1, 2, 0)  # (B, J), or (B, K, N)
        return outputs, m.permute(1, 2, 0).contiguous(), r.T.contiguous(), a.clone(), trace.contiguous()

    @staticmethod
    @first_derivative("choose engine='reference', which has one")
    def backward(ctx, grad_a, grad_m, grad_r, grad_last, grad_q):
        m_all, z_all, x_all, a_all, q_all, kappa, gain, w_m, w_r, kappa_q, send, read, *layers = ctx.saved_tensors
        activation, (a_scale, b_scale), kappa_r, output, masks, lengths, _ = ctx.fixed
        steps, n = len(z_all), kappa.shape[1]
        weights, biases = _per_neuron(layers)
        decay, w_back = kappa.T.unsqueeze(1), w_m.permute(2, 0, 1).contiguous()  # (N, 1, d_m), (N, d_1, d_m)
        w_read, wires = w_r.T.unsqueeze(1), None if read is None else _wires(kappa_q, send, read)
        slope_out = out_and_slope(x_all, output)[1]
        # activations of every layer for all t: what each layer after the first reads, and its slope
        inputs, slopes, z = [], [], z_all
        for weight, bias in zip(weights, biases):
            activated, slope = activate(activation, z)
            inputs.append(activated)
            slopes.append(slope)
            z = torch.matmul(activated, weight.transpose(1, 2)) + bias  # (T, N, B, O)
        mask_z = 1.0 if masks.z is None else masks.z.permute(2, 0, 1)
        tanh = torch.tanh(b_scale * (mask_z * z))
        slopes.append((a_scale * b_scale * gain).T.unsqueeze(1) * mask_z * (1 - tanh * tanh))
        errors = [torch.empty_like(slope) for slope in slopes]
        g_all, dy_all, dx_all = torch.empty_like(m_all[1:]), *(torch.empty_like(x_all) for _ in range(2))
        dq_all = torch.empty_like(q_all)
        end = _ends(lengths, steps, grad_a.shape[1])
        c_m, c_r = torch.zeros_like(m_all[0]), torch.zeros_like(x_all[0]) if steps else torch.zeros_like(grad_r)
        to_a, c_q = torch.zeros_like(grad_last), torch.zeros_like(q_all[0]) if wires is not None and steps else None
        at_end = grad_m.permute(2, 0, 1), grad_r, grad_last
        q_end = None if wires is None else grad_q.unsqueeze(0) if send is None else grad_q.permute(2, 0, 1)
        for t in range(steps - 1, -1, -1):
            da = grad_a[t] + to_a
            if end[t + 1] is not None:
                here = end[t + 1]  # (B, 1) float
                da = (grad_a[t] if lengths is None else torch.where(t < lengths.unsqueeze(1), grad_a[t], 0.0)) + to_a
                da, c_m, c_r = da + here * at_end[2], c_m + here * at_end[0], c_r + here * at_end[1]
                if q_end is not None and c_q is not None:
                    c_q = c_q + here * q_end
            elif lengths is not None:
                da = torch.where(t < lengths.unsqueeze(1), grad_a[t], 0.0) + to_a
            dx = da * slope_out[t]
            dr = c_r - dx
            dy = dx + (1 - kappa_r) * dr
            c_r = kappa_r * dr
            g = torch.addcmul(c_m, w_read, dy.T.unsqueeze(2))
            dx_all[t], dy_all[t], g_all[t] = dx, dy, g
            e = torch.mul(slopes[-1][t], g, out=errors[-1][t])
            for k in range(len(weights) - 1, -1, -1):
                e = torch.mul(slopes[k][t], torch.bmm(e, weights[k]), out=errors[k][t])
            c_m = decay * torch.baddbmm(g, e, w_back)
            if wires is not None:
                dq = torch.bmm(e, wires.read.transpose(1, 2))  # (N, B, K)
                dq = (dq.sum(0, keepdim=True) if send is None else dq) + cast(Tensor, c_q)
                dq_all[t], c_q = dq, wires.kappa * dq
                to_a = wires.back(dq) if masks.a is None else masks.a * wires.back(dq)
        if end[0] is not None:  # samples of no step
            c_m, c_r, to_a = c_m + end[0] * at_end[0], c_r + end[0] * at_end[1], to_a + end[0] * at_end[2]
        grads = [
            errors[0].permute(0, 2, 3, 1),
            c_m.permute(1, 2, 0),
            c_r,
            to_a,
            *_memory_grads(m_all, errors[0], g_all, decay, w_back, a_scale * tanh),
            (m_all[1:] * dy_all.transpose(1, 2).unsqueeze(3)).sum((0, 2)).T,
            dx_all.sum((0, 1)),
            None,
            *_feedback_grads(errors[0], q_all, dq_all, a_all, send, masks, n),
        ]
        for read_by, error in zip(inputs, errors[1:]):
            grads += [torch.einsum("tnbo,tnbi->oin", error, read_by), error.sum((0, 2)).T]
        return None, *grads


def _per_neuron(layers) -> tuple[list[Tensor], list[Tensor]]:
    """W (O, I, N) as (N, O, I), b (O, N) as (N, 1, O)."""
    weights = [w.permute(2, 0, 1).contiguous() for w in layers[0::2]]
    return weights, [b.T.unsqueeze(1).contiguous() for b in layers[1::2]]


def _ends(lengths: Tensor | None, steps: int, batch: int) -> list:
    """For each number of steps 0 .. T, which samples have so many, (B, 1) of 0 and 1; None where none has."""
    if lengths is None:
        return [None] * steps + [1.0]
    found: list = [None] * (steps + 1)
    for length in lengths.unique().tolist():
        found[length] = (lengths == length).unsqueeze(1).to(torch.get_default_dtype())
    return found


def _memory_grads(m_all, e_1, g_all, decay, w_back, f) -> tuple[Tensor, Tensor, Tensor]:
    """dL/d kappa_m (d_m, N), gain (d_m, N) and w_m (d_1, d_m, N)."""
    before = m_all[:-1]
    back = g_all + torch.matmul(e_1, w_back)
    return (
        (before * back).sum((0, 2)).T,
        (g_all * f).sum((0, 2)).T,
        torch.einsum("tnbh,tnbi->hin", e_1, decay * before),
    )


def _feedback_grads(e_1, q_all, dq_all, a_all, send, masks: Masks, n: int) -> tuple[Tensor | None, Tensor | None]:
    """dL/d send and read."""
    if q_all.dim() == 1:
        return None, None
    if send is None:
        return None, torch.einsum("tbj,tnbh->jhn", q_all[:, 0], e_1)
    before = a_all[:-1] if masks.a is None else a_all[:-1] * masks.a
    return torch.einsum("tbj,tnbk->jkn", before, dq_all), torch.einsum("tnbk,tnbh->hkn", q_all, e_1)
