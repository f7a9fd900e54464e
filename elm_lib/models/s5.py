"""S5: layers of one multi-input, multi-output linear state-space model each (Smith et al. 2023, arXiv:2208.04933).

    h_t = Lambda_bar h_{t-1} + B_bar u_t          Lambda_bar = exp(Lambda delta),  B_bar = (Lambda_bar - 1) / Lambda B
    y_t = 2 Re(C h_t) + D u_t                     h complex, P/2 of P conjugate states; Lambda diagonal
    u  <- u + g * sigmoid(W g),   g = gelu(y)     after a norm of u: prenorm, half gated

Lambda_bar and B_bar hold the input constant within a step (zero-order hold).

As published: width 192 and P = 256 in 8 blocks (186 thousand parameters a layer, 1.1 million in six), HiPPO-N
initialisation block by block, timescale delta of each state log-uniform in 0.001 to 0.1, states that run in both
directions of time, prenorm, half gated GELU, mean over time, grey values as one number a pixel.
Simplified: LayerNorm where the published Pathfinder model has BatchNorm, with as many parameters; no dropout and no
weight decay; one learning rate for all parameters.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.kernels.scan import scan
from elm_lib.kernels.spikes import Spikes

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

DELTA_RANGE = (0.001, 0.1)


class S5(nn.Module):
    """n_layers of S5, then the mean over all steps so far and a linear read-out; `output, None = s5(x)`.

    d_model    H, width of the layers
    d_state    P, states of a layer; n_blocks divides P/2
    grey       the one-hot input is read as a grey value, -1 to 1; else it is embedded as it is
    Only the output after the last step is meant to be read: that of the mean over the whole sequence. Earlier ones see
    the future too, through the backward states. Sequences of a batch have one length, as padding would be read.
    Raises ValueError for sizes that do not fit together.
    """

    levels: Tensor  # buffer

    def __init__(
        self,
        input_size: int,
        d_o: int = 2,
        *,
        n_layers: int = 6,
        d_model: int = 192,
        d_state: int = 256,
        n_blocks: int = 8,
        grey: bool = True,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        if min(input_size, d_o, n_layers, d_model, n_blocks) < 1 or d_state % (2 * n_blocks) or d_state < 2 * n_blocks:
            raise ValueError(
                f"n_layers={n_layers}, d_model={d_model}, d_state={d_state}, n_blocks={n_blocks}: at least 1, and "
                "d_state a multiple of 2 n_blocks"
            )
        self.input_size, self.d_model, self.d_state, self.batch_first = input_size, d_model, d_state, batch_first
        self.register_buffer("levels", torch.linspace(-1, 1, input_size)[:, None] if grey else torch.eye(input_size))
        self.embed = nn.Linear(self.levels.shape[1], d_model)
        self.layers = nn.ModuleList(_Layer(d_model, d_state, n_blocks) for _ in range(n_layers))
        self.w_y = nn.Linear(d_model, d_o)

    def forward(self, x: Tensor | Spikes, state: None = None) -> tuple[Tensor, None]:
        """x (B, T, input_size) with batch_first, or `Spikes` -> (B, T, d_o), None."""
        if state is not None:
            raise ValueError("S5 reads a sequence in both directions: it has no state to go on from")
        if isinstance(x, Spikes):
            x = x.check(self.levels.dtype).dense()
        elif not self.batch_first:
            x = x.transpose(0, 1)
        u = self.embed(x @ self.levels)
        for layer in self.layers:
            u = layer(u)
        so_far = torch.arange(1, u.shape[1] + 1, device=u.device, dtype=u.dtype)
        y = self.w_y(u.cumsum(1) / so_far[:, None])
        return (y if self.batch_first else y.transpose(0, 1)), None


class _Layer(nn.Module):
    def __init__(self, d_model: int, d_state: int, n_blocks: int) -> None:
        super().__init__()
        self.norm, self.ssm, self.gate = (
            nn.LayerNorm(d_model),
            SSM(d_model, d_state, n_blocks),
            nn.Linear(d_model, d_model),
        )

    def forward(self, u: Tensor) -> Tensor:
        g = F.gelu(self.ssm(self.norm(u)))
        return u + g * torch.sigmoid(self.gate(g))


class SSM(nn.Module):
    """One state-space model, (B, T, H) -> (B, T, H). Complex parameters are kept as pairs of reals, last dimension 2.

    lambda_ (P/2, 2), b (P/2, H, 2), c (H, P, 2): forward states, then backward ones; d (H,), log_delta (P/2,)
    """

    def __init__(self, d_model: int, d_state: int, n_blocks: int) -> None:
        super().__init__()
        half = d_state // 2
        eigenvalues, vectors = hippo_n(d_state // n_blocks)
        kept = slice(len(eigenvalues) // 2, None)  # of each conjugate pair the one with positive imaginary part
        v = torch.block_diag(*[vectors[:, kept]] * n_blocks)  # (P, P/2)
        b = torch.randn(d_state, d_model, dtype=torch.float64) / math.sqrt(d_model)
        c = torch.randn(2, d_model, d_state, dtype=torch.complex128) / math.sqrt(d_state)  # one a direction
        self.lambda_ = _pairs(eigenvalues[kept].repeat(n_blocks))
        self.b = _pairs(v.mH @ b.to(v.dtype))
        self.c = _pairs(torch.cat(list(c @ v), -1))
        self.d = nn.Parameter(torch.randn(d_model))
        low, high = map(math.log, DELTA_RANGE)
        self.log_delta = nn.Parameter(low + (high - low) * torch.rand(half))

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Lambda_bar (P/2,) and B_bar (P/2, H), complex: zero-order hold."""
        lambda_, b = torch.view_as_complex(self.lambda_), torch.view_as_complex(self.b)
        lambda_bar = torch.exp(lambda_ * self.log_delta.exp())
        return lambda_bar, ((lambda_bar - 1) / lambda_)[:, None] * b

    def forward(self, u: Tensor) -> Tensor:
        lambda_bar, b_bar = self.discrete()
        driven = u @ torch.cat([b_bar.real, b_bar.imag]).T  # (B, T, P)
        h = torch.cat([scan(lambda_bar, driven), scan(lambda_bar, driven, backwards=True)], -1)
        ahead, back = torch.view_as_complex(self.c).chunk(2, -1)
        real_part = torch.cat([ahead.real, -ahead.imag, back.real, -back.imag], -1)  # of a product of complex numbers
        return 2 * (h @ real_part.T) + self.d * u


def hippo_n(n: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (n,), by rising imaginary part, and eigenvectors (n, n) of the normal part of HiPPO-LegS.

    HiPPO-LegS is -sqrt((2i+1)(2k+1)) below the diagonal and -(i + 1) on it. The outer product of sqrt(i + 1/2) with
    itself, added to it, gives -1/2 I + S with a skew-symmetric S. So the eigenvalues are -1/2 + i w.
    """
    root = np.sqrt(np.arange(n) + 0.5)
    s = np.outer(root, root) * (np.triu(np.ones((n, n)), 1) - np.tril(np.ones((n, n)), -1))
    w, vectors = np.linalg.eigh(-1j * s)  # S = i H, H Hermitian
    return torch.from_numpy(-0.5 + 1j * w), torch.from_numpy(vectors)


def _pairs(z: Tensor) -> nn.Parameter:
    return nn.Parameter(torch.view_as_real(z.resolve_conj()).to(torch.get_default_dtype()).contiguous())
