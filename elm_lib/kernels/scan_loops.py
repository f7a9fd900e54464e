"""The loop of `elm_lib.kernels.scan`, compiled by numba."""

from __future__ import annotations

from elm_lib.support.compiled import njit_cached


@njit_cached(nogil=True, error_model="numpy")
def decay(real, imaginary, x, h, backwards):
    """Fill h (B, T, 2 P): h_t = a h_{t-1} + x_t, or h_t = a h_{t+1} + x_t. real, imaginary (P,): the parts of a."""
    batch, steps, width = x.shape
    half = width // 2
    for b in range(batch):
        for n in range(steps):
            t = steps - 1 - n if backwards else n
            if n == 0:
                for p in range(width):
                    h[b, t, p] = x[b, t, p]
            else:
                before = t + 1 if backwards else t - 1
                for p in range(half):
                    h_r, h_i = h[b, before, p], h[b, before, half + p]
                    h[b, t, p] = real[p] * h_r - imaginary[p] * h_i + x[b, t, p]
                    h[b, t, half + p] = real[p] * h_i + imaginary[p] * h_r + x[b, t, half + p]
