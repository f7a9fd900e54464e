"""How a neuron starts: argument checks, routing of synapses, spacing of timescales, initial weights."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Start(NamedTuple):
    """Where parameters that are not drawn start: proto_tau_m (d_m,), w_s, tau_s () or (n_tau_s,) in ms; on the CPU."""

    proto_tau_m: Tensor
    w_s: float
    tau_s: Tensor
    n_tau_s: int


def floating(dtype: torch.dtype | None) -> torch.dtype:
    """The dtype, torch's default for None. Raises ValueError for one that is not real floating point."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise ValueError(f"dtype={dtype}: must be real floating point, such as torch.float32")
    return dtype


def choice(name: str, value: str, choices: Collection[str]) -> str:
    """The value itself. Raises ValueError unless it is one of the choices."""
    if value not in choices:
        known = f"{name} (or ELM_ENGINE)" if name == "engine" else name
        raise ValueError(f"{known}={value!r}: choose one of {sorted(choices)}")
    return value


def check_whole(least: int, optional: bool = False, **values: int | None) -> None:
    """Raise ValueError unless each value is a whole number of at least `least`, or None where it is optional."""
    for name, value in values.items():
        if optional and value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r}: must be a whole number, at least {least}")


def check_scales(w_s: float, **positive: float) -> None:
    """Raise ValueError unless w_s is finite and >= 0, and the others are finite and > 0."""
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value}: must be a finite number > 0")
    if not 0 <= w_s < math.inf:
        raise ValueError(f"w_s={w_s}: must be a finite number >= 0")


def timescales(tau_s: float | Tensor, sizes: Collection[int]) -> Tensor:
    """Synapse timescales, ms: a tensor () for one value, else a vector of one of the sizes.

    Raises ValueError for another size, or for a value that is not finite and > 0.
    """
    tau_s = torch.as_tensor(tau_s, dtype=torch.get_default_dtype(), device="cpu").clone()
    fits = tau_s.dim() == 0 or (tau_s.dim() == 1 and tau_s.numel() in sizes)
    if not fits or not bool(((tau_s > 0) & tau_s.isfinite()).all()):
        raise ValueError(
            f"tau_s of shape {tuple(tau_s.shape)}: give one value > 0, or a vector of {sorted(sizes)} values > 0 (ms)"
        )
    return tau_s if tau_s.numel() > 1 else tau_s.reshape(())


def route(routing: str, input_size: int, d_tree: int, d_brch: int, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """Which input each synapse reads: indices and mask, both (d_tree, d_brch). The mask is False where there is none.

    Raises ValueError when routing is "none" and d_tree * d_brch differs from input_size, or when it is "covering" and
    there are fewer synapses than inputs.
    """
    if routing == "none":
        if d_tree * d_brch != input_size:
            raise ValueError(
                f"routing='none' needs d_tree * d_brch = input_size, got {d_tree} * {d_brch} != {input_size}"
            )
        return torch.arange(input_size, device="cpu").view(d_tree, d_brch), _everywhere(d_tree, d_brch)
    if routing == "random":
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        repeats = math.ceil(d_brch / input_size)
        draws = [
            torch.cat([torch.randperm(input_size, generator=generator, device="cpu") for _ in range(repeats)])[:d_brch]
            for _ in range(d_tree)
        ]
        return torch.stack(draws), _everywhere(d_tree, d_brch)
    if routing == "covering":
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return _cover(input_size, d_tree, d_brch, generator), _everywhere(d_tree, d_brch)
    first = torch.arange(d_tree, device="cpu") * math.ceil(input_size / d_tree)
    indices = first[:, None] + torch.arange(d_brch, device="cpu")
    mask = indices < input_size
    return torch.where(mask, indices, torch.zeros_like(indices)), mask


def _cover(input_size: int, d_tree: int, d_brch: int, generator: torch.Generator | None) -> Tensor:
    """Branch after branch of one permutation of the inputs after the other, (d_tree, d_brch).

    So each input is read d_tree d_brch // input_size times, or once more. Where a permutation begins within a branch,
    its first inputs are those that the branch does not have yet.
    """
    n = d_tree * d_brch
    if n < input_size:
        raise ValueError(
            f"routing='covering' needs d_tree * d_brch >= input_size, got {d_tree} * {d_brch} = {n} < {input_size}"
        )
    found = torch.empty(0, dtype=torch.long, device="cpu")
    while len(found) < n:
        order = torch.randperm(input_size, generator=generator, device="cpu")
        begun = found[len(found) - len(found) % d_brch :]
        room, new = d_brch - len(begun), ~torch.isin(order, begun)
        first = order[new][:room]
        found = torch.cat([found, first, order[~torch.isin(order, first)]])
    return found[:n].view(d_tree, d_brch)


def _everywhere(d_tree: int, d_brch: int) -> Tensor:
    return torch.ones(d_tree, d_brch, dtype=torch.bool, device="cpu")


def spaced(tau_range: tuple[float, float], d_m: int, how: str) -> Tensor:
    """Memory timescales, ms, float64 (d_m,), from low to high: how is "linspace" or "logspace".

    Raises ValueError unless 0 < low <= high, or for another spacing.
    """
    lo, hi = tau_range
    if not 0 < lo <= hi < math.inf:
        raise ValueError(f"tau_m_range={tuple(tau_range)}: needs 0 < low <= high (ms)")
    if choice("tau_m_init", how, ("linspace", "logspace")) == "linspace":
        return torch.linspace(lo, hi, d_m, dtype=torch.float64, device="cpu")
    return torch.logspace(math.log10(lo), math.log10(hi), d_m, dtype=torch.float64, device="cpu")


def from_proto(proto: Tensor, bounds: tuple[float, float], least: float) -> Tensor:
    """Timescales, ms, inside the bounds: a scaled sigmoid of what is learned, (d_m,).

    They are clamped at `least`, where exp(-delta_t / tau) is 0: at tau = 0 its gradient would be 0 / 0.
    """
    lo, hi = bounds
    return (lo + (hi - lo) * torch.sigmoid(proto)).clamp(min=least)


def to_proto(tau_m: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Inverse of `from_proto`, (d_m,). A timescale on a bound is moved inside by 1e-7 of the range.

    Bounds that are one value hold every timescale there. Raises ValueError unless 0 <= low <= high and tau_m lies
    between them.
    """
    lo, hi = bounds
    if lo == hi == float(tau_m.min()) == float(tau_m.max()) and 0 < hi < math.inf:
        return torch.zeros_like(tau_m, dtype=torch.get_default_dtype())
    if not 0 <= lo < hi < math.inf or float(tau_m.min()) < lo * (1 - 1e-9) or float(tau_m.max()) > hi * (1 + 1e-9):
        raise ValueError(f"tau_m_bounds={tuple(bounds)}: needs 0 <= low < high < inf and must hold tau_m_range (ms)")
    part = (tau_m - lo) / (hi - lo)
    part = torch.where(part <= 1e-12, 1e-7, torch.where(part >= 1 - 1e-12, 1 - 1e-7, part))
    return torch.logit(part).to(torch.get_default_dtype())


def kaiming(linear: nn.Linear) -> nn.Linear:
    """Kaiming uniform (Table S1), torch's own default: weights and bias from U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    nn.Linear has drawn them once already. They are drawn again, because the weights that a seed gives depend on it.
    """
    linear.reset_parameters()
    return linear
