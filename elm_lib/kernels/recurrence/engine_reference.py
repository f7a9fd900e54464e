"""The recurrence as the paper writes it (equation 1), one step after another, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS = {"relu": F.relu, "silu": F.silu, "relu2": lambda z: F.relu(z).square()}


def recur(p_tbh: Tensor, m_0: Tensor, kappa_m: Tensor, gain: Tensor, mlp) -> Tensor:
    """See `elm_lib.kernels.recurrence.recurrence`; shapes (T, B, d_1), (B, d_m), (d_m,), (d_m,) -> (T, B, d_m)."""
    act = ACTIVATIONS[mlp.activation]
    a, b = mlp.scale
    m, out = m_0, []
    for p in p_tbh:
        u = kappa_m * m
        z = p + u @ mlp.w_m.T
        for weight, bias in mlp.layers:
            z = act(z) @ weight.T + bias
        m = u + gain * (a * torch.tanh(b * z))
        out.append(m)
    return torch.stack(out) if out else p_tbh.new_zeros((0, *m_0.shape))
