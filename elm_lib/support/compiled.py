"""Machine code made by numba, kept on disk. A file of it that cannot be read is made again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile


def njit_cached(function: Callable | None = None, *, uses: tuple[ModuleType, ...] = (), **options: Any) -> Any:
    """`numba.njit(cache=True)`: as @njit_cached, or with options of njit as @njit_cached(nogil=True).

    uses    modules whose code generators the function calls. numba alone would keep the machine code after a change of
            these, as it looks at the function's own file only
    By itself numba fails with an error that names no file where a kill or a full disk has cut off a file of its cache.
    """
    if function is None:
        return lambda function: njit_cached(function, uses=uses, **options)
    dispatcher: Any = njit(**options)(function)
    dispatcher._cache = _Cache(function, uses)  # what enable_caching does, with numba's own class
    return dispatcher


class _Cache(FunctionCache):
    """numba's cache of one function, which is never the reason that a run ends."""

    def __init__(self, function: Callable, uses: tuple[ModuleType, ...]) -> None:
        super().__init__(function)
        if uses:
            stamps = [os.stat(module.__file__ or "") for module in uses]
            stamp = (self._impl.locator.get_source_stamp(), *((s.st_mtime, s.st_size) for s in stamps))
            self._cache_file = IndexDataCacheFile(
                cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=stamp
            )

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
