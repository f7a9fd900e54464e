"""How a neuron starts: argument checks, routing of synapses, spacing of timescales, initial weights."""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor, nn


def choice(name: str, value: str, choices) -> str:
    if value not in choices:
        known = f"{name} (or ELM_ENGINE)" if name == "engine" else name
        raise ValueError(f"{known}={value!r}: choose one of {sorted(choices)}")
    return value


def whole_number(name: str, value, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: must be a whole number, at least {least}")


def route(routing: str, input_size: int, d_tree: int, d_brch: int, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """Which input each synapse takes: indices and mask, both (d_tree, d_brch).

    Raises ValueError when routing is "none" and d_tree * d_brch differs from input_size.
    """
    if routing == "none":
        if d_tree * d_brch != input_size:
            raise ValueError(
                f"routing='none' needs d_tree * d_brch = input_size, got {d_tree} * {d_brch} != {input_size}"
            )
        return torch.arange(input_size).view(d_tree, d_brch), torch.ones(d_tree, d_brch, dtype=torch.bool)
    if routing == "random":
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        repeats = math.ceil(d_brch / input_size)
        draws = [
            torch.cat([torch.randperm(input_size, generator=generator) for _ in range(repeats)])[:d_brch]
            for _ in range(d_tree)
        ]
        return torch.stack(draws), torch.ones(d_tree, d_brch, dtype=torch.bool)
    indices = (torch.arange(d_tree) * math.ceil(input_size / d_tree))[:, None] + torch.arange(d_brch)
    mask = indices < input_size
    return torch.where(mask, indices, torch.zeros_like(indices)), mask


def spaced(tau_range: tuple[float, float], d_m: int, how: str) -> Tensor:
    lo, hi = tau_range
    if not 0 < lo <= hi < math.inf:
        raise ValueError(f"tau_m_range={tuple(tau_range)}: needs 0 < low <= high (ms)")
    if how == "linspace":
        return torch.linspace(lo, hi, d_m, dtype=torch.float64)
    return torch.logspace(math.log10(lo), math.log10(hi), d_m, dtype=torch.float64)


def to_proto(tau_m: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Inverse of the scaled sigmoid; a timescale on a bound is put inside by 1e-7 of the range."""
    lo, hi = bounds
    if not 0 <= lo < hi < math.inf or float(tau_m.min()) < lo * (1 - 1e-9) or float(tau_m.max()) > hi * (1 + 1e-9):
        raise ValueError(f"tau_m_bounds={tuple(bounds)}: needs 0 <= low < high < inf and must hold tau_m_range (ms)")
    part = (tau_m - lo) / (hi - lo)
    part = torch.where(part <= 1e-12, 1e-7, torch.where(part >= 1 - 1e-12, 1 - 1e-7, part))
    return torch.logit(part).to(torch.get_default_dtype())


def kaiming(linear: nn.Linear) -> nn.Linear:
    """Kaiming uniform (Table S1), torch's own default: weights and bias from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    linear.reset_parameters()
    return linear
