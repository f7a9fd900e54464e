"""Machine code made by numba, kept on disk. A file of it that cannot be read is made again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


def njit_cached(function: Callable | None = None, **options: Any) -> Any:
    """`numba.njit(cache=True)`: as @njit_cached, or with options of njit as @njit_cached(nogil=True).

    By itself numba fails with an error that names no file where a kill or a full disk has cut off a file of its cache.
    """
    if function is None:
        return lambda function: njit_cached(function, **options)
    dispatcher: Any = njit(**options)(function)
    dispatcher._cache = _Cache(function)  # what enable_caching does, with numba's own class
    return dispatcher


class _Cache(FunctionCache):
    """numba's cache of one function, which is never the reason that a run ends."""

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what a damaged pickle raises can be anything
            with suppress(OSError):
                os.unlink(self._cache_file._index_path)
            return None

    def save_overload(self, sig, data):
        with suppress(OSError):  # no room, no permission: compiled again next time
            super().save_overload(sig, data)
