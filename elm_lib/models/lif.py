"""Leaky integrate-and-fire neurons fitted to NeuronIO (Table S4): a point neuron, its voltage and its spikes.

    I_t     = w x_t + b
    v_t     = kappa_m v_{t-1} (1 - z_{t-1}) + I_t               kappa_m = exp(-delta_t / tau_m); hard reset to 0
    a_t     = kappa_a a_{t-1} + (1 - kappa_a) z_{t-1}           adaptive only
    theta_t = 1 + beta a_t                                      1 where it is not adaptive
    z_t     = 1 where v_t > theta_t                             spikes
    y_t     = (10 (v_t - theta_t), 1.27 v_t)                    logit of a spike, scaled voltage

Resting at v = 0 is the mean soma voltage, -67.7 mV; the threshold is the -55 mV at which targets are cut. The paper
gives the number of parameters and the scores; the constants here are ours. beta is that of Bellec et al. 2018
(arXiv:1803.09574).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from elm_lib import neuron_init
from elm_lib.interface import inputs
from elm_lib.kernels.autograd import first_derivative, transformed
from elm_lib.kernels.spikes import Spikes, project

try:
    from elm_lib.kernels import membrane
except ImportError:  # numba is optional for the library alone
    membrane = None  # type: ignore[assignment]  # mypy gives the name the module's type

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md

THRESHOLD = 1.0
SHARPNESS = 10.0  # of the logit and of the surrogate gradient
SCALED_THRESHOLD = 1.27  # scaled voltage at the threshold
BETA = 1.8  # rise of the threshold for a spike at every step
TAU_BOUNDS = (0.0, 500.0)  # ms


class _Spike(torch.autograd.Function):
    """1 where u > 0. Backward takes it for the fast sigmoid u / (1 + 10 |u|): SuperSpike (Zenke and Ganguli 2018,
    doi:10.1162/neco_a_01086), as in `elm_lib.models.snn`."""

    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx, grad):
        (u,) = ctx.saved_tensors
        return grad / (1 + SHARPNESS * u.abs()).square()


def step_by_step(current: Tensor, kappa_m: Tensor, kappa_a: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """The equations as written, from rest: current (T, B) -> v, theta (T, B). The specification of `_Compiled`."""
    v = z = a = torch.zeros_like(current[0])
    voltages, thresholds = [], []
    for current_t in current:
        a = kappa_a * a + (1 - kappa_a) * z
        v = kappa_m * v * (1 - z) + current_t
        theta = THRESHOLD + beta * a
        z = _Spike.apply(v - theta)
        voltages.append(v)
        thresholds.append(theta)
    return torch.stack(voltages), torch.stack(thresholds)


class _Compiled(torch.autograd.Function):
    """`step_by_step` with the loops of `elm_lib.kernels.membrane`."""

    @staticmethod
    def forward(ctx, current, kappa_m, kappa_a, beta: float):
        current = current.contiguous()
        v, a = torch.empty_like(current), torch.empty_like(current)
        membrane.forward(current.numpy(), float(kappa_m), float(kappa_a), beta, v.numpy(), a.numpy())
        ctx.save_for_backward(v, a, kappa_m, kappa_a)
        ctx.beta = beta
        return v, THRESHOLD + beta * a

    @staticmethod
    @first_derivative("its spikes have a surrogate gradient alone")
    def backward(ctx, grad_v, grad_theta):
        v, a, kappa_m, kappa_a = ctx.saved_tensors
        grad = torch.empty_like(v)
        grads = (grad_v.contiguous().numpy(), grad_theta.contiguous().numpy())
        of_kappas = membrane.backward(
            *grads, v.numpy(), a.numpy(), float(kappa_m), float(kappa_a), ctx.beta, SHARPNESS, grad.numpy()
        )
        return grad, *(kappa_m.new_tensor(value) for value in of_kappas), None


class LIF(nn.Module):
    """A leaky integrate-and-fire neuron; `output, state = lif(x)`. It starts from rest, so the state is None.

    adaptive  the threshold rises with each spike (ALIF), with a timescale of its own
    tau_m     ms, initial membrane timescale; learned between 0 and 500 ms
    tau_a     ms, initial timescale of the adaptation, likewise
    delta_t   ms a step

    It has input_size + 2 parameters, 1,280 on NeuronIO, and one more if it is adaptive.
    Raises ValueError for an argument out of range, and unless d_o is 2.
    """

    def __init__(
        self,
        input_size: int,
        d_o: int = 2,
        *,
        adaptive: bool = False,
        tau_m: float = 20.0,
        tau_a: float = 100.0,
        delta_t: float = 1.0,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        neuron_init.check_whole(1, input_size=input_size)
        neuron_init.check_scales(0.0, delta_t=delta_t)
        if d_o != 2:
            raise ValueError(f"d_o={d_o}: the outputs are the logit of a spike and the voltage, 2")
        self.input_size, self.d_o, self.adaptive = input_size, d_o, adaptive
        self.delta_t, self.batch_first = delta_t, batch_first
        bound = 1 / math.sqrt(input_size)
        self.w = nn.Parameter(torch.empty(input_size).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(()))
        taus = [tau_m, tau_a] if adaptive else [tau_m]
        self.proto_tau = nn.Parameter(neuron_init.to_proto(torch.tensor(taus, dtype=torch.float64), TAU_BOUNDS))

    @property
    def tau(self) -> Tensor:
        """Timescales of the membrane and, if it is adaptive, of the adaptation, ms."""
        return neuron_init.from_proto(self.proto_tau, TAU_BOUNDS, least=1e-3 * self.delta_t)

    def forward(self, x: Tensor | Spikes, state: None = None) -> tuple[Tensor, None]:
        """x (B, T, input_size) with batch_first, or `Spikes` -> (B, T, 2), None.

        Raises ValueError for a state or a wrong shape.
        """
        if state is not None:
            raise ValueError("an LIF neuron starts from rest: give no state")
        if isinstance(x, Spikes):
            x = x.check(self.w.dtype)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        inputs.check_sequence(x.shape, self.input_size)
        current = (project(x, self.w.unsqueeze(1)).squeeze(2) + self.b).T  # (T, B)
        kappa = torch.exp(-self.delta_t / self.tau)
        kappa_m, kappa_a, beta = kappa[0], kappa[-1], BETA if self.adaptive else 0.0
        fast = membrane is not None and current.device.type == "cpu" and not transformed()
        v, theta = (_Compiled.apply if fast else step_by_step)(current, kappa_m, kappa_a, beta)
        y = torch.stack([SHARPNESS * (v - theta), SCALED_THRESHOLD * v], -1)  # (T, B, 2)
        return (y.transpose(0, 1) if self.batch_first else y), None
