"""A layer by loops that numba compiles (`loops`), for at most one hidden layer and one decay of all feedback, on a CPU.

A sample gets the same numbers to the last bit, whichever samples are beside it and however many threads run. NaN stays
NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elm_lib.kernels import affine
from elm_lib.kernels.autograd import first_derivative, in_memory
from elm_lib.kernels.network import loops
from elm_lib.kernels.network.parts import OUTPUTS, SHARPNESS, Ensemble, Feedback, Masks, Past, Run
from elm_lib.kernels.recurrence.bptt import ACTIVATIONS
from elm_lib.kernels.recurrence.engine_cpu import arrays, pool

BLOCK = 8  # samples that go through the loops together


def serves(p: Tensor, e: Ensemble, feedback: Feedback | None) -> bool:
    """Whether this engine can run these tensors."""
    return (
        p.device.type == "cpu"
        and len(e.layers) <= 1
        and p.dtype in (torch.float32, torch.float64)
        and in_memory(p)
        and (feedback is None or (feedback.send is None and not feedback.kappa.requires_grad))
    )


def run(p: Tensor, past: Past, e: Ensemble, feedback: Feedback | None, masks: Masks, lengths: Tensor | None) -> Run:
    """See `elm_lib.kernels.network.run`. Raises ValueError for tensors that it does not serve."""
    if not serves(p, e, feedback):
        raise ValueError(
            "engine='cpu' (argument or ELM_ENGINE) needs l_mlp 0 or 1, float32 or float64, on the CPU, and one tau_b "
            f"where neurons hear each other; got l_mlp={len(e.layers)}, {p.dtype} on {p.device}: choose 'auto' or "
            "'torch'"
        )
    activation, layers = e.activation, e.layers
    if not layers:  # f(z) is f(I z)
        d_m, n = e.kappa_m.shape
        same = torch.eye(d_m, dtype=p.dtype).unsqueeze(2).expand(d_m, d_m, n)
        activation, layers = "identity", [(same, p.new_zeros(d_m, n))]
    kappa_q, read = (0.0, None) if feedback is None else (float(feedback.kappa), feedback.read)
    fixed = activation, e.scale, e.kappa_r, kappa_q, e.output, masks, lengths, torch.is_grad_enabled()
    a, m, r, last, q = Layer.apply(fixed, p, *past, e.kappa_m, e.gain, e.w_m, e.w_r, e.b_r, read, *layers[0])
    return Run(a, Past(m, r, last), None if feedback is None else q)


def _over_blocks(run_block: Callable[[int, int, int], None], batch: int) -> None:
    """run_block(k, first, end) for each block of samples, on torch's number of threads."""
    blocks = [(k, first, min(batch, first + BLOCK)) for k, first in enumerate(range(0, batch, BLOCK))]
    if torch.get_num_threads() == 1 or len(blocks) == 1:
        for block in blocks:
            run_block(*block)
        return
    for _ in pool(torch.get_num_threads()).map(lambda block: run_block(*block), blocks):
        pass


class Layer(torch.autograd.Function):
    """apply(fixed, p, m_0, r_0, a_0, kappa_m, gain, w_m, w_r, b_r, read, W_2, b_2) -> a (T, B, N); m, r, a and q after
    each sample's last step."""

    @staticmethod
    def forward(ctx, fixed: tuple[Any, ...], p, m_0, r_0, a_0, kappa, gain, w_m, w_r, b_r, read, w_2, b_2):
        activation, (a, b), kappa_r, kappa_q, output, masks, lengths, keep = fixed
        steps, batch, d_1, n = p.shape
        constants = p.new_tensor([kappa_r, 1 - kappa_r, kappa_q, b, 0, 1, 2, SHARPNESS, 0.5]).numpy()
        own = torch.full((batch,), steps) if lengths is None else lengths.contiguous()
        mask_a = p.new_ones(batch, n) if masks.a is None else masks.a
        mask_z = torch.ones_like(m_0) if masks.z is None else masks.z
        rows = p.new_zeros(0, d_1 * n) if read is None else read.flatten(1)
        kept = [affine.empty(p, *shape) for shape in (p.shape, (steps + 1, *m_0.shape))]
        kept += [p.new_empty(steps, batch, n) for _ in range(3)]
        ends = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (m_0, r_0, a_0, a_0)]
        which = ACTIVATIONS.index(activation), OUTPUTS.index(output)
        fixed_arrays = arrays(kappa, w_m, w_2, b_2, w_r, rows, mask_a, mask_z)
        kappa_, w_m_, w_2_, b_2_, w_r_, rows_, mask_a_, mask_z_ = fixed_arrays
        most, shift = arrays(a * gain, b_r)
        arguments = (
            p.detach().contiguous().numpy(),
            own.numpy(),
            tuple(arrays(m_0, r_0, a_0)),
            (mask_a_, mask_z_),
            (kappa_, most),
            (w_m_, w_2_, b_2_),
            w_r_,
            shift,
            rows_,
            constants,
            *which,
            tuple(x.numpy() for x in kept),
            tuple(x.numpy() for x in ends),
        )
        _over_blocks(lambda k, first, end: loops.forward(*arguments, first, end), batch)
        if keep:
            ctx.save_for_backward(gain)
            ctx.kept, ctx.own, ctx.constants, ctx.arrays, ctx.which = kept, own, constants, fixed_arrays, which
            ctx.scale, ctx.has_feedback = (a, b), read is not None
        return kept[3].clone() if keep else kept[3], *ends

    @staticmethod
    @first_derivative("choose engine='reference', which has one")
    def backward(ctx, grad_a, *grad_ends):
        (gain,) = ctx.saved_tensors
        kappa, w_m, w_2, b_2, w_r, rows, mask_a, mask_z = ctx.arrays
        (a, b), kept = ctx.scale, ctx.kept
        batch, grad_p = kept[0].shape[1], affine.empty(kept[0], *kept[0].shape)
        to_start = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in grad_ends[:3]]
        shapes = [kappa.shape, kappa.shape, w_m.shape, w_2.shape, b_2.shape, w_r.shape, w_r.shape[1:]]
        sums = [[gain.new_zeros(shape) for shape in shapes] for _ in range(-(-batch // BLOCK))]
        arguments = (
            ctx.own.numpy(),
            grad_a.contiguous().numpy(),
            tuple(x.contiguous().numpy() for x in grad_ends),
            (mask_a, mask_z),
            (kappa, *arrays(a * b * gain)),
            (w_m, w_2, b_2, *(np.ascontiguousarray(w.transpose(1, 0, 2)) for w in (w_m, w_2))),
            w_r,
            rows,
            ctx.constants,
            *ctx.which,
            tuple(x.numpy() for x in kept),
            grad_p.numpy(),
            tuple(x.numpy() for x in to_start),
        )

        def block(k: int, first: int, end: int) -> None:
            loops.backward(*arguments, tuple(x.numpy() for x in sums[k]), first, end)

        _over_blocks(block, batch)
        total = [torch.stack(parts).sum(0) for parts in zip(*sums)]
        d_kappa, g_tanh, d_wm, d_w2, d_b2, d_wr, d_br = total
        d_read = None
        if ctx.has_feedback:
            d_read = (kept[4].flatten(0, 1).T @ grad_p.flatten(0, 1).flatten(1)).view(-1, *grad_p.shape[2:])
        return (None, grad_p, *to_start, d_kappa, a * g_tanh, d_wm, d_wr, d_br, d_read, d_w2, d_b2)
