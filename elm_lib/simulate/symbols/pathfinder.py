"""Pathfinder: are the two discs ends of one dashed contour, or of two?

Linsley et al. 2018 (arXiv:1805.08315), as the Long Range Arena sets it up (Tay et al. 2021, arXiv:2011.04006). An image
holds two long contours of 14 paddles, that start near each other in the middle, and shorter ones that distract.
Label 1: the discs mark both ends of one long contour; label 0: the start of one and the end of the other.

A contour grows paddle by paddle. From the pivot, `margin` behind the tail of a paddle, its head lies at a distance of
margin + length in a direction drawn with P(turn) ~ cos^2(min(continuity |turn|, pi/2)); the next pivot lies `margin`
beyond the head. No paddle comes nearer to another than 2 margin, the gap between neighbours in a contour, plus its
thickness. A contour that finds no way starts again, for the long ones both.

What the published recipe leaves to its pixels is exact here: coordinates are not rounded up to whole pixels, "nearer"
is a distance and not an overlap of masks, and an image is sampled 4 x 4 times a pixel where the published one is
drawn 2 x 2 and resized. Generated images are therefore as the published ones in kind and statistics, not in each pixel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elm_lib.simulate.symbols.raster import draw_bar, draw_disc
from elm_lib.support.compiled import njit_cached

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md
RETRIES = 2  # of a paddle that would come too near, of a seed
DISTRACTOR_RETRIES = 4  # of a short contour that finds no way; then it is left out
_SEED_TRIALS = 200  # uniform places before an image counts as full
_ANGLES = 32  # directions that a paddle chooses from; the published ring of pixels has 5 to 14 of them within reach


class Recipe(NamedTuple):
    """What an image is made of; lengths in pixels."""

    size: int
    margins: tuple[int, ...]  # one is drawn for each image
    padding: int  # free border
    paddle_length: float
    paddle_thickness: float
    marker_radius: float
    contour_length: int  # paddles of a long contour
    seed_distance: float  # between the starts of the two long contours; they lie twice as far from the border
    continuity: float
    distractor_length: int  # paddles of a short contour
    distractors: int
    overdraw: float  # beyond either end of a paddle: the published drawing fills the end pixels of its 2 x finer grid
    contour_contrast: float  # brightness before the image is scaled to its brightest pixel; a disc's is 1
    distractor_contrast: float


# the benchmark's data set builder, lra_benchmarks/data/pathfinder.py; contour_contrast is its product of both contrasts
RECIPES = {
    32: Recipe(32, (1,), 1, 2.0, 0.5, 1.5, 14, 7.0, 1.0, 4, 5, 0.3, 1.5, 2.0),
    128: Recipe(128, (2, 3), 1, 5.0, 1.5, 3.0, 14, 20.0, 1.8, 4, 8, 0.3, 0.9, 0.9),
}


class Scene(NamedTuple):
    """One drawn image before it is an image. Coordinates in pixels, (x, y); pixel (row, column) spans (column, row) to
    +1."""

    paddles: np.ndarray  # float64 (P, 4): tail x, y, head x, y; the two long contours first
    contour: np.ndarray  # int64 (P,): 0 and 1 the long ones, then the distractors
    markers: np.ndarray  # float64 (2, 2): centres of the discs
    margin: int
    label: int
    attempts: int  # pairs of long contours that were begun


def draw_scene(seed: int, index: int, recipe: Recipe, label: int | None = None) -> Scene:
    """Scene number `index`, a function of (seed, index, recipe, label); label 0 or 1, None draws it with even
    chance."""
    rng = np.random.default_rng([seed, index])
    drawn = int(rng.integers(2))
    label = drawn if label is None else label
    margin = int(recipe.margins[rng.integers(len(recipe.margins))])
    paddles = np.empty((2 * recipe.contour_length + recipe.distractors * recipe.distractor_length, 4))
    contour = np.empty(len(paddles), np.int64)
    n, attempts = _draw_contours(
        rng,
        float(recipe.size),
        float(margin),
        float(recipe.padding),
        recipe.paddle_length,
        recipe.paddle_thickness,
        recipe.contour_length,
        recipe.seed_distance,
        recipe.continuity,
        recipe.distractor_length,
        recipe.distractors,
        paddles,
        contour,
    )
    first = int(rng.integers(2))
    last = first if label else 1 - first
    markers = np.stack([paddles[first, :2], paddles[2 * (recipe.contour_length - 1) + last, 2:]])
    return Scene(paddles[:n], contour[:n], markers, margin, label, attempts)


def render(scene: Scene, recipe: Recipe, markers: bool = True) -> np.ndarray:
    """The scene as grey values, uint8 (size, size), its brightest pixel 255."""
    image = np.zeros((recipe.size, recipe.size))
    contrast = np.where(scene.contour < 2, recipe.contour_contrast, recipe.distractor_contrast)
    for (x_0, y_0, x_1, y_1), brightness in zip(scene.paddles, contrast, strict=True):
        draw_bar(image, x_0, y_0, x_1, y_1, recipe.paddle_thickness / 2, recipe.overdraw, brightness)
    for x, y in scene.markers if markers else ():
        draw_disc(image, x, y, recipe.marker_radius)
    return np.rint(image * (255 / image.max())).astype(np.uint8)


def generate(first: int, n: int, seed: int, size: int = 32, *, balanced: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Images first .. first + n - 1: uint8 (n, size, size) and labels int64 (n,). size: 32 or 128.

    Image k is a function of (seed, k). balanced: labels alternate; else they are drawn, as published.
    """
    if size not in RECIPES:
        raise ValueError(f"size = {size}: recipes are published for {sorted(RECIPES)}")
    recipe = RECIPES[size]
    images, labels = np.empty((n, size, size), np.uint8), np.empty(n, np.int64)
    for k in range(n):
        scene = draw_scene(seed, first + k, recipe, (first + k) % 2 if balanced else None)
        images[k], labels[k] = render(scene, recipe), scene.label
    return images, labels


