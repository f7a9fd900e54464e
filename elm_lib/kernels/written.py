"""A whole sequence as an operation that torch.export and torch.jit.trace can write down, for any number of steps.

The program that they write has a loop over t with plain operations in it, and none of this package's compiled loops: it
runs without the package.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, List, Tuple  # noqa: UP035, torch.jit.script reads these

import torch
from torch import Tensor
from torch.nn import functional as F


def scanned(step: Callable, i_tbs: Tensor, s_0: Tensor, m_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """step(i, (s, m)) -> m, (s, m) over i_tbs (T, B, S), as torch.export writes a loop: m (T, B, d_m), last s and m."""
    from torch._higher_order_ops.scan import scan  # slow to import

    def combine(state: Any, i: Tensor) -> Any:
        m, (s, _) = step(i, state)
        return (s, m), m.clone()

    (s, m), m_all = scan(combine, (s_0, m_0), i_tbs, dim=0)
    return m_all, s, m


def scripted(p: Any, i_tbs: Tensor, s_0: Tensor, m_0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for torch.jit.trace, of the `Parameters` p."""
    weights = [tensor for layer in p.w_p for tensor in layer]
    return _script()(
        i_tbs, s_0, m_0, p.kappa_s, p.kappa_m, p.gain, weights, p.act, p.phi, p.d_brch, float(p.a), float(p.b)
    )


@cache
def _script() -> Any:
    return torch.jit.script(_loop)


def _loop(
    i_tbs: Tensor,
    s: Tensor,
    m: Tensor,
    kappa_s: Tensor,
    kappa_m: Tensor,
    gain: Tensor,
    weights: List[Tensor],  # noqa: UP006
    act: str,
    phi: str,
    d_brch: int,
    a: float,
    b: float,
) -> Tuple[Tensor, Tensor, Tensor]:  # noqa: UP006
    """`elm_lib.neuron.elm_step` in the part of Python that torch.jit.script knows."""
    out: List[Tensor] = []  # noqa: UP006
    for t in range(i_tbs.size(0)):
        s = kappa_s * s + i_tbs[t]
        z = s if d_brch == 1 else s.unflatten(-1, [-1, d_brch]).sum(-1)
        if phi == "relu":
            z = torch.relu(z)
        elif phi == "sigmoid":
            z = torch.sigmoid(z)
        z = torch.cat([z, kappa_m * m], -1)
        for k in range(0, len(weights), 2):
            if k > 0:
                z = F.silu(z) if act == "silu" else torch.relu(z)
                if act == "relu2":
                    z = z * z
            z = F.linear(z, weights[k], weights[k + 1])
        m = kappa_m * m + gain * (a * torch.tanh(b * z))
        out.append(m)
    return torch.stack(out), s, m
