"""The network of leaky integrate-and-fire neurons that the paper compares on SHD (Appendix, "The SNN implementation").

    I_t = sum over the 100 synapses of w_s * (what the synapse's source sent), sources inhibitory with a minus
    v_t = kappa_m v_{t-1} - 0.9 z_{t-1} + I_t            kappa_m = exp(-delta_t / tau_m); partial reset after a spike
    z_t = 1 where v_t > 1                                spikes
    y_t = kappa_o y_{t-1} + z_t of the output neurons    low-pass; what the loss reads
    kappa_o = exp(-1 / 20)                               whatever delta_t is, or exp(-delta_t / 20 ms): see `SNN`

A recurrent layer of n - d_o neurons reads the input and itself. An output layer of d_o neurons reads the recurrent
layer and itself. What a layer sends to the next arrives at the same step, what it sends to itself one step later.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib.kernels.autograd import first_derivative
from elm_lib.kernels.spikes import Spikes, project
from elm_lib.kernels.traces import compiled, filter_traces

try:
    from elm_lib.kernels import spiking
except ImportError:  # numba is optional for the library alone
    spiking = None  # type: ignore[assignment]  # mypy gives the name the module's type

REVISION = 2  # raise it by hand when the same settings give other results; docs/identity.md

THRESHOLD, RESET = 1.0, 0.9
INHIBITORY = 0.2  # of a layer's neurons; the input is excitatory
OWN_LAYER = 0.1  # probability that a synapse reads its own layer; else the layer before
TAU_OUT_STEPS = 20.0
SHARPNESS = 10.0  # of the surrogate gradient


class _Layer(torch.autograd.Function):
    """Spikes z_1 ... z_T (T, B, n) and v_T (B, n) of a layer.

    It reads a current (T, B, n) and, through w (n, n), its own z_{t-1}. Backward takes z for the fast sigmoid
    u / (1 + 10 |u|) of u = v - threshold, whose derivative is 1 / (1 + 10 |u|)^2: 1 at the threshold. This is
    SuperSpike (Zenke and Ganguli 2018, doi:10.1162/neco_a_01086), with which the authors of SHD trained their networks.
    The paper does not name its own. A weight of 0 counts as no synapse: compiled loops leave its gradient at 0.
    """

    @staticmethod
    def forward(ctx, current, w, kappa, v_0, z_0):
        ctx.compiled = spiking is not None and compiled(current)
        v_all, z_all = (torch.cat([s[None], torch.empty_like(current)]) for s in (v_0, z_0))
        if ctx.compiled:
            rows, cols = w.nonzero(as_tuple=True)
            ptr = torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=len(w)).cumsum(0)])
            matrix = ptr, cols, w[rows, cols]
            states = kappa, _constants(w), v_all, z_all
            spiking.forward(*(a.detach().contiguous().numpy() for a in (current, *matrix, *states)))
            ctx.save_for_backward(v_all, z_all, w, kappa, *matrix)
            return z_all[1:], v_all[-1].clone()
        reset = w - RESET * torch.eye(len(w), dtype=w.dtype, device=w.device)
        for t, current_t in enumerate(current):
            v = torch.addmm(current_t, z_all[t], reset, out=v_all[t + 1]).addcmul_(v_all[t], kappa)
            torch.gt(v, THRESHOLD, out=z_all[t + 1])
        ctx.save_for_backward(v_all, z_all, reset, kappa)
        return z_all[1:], v_all[-1].clone()

    @staticmethod
    @first_derivative("its spikes have a surrogate gradient alone")
    def backward(ctx, grad_z, grad_v):
        v_all, z_all, w, kappa, *matrix = ctx.saved_tensors
        errors, dz = torch.empty_like(z_all[1:]), torch.zeros_like(z_all[0])
        dv = grad_v.clone(memory_format=torch.contiguous_format)
        if ctx.compiled:
            ptr, cols, weight = matrix
            grad_weight = torch.zeros_like(weight)
            arrays = grad_z, *matrix, kappa, _constants(w), v_all, z_all, dv, dz, errors, grad_weight
            spiking.backward(*(a.detach().contiguous().numpy() for a in arrays))
            rows = torch.repeat_interleave(ptr.diff(), output_size=len(cols))
            grad_w = torch.zeros_like(w).index_put((rows, cols), grad_weight)
            return errors, grad_w, (errors * v_all[:-1]).sum((0, 1)), dv, dz
        reset = w
        slope = (1 + SHARPNESS * (v_all[1:] - THRESHOLD).abs()).square().reciprocal()
        for t in reversed(range(len(slope))):  # dv: dL/dv_t without what comes through z_t
            dz.add_(grad_z[t]).mul_(slope[t])
            torch.add(dv, dz, out=errors[t])
            torch.mul(errors[t], kappa, out=dv)
            torch.mm(errors[t], reset.T, out=dz)
        grad_w = z_all[:-1].flatten(0, 1).T @ errors.flatten(0, 1)
        return errors, grad_w, (errors * v_all[:-1]).sum((0, 1)), dv, dz


def _constants(like: Tensor) -> Tensor:
    """Of `elm_lib.kernels.spiking`, in the dtype of a tensor."""
    return like.new_tensor([THRESHOLD, RESET, SHARPNESS, 1.0, 0.0])


class SNN(nn.Module):
    """n LIF neurons, the last d_o of them the output layer; `output, state = snn(x, state)`.

    n_synapse     of each neuron; each connects to a random neuron, of its own layer with probability 0.1, else of the
                  layer before; drawn from torch's global generator, kept in the state_dict
    w_s           initial weight 0.3 / sqrt(n_synapse), learned, kept >= 0 by a ReLU
    tau_m         ms, the initial membrane timescale of all neurons; learned inside tau_m_bounds as in `ELM`
    spike_l1      weight of the mean number of spikes a neuron and step in the loss: `penalty` after a forward pass
    tau_out_steps timescale of the output's low-pass in steps: kappa_o = exp(-1 / tau_out_steps). So a coarser bin keeps
                  the output for a longer time. It learns (docs/spoken-digits.md)
    tau_out_ms    the same in ms, as the text reads: kappa_o = exp(-delta_t / tau_out_ms), tau_out_steps being None
    delta_t       ms a step

    It has n (n_synapse + 1) parameters, 50,500 with the defaults; the caption of Figure 5 says 51K.
    Raises ValueError for sizes below 1, n <= d_o, tau_m out of bounds, or not one timescale of the output above 0.
    """

    source: Tensor  # buffer

    def __init__(
        self,
        input_size: int,
        n: int = 500,
        d_o: int = 1,
        *,
        n_synapse: int = 100,
        w_s: float = 0.3,
        tau_m: float = 25.0,
        tau_m_bounds: tuple[float, float] = (0.0, 1000.0),
        spike_l1: float = 0.01,
        tau_out_steps: float | None = TAU_OUT_STEPS,
        tau_out_ms: float | None = None,
        delta_t: float = 1.0,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        lo, hi = tau_m_bounds
        if min(input_size, d_o, n_synapse, n - d_o) < 1 or not 0 <= lo < tau_m < hi < math.inf or delta_t <= 0:
            raise ValueError(
                f"input_size={input_size}, n={n}, d_o={d_o}, n_synapse={n_synapse}, tau_m={tau_m}, "
                f"tau_m_bounds={tau_m_bounds}, delta_t={delta_t}: "
                "needs sizes of at least 1, n > d_o, tau_m inside its bounds, delta_t > 0"
            )
        given = [tau for tau in (tau_out_steps, tau_out_ms) if tau is not None]
        if len(given) != 1 or not 0 < given[0] < math.inf:
            raise ValueError(
                f"tau_out_steps={tau_out_steps}, tau_out_ms={tau_out_ms}: give one of them, above 0, the other None"
            )
        self.rate_out = (1.0 if tau_out_ms is None else delta_t) / given[0]  # of the output's low-pass, a step
        self.input_size, self.n, self.d_o, self.delta_t, self.batch_first = input_size, n, d_o, delta_t, batch_first
        self.n_r, self.tau_m_bounds, self.spike_l1 = n - d_o, (lo, hi), spike_l1
        part = torch.full((n,), (tau_m - lo) / (hi - lo))
        self.proto_tau_m = nn.Parameter(torch.logit(part))
        self.proto_w_s = nn.Parameter(torch.full((n, n_synapse), w_s / math.sqrt(n_synapse)))
        self.register_buffer(
            "source",
            torch.cat([_draw(self.n_r, n_synapse, input_size, self.n_r), _draw(d_o, n_synapse, self.n_r, d_o)]),
        )
        self.penalty: Tensor | float = 0.0

    @property
    def tau_m(self) -> Tensor:
        """Membrane timescales, ms, (n,)."""
        lo, hi = self.tau_m_bounds
        return (lo + (hi - lo) * torch.sigmoid(self.proto_tau_m)).clamp(min=1e-3 * self.delta_t)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Signed weights: input to recurrent (d_s, n_r), recurrent to itself, recurrent to output, output to itself."""
        w_s, n_r = F.relu(self.proto_w_s), self.n_r
        both = []
        for rows, before in ((slice(0, n_r), self.input_size), (slice(n_r, None), n_r)):
            source, weight = self.source[rows], w_s[rows]
            n = len(source)
            flat = w_s.new_zeros((before + n) * n)
            entry = source * n + torch.arange(n, device=source.device)[:, None]
            both.append(flat.index_add(0, entry.flatten(), weight.flatten()).view(before + n, n).split([before, n]))
        (w_in, w_r), (w_ro, w_o) = both
        return w_in, w_r * _signs(w_r), w_ro * _signs(w_ro), w_o * _signs(w_o)

    def forward(self, x: Tensor | Spikes, state: tuple[Tensor, Tensor, Tensor] | None = None):
        """x (B, T, input_size) with batch_first, or `Spikes` -> low-passed spikes (B, T, d_o), last (v, z, y)."""
        if isinstance(x, Spikes):
            x = x.check(self.proto_w_s.dtype)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        w_in, w_r, w_ro, w_o = self._matrices()
        current = project(x, w_in)
        kappa_m = torch.exp(-self.delta_t / self.tau_m)
        kappa_r, kappa_out = kappa_m.split([self.n_r, self.d_o])
        v, z, y = state or (current.new_zeros(x.shape[0], k) for k in (self.n, self.n, self.d_o))
        (v_r, v_o), (z_r, z_o) = v.split([self.n_r, self.d_o], 1), z.split([self.n_r, self.d_o], 1)
        z_r_all, v_r = _Layer.apply(current.transpose(0, 1), w_r, kappa_r, v_r, z_r)
        z_o_all, v_o = _Layer.apply(z_r_all @ w_ro, w_o, kappa_out, v_o, z_o)
        self.penalty = self.spike_l1 * (z_r_all.sum() + z_o_all.sum()) / (len(z_r_all) * x.shape[0] * self.n)
        y_all = filter_traces(z_o_all.transpose(0, 1), y, y.new_tensor(self.rate_out))
        state = torch.cat([v_r, v_o], 1), torch.cat([z_r_all[-1], z_o_all[-1]], 1), y_all[:, -1]
        return (y_all if self.batch_first else y_all.transpose(0, 1)), state


def _draw(n: int, n_synapse: int, before: int, own: int) -> Tensor:
    """Sources of n neurons' synapses, (n, n_synapse).

    0 .. before - 1 are neurons of the layer before, before .. before + own - 1 those of their own layer.
    """
    inside = torch.rand(n, n_synapse) < OWN_LAYER
    return torch.where(inside, before + torch.randint(own, (n, n_synapse)), torch.randint(before, (n, n_synapse)))


def _signs(weight: Tensor) -> Tensor:
    """-1 for the rows of a layer's inhibitory neurons, its first fifth; (rows, 1)."""
    inhibitory = torch.arange(len(weight), device=weight.device) < round(INHIBITORY * len(weight))
    return torch.where(inhibitory, -1.0, 1.0).to(weight.dtype)[:, None]