@njit_cached
def _draw_contours(
    rng,
    size,
    margin,
    padding,
    length,
    thickness,
    contour_length,
    seed_distance,
    continuity,
    distractor_length,
    distractors,
    paddles,
    contour,
):
    """Fill paddles and contour; returns how many paddles there are and how many pairs of long contours were begun.

    The long contours grow in turns: paddles 2 k and 2 k + 1 are the k-th of either.
    """
    border = padding + margin + thickness / 2
    apart = 2 * margin + thickness
    attempts = 0
    done = False
    while not done:
        attempts += 1
        if not _seed_pair(rng, size, length, seed_distance, border, apart, paddles):
            continue
        contour[0], contour[1] = 0, 1
        n = 2
        done = True
        while done and n < 2 * contour_length:
            done = _extend(rng, paddles, n, n - 2, size, margin, length, continuity, border, apart)
            contour[n] = n % 2
            n += 1
    for k in range(distractors):
        for _ in range(DISTRACTOR_RETRIES + 1):
            if not _seed(rng, paddles, n, size, length, border, apart):
                continue
            m = n + 1
            grown = True
            while grown and m < n + distractor_length:
                grown = _extend(rng, paddles, m, m - 1, size, margin, length, continuity, border, apart)
                m += 1
            if grown:
                contour[n:m] = 2 + k
                n = m
                break
    return n, attempts


@njit_cached
def _seed_pair(rng, size, length, seed_distance, border, apart, paddles):
    """First paddles of the long contours: tails seed_distance apart, the first at least twice that from the border."""
    room = size - 4 * seed_distance
    x = 2 * seed_distance + rng.random() * room
    y = 2 * seed_distance + rng.random() * room
    _place(paddles, 0, x, y, 2 * np.pi * rng.random(), length)
    if not _inside(paddles, 0, size, border):
        return False
    for _ in range(RETRIES + 1):
        towards = 2 * np.pi * rng.random()
        _place(
            paddles,
            1,
            x + seed_distance * np.cos(towards),
            y + seed_distance * np.sin(towards),
            2 * np.pi * rng.random(),
            length,
        )
        if _inside(paddles, 1, size, border) and _free(paddles, 1, 1, apart):
            return True
    return False


@njit_cached
def _seed(rng, paddles, n, size, length, border, apart):
    """First paddle of a short contour, at a uniform free place and direction, into row n."""
    for _ in range(_SEED_TRIALS):
        _place(paddles, n, rng.random() * size, rng.random() * size, 2 * np.pi * rng.random(), length)
        if _inside(paddles, n, size, border) and _free(paddles, n, n, apart):
            return True
    return False


