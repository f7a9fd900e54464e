"""Bars and discs on a grid of pixels: each pixel is as bright as the part of it that the shape covers.

Coordinates are in pixels, (x, y); pixel (row, column) spans (column, row) to +1.
"""

from __future__ import annotations

import numpy as np

from elm_lib.support.compiled import njit_cached

_SAMPLES = 4  # a pixel and axis


@njit_cached
def draw_bar(image, ax, ay, bx, by, half, beyond, brightness):
    """Raise image to brightness times the part of each pixel that a bar with flat ends covers."""
    size = len(image)
    ux, uy = bx - ax, by - ay
    length = np.hypot(ux, uy)
    ux, uy = ux / length, uy / length
    wide = half + beyond
    rows = range(max(0, int(min(ay, by) - wide)), min(size, int(max(ay, by) + wide) + 1))
    columns = range(max(0, int(min(ax, bx) - wide)), min(size, int(max(ax, bx) + wide) + 1))
    for row in rows:
        for column in columns:
            hit = 0
            for k in range(_SAMPLES * _SAMPLES):
                x = column + (k % _SAMPLES + 0.5) / _SAMPLES - ax
                y = row + (k // _SAMPLES + 0.5) / _SAMPLES - ay
                hit += -beyond <= x * ux + y * uy <= length + beyond and abs(x * uy - y * ux) <= half
            image[row, column] = max(image[row, column], brightness * hit / _SAMPLES**2)


@njit_cached
def draw_disc(image, cx, cy, radius):
    """Raise image to the part of each pixel that a disc covers."""
    size = len(image)
    for row in range(max(0, int(cy - radius)), min(size, int(cy + radius) + 1)):
        for column in range(max(0, int(cx - radius)), min(size, int(cx + radius) + 1)):
            hit = 0
            for k in range(_SAMPLES * _SAMPLES):
                x = column + (k % _SAMPLES + 0.5) / _SAMPLES - cx
                y = row + (k // _SAMPLES + 0.5) / _SAMPLES - cy
                hit += x * x + y * y <= radius * radius
            image[row, column] = max(image[row, column], hit / _SAMPLES**2)
