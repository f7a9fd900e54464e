"""Read ahead in a background thread, in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
TOGETHER, TOGETHER_S = 4, 0.004  # the most keys of a turn, and the time after which it takes no other


def prefetch(read: Callable[[Key], Value], keys: Iterable[Key], *, depth: int = 2) -> Iterator[Value]:
    """Yield read(key) for each key, in order, while one background thread reads up to `depth` turns ahead.

    A turn is one key, or several where reading is quick: to wake a thread, and to wait for the interpreter's lock,
    costs as much as a batch of small windows. An exception in `read` is raised here, at its place in the order. The
    thread ends when the iterator is exhausted, closed or dropped. `keys` may be endless.

    >>> list(prefetch(abs, [-1, -2, -3]))
    [1, 2, 3]
    """
    keys = iter(keys)

    def turn() -> tuple[list[Value], Exception | None]:
        values, until = [], time.perf_counter() + TOGETHER_S
        try:
            for key in islice(keys, TOGETHER):
                values.append(read(key))
                if time.perf_counter() > until:
                    break
        except Exception as error:
            return values, error
        return values, None

    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        ahead = deque(pool.submit(turn) for _ in range(depth))
        while True:
            values, error = ahead.popleft().result()
            ahead.append(pool.submit(turn))
            yield from values
            if error:
                raise error
            if not values:
                return
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
