"""The soma's membrane area from its drawn outline."""

from __future__ import annotations

import numpy as np


def soma_area(outline: np.ndarray) -> float:
    """Membrane area (um2) of a soma drawn as an outline (P, 3) in um.

    The outline is read as NEURON's Import3d reads it: walked in 100 equal steps, laid along its principal
    axis, and turned into a stack of 20 truncated cones whose 21 diameters are the distances between the
    outline's two sides.
    """
    step = np.linalg.norm(np.diff(outline[:, :2], axis=0), axis=1)
    walked = np.concatenate([[0.0], np.cumsum(step)])
    at = np.linspace(0.0, walked[-1], 101)
    points = np.stack([np.interp(at, walked, outline[:, k]) for k in range(3)], axis=1)
    points -= points.mean(axis=0)

    _, axes = np.linalg.eigh(points.T @ points)  # columns by growing spread: normal, minor, major
    minor = axes[:, 1] * [1.0, 1.0, 0.0]
    along, across = points @ axes[:, 2], points @ minor

    start = np.argmax(along)
    along, across = np.roll(along, -start), np.roll(across, -start)
    turn = np.argmin(along)
    side_a = _rising(along[:turn][::-1], across[:turn][::-1])
    side_b = _rising(along[turn:], across[turn:])

    ends = np.sort(np.concatenate([side_a[0], side_b[0]]))
    grid = np.linspace(ends[1], ends[-2], 21)
    diameter = np.abs(np.interp(grid, *side_a) - np.interp(grid, *side_b))
    diameter[0], diameter[-1] = diameter[:2].mean(), diameter[-2:].mean()  # no pointed ends

    slant = np.sqrt(np.diff(grid) ** 2 + 0.25 * np.diff(diameter) ** 2)
    return float(np.sum(0.5 * np.pi * (diameter[1:] + diameter[:-1]) * slant))


def _rising(along: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop the points where the outline turns back, so that `along` only grows."""
    beyond = np.minimum.accumulate(along[::-1])[::-1]
    keep = np.append(along[:-1] < beyond[1:], True)
    return along[keep], across[keep]
