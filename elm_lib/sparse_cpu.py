"""The loops of `elm_lib.sparse`, compiled by numba. Innermost over contiguous numbers, in the order written."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def gather_sum(row_ptr, channel, value, weight, out):
    """out[row] += value weight[channel], over the spikes of each row; weight (C, D), out (rows, D)."""
    for row in range(out.shape[0]):
        for k in range(row_ptr[row], row_ptr[row + 1]):
            c, v = channel[k], value[k]
            for d in range(out.shape[1]):
                out[row, d] += v * weight[c, d]


@numba.njit(cache=True, nogil=True)
def scatter_sum(row_ptr, channel, value, grad, out):
    """out[channel] += value grad[row], the gradient of `gather_sum`; grad (rows, D), out (C, D)."""
    for row in range(grad.shape[0]):
        for k in range(row_ptr[row], row_ptr[row + 1]):
            c, v = channel[k], value[k]
            for d in range(out.shape[1]):
                out[c, d] += v * grad[row, d]


@numba.njit(cache=True, nogil=True)
def decayed_sum(row_ptr, channel, value, decay, out):
    """out[b, channel] += decay[t] value, over the spikes of row b T + t; decay (T,), out (B, C)."""
    steps = decay.shape[0]
    for b in range(out.shape[0]):
        for t in range(steps):
            row = b * steps + t
            for k in range(row_ptr[row], row_ptr[row + 1]):
                out[b, channel[k]] += decay[t] * value[k]