@njit_cached
def _extend(rng, paddles, n, last, size, margin, length, continuity, border, apart):
    """The paddle after row `last`, into row n: False where there is no way."""
    dx, dy = paddles[last, 2] - paddles[last, 0], paddles[last, 3] - paddles[last, 1]
    heading = np.arctan2(dy, dx)
    px, py = paddles[last, 2] + margin * dx / length, paddles[last, 3] + margin * dy / length
    half = min(np.pi, np.pi / (2 * continuity))
    reach = length + apart  # what begins farther away is not near
    turns = np.empty(_ANGLES)
    weight = np.empty(_ANGLES)
    total = 0.0
    for k in range(_ANGLES):  # directions whose head is free, as the recipe asks before it draws
        turns[k] = half * ((2 * (k + rng.random())) / _ANGLES - 1)
        angle = heading + turns[k]
        hx, hy = px + (margin + length) * np.cos(angle), py + (margin + length) * np.sin(angle)
        free = border <= hx <= size - border and border <= hy <= size - border
        i = 0
        while free and i < n:
            near = abs(hx - paddles[i, 0]) <= reach and abs(hy - paddles[i, 1]) <= reach
            free = i == last or not near or _point_to_bar(hx, hy, paddles, i) > apart
            i += 1
        weight[k] = np.cos(continuity * turns[k]) ** 2 if free else 0.0
        total += weight[k]
    if total < 1e-4:
        return False
    for _ in range(RETRIES + 1):
        rest = rng.random() * total
        k = 0
        while k < _ANGLES - 1 and rest >= weight[k]:
            rest -= weight[k]
            k += 1
        angle = heading + turns[k]
        _place(paddles, n, px + margin * np.cos(angle), py + margin * np.sin(angle), angle, length)
        if weight[k] > 0 and _inside(paddles, n, size, border) and _free(paddles, n, last, apart):
            return True
    return False


@njit_cached
def _place(paddles, n, x, y, angle, length):
    paddles[n, 0], paddles[n, 1] = x, y
    paddles[n, 2], paddles[n, 3] = x + length * np.cos(angle), y + length * np.sin(angle)


@njit_cached
def _inside(paddles, n, size, border):
    return paddles[n].min() >= border and paddles[n].max() <= size - border


@njit_cached
def _free(paddles, n, but, apart):
    """Whether row n keeps its distance from all rows before it, row `but` aside."""
    reach = apart + 2 * np.hypot(paddles[n, 2] - paddles[n, 0], paddles[n, 3] - paddles[n, 1])  # as far as two paddles
    for i in range(n):
        near = abs(paddles[n, 0] - paddles[i, 0]) <= reach and abs(paddles[n, 1] - paddles[i, 1]) <= reach
        if i != but and near and _bar_to_bar(paddles, i, n) <= apart:
            return False
    return True


@njit_cached
def _bar_to_bar(paddles, i, j):
    """Distance between two centre lines; 0 where they cross."""
    ax, ay, bx, by = paddles[i]
    cx, cy, dx, dy = paddles[j]
    c = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    d = (bx - ax) * (dy - ay) - (by - ay) * (dx - ax)
    a = (dx - cx) * (ay - cy) - (dy - cy) * (ax - cx)
    b = (dx - cx) * (by - cy) - (dy - cy) * (bx - cx)
    if c * d < 0 and a * b < 0:
        return 0.0
    return min(
        min(_point_to_bar(ax, ay, paddles, j), _point_to_bar(bx, by, paddles, j)),
        min(_point_to_bar(cx, cy, paddles, i), _point_to_bar(dx, dy, paddles, i)),
    )


@njit_cached
def _point_to_bar(x, y, paddles, i):
    """Distance of a point from a centre line."""
    ax, ay, bx, by = paddles[i]
    ux, uy = bx - ax, by - ay
    t = ((x - ax) * ux + (y - ay) * uy) / (ux * ux + uy * uy)
    t = min(1.0, max(0.0, t))
    return np.hypot(x - ax - t * ux, y - ay - t * uy)
