"""Single-precision exp, log and x/(1-exp(-x)) that LLVM can put into SIMD lanes.

numba's own `np.exp` is a scalar call. These are branch-free, so a loop over lanes becomes vector code. NaN
stays NaN.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numba import njit
from numpy import float32 as f32
from numpy import int32 as i32

from elm_lib.support.compiled import njit_cached

# Reordering and fused multiply-add are allowed; "nnan" and "ninf" are not: a diverging run has to show NaN.
FAST = {"contract", "reassoc", "nsz", "arcp"}
inlined = njit(forceinline=True, fastmath=FAST, error_model="numpy", boundscheck=False)


def cached(function):
    """Compiled once, then read from numba's cache until any source of the simulator changes.

    By itself numba watches only the file that holds the function, not the channels that it calls. What it calls must be
    `inlined`: else a process that compiles links a callee's own machine code, one that reads the cache the caller's
    copy, and they differ in the last bit.
    """
    dispatcher = njit_cached(function, fastmath=FAST, error_model="numpy", nogil=True)
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    cache_file = dispatcher._cache._cache_file  # type: ignore[attr-defined]  # private, so tests/simulate/test_channels.py holds it
    cache_file._source_stamp = (cache_file._source_stamp, hashlib.sha256(sources).hexdigest())
    return dispatcher


LOG2_E, LN_2, SQRT_2 = f32(1.4426950408889634), f32(0.6931471805599453), f32(1.4142135623730951)


@inlined
def exp(x):
    """e^x, relative error below 1e-6 for -87 <= x <= 88; clamped to that range."""
    x = f32(-87.0) if x < f32(-87.0) else x
    x = f32(88.0) if x > f32(88.0) else x
    n = np.floor(x * LOG2_E + f32(0.5))
    f = x - n * LN_2  # |f| <= ln(2)/2: the Taylor series to f^6 leaves 1e-7
    series = f32(1 / 120) + f * f32(1 / 720)
    series = f32(1 / 24) + f * series
    series = f32(1 / 6) + f * series
    series = f32(0.5) + f * series
    series = f32(1.0) + f * series
    series = f32(1.0) + f * series
    return series * i32((i32(n) + i32(127)) << i32(23)).view(f32)  # times 2^n, put in as the exponent's bits


@inlined
def log(x):
    """Natural logarithm of a positive, normal x, absolute error below 1e-6 (1 + |log x|)."""
    bits = f32(x).view(i32)
    exponent = i32((bits >> i32(23)) - i32(127))
    mantissa = i32((bits & i32(0x007FFFFF)) | i32(0x3F800000)).view(f32)  # in [1, 2)
    large = mantissa > SQRT_2
    mantissa = mantissa * f32(0.5) if large else mantissa
    exponent = f32(exponent) + (f32(1.0) if large else f32(0.0))  # type: ignore[assignment]  # numba lets it change
    s = (mantissa - f32(1.0)) / (mantissa + f32(1.0))  # ln m = 2 artanh s, |s| < 0.172
    q = s * s
    series = f32(1.0) + q * (f32(1 / 3) + q * (f32(1 / 5) + q * (f32(1 / 7) + q * f32(1 / 9))))
    return exponent * LN_2 + f32(2.0) * s * series


@inlined
def linoid(x):
    """x / (1 - e^-x), with its limit 1 at x = 0."""
    small = abs(x) < f32(0.02)
    return f32(1.0) + x * (f32(0.5) + x * f32(1 / 12)) if small else x / (f32(1.0) - exp(-x))


@inlined
def linoid_pair(x):
    """linoid(x) and linoid(-x) at the price of one exp."""
    small = abs(x) < f32(0.02)
    e = exp(-x)
    forward = f32(1.0) + x * (f32(0.5) + x * f32(1 / 12)) if small else x / (f32(1.0) - e)
    return forward, forward * e


@inlined
def logistic(x):
    """1 / (1 + e^-x)"""
    return f32(1.0) / (f32(1.0) + exp(-x))
