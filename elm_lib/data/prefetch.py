"""Read ahead in a background thread, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def prefetch(read: Callable[[Key], Value], keys: Iterable[Key], *, depth: int = 4) -> Iterator[Value]:
    """Yield read(key) for each key, in order, while one background thread reads up to `depth` keys ahead.

    An exception in `read` is raised here, at its place in the order. The thread ends when the iterator is exhausted,
    closed or dropped. `keys` may be endless.

    >>> list(prefetch(abs, [-1, -2, -3]))
    [1, 2, 3]
    """
    keys = iter(keys)
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        ahead = deque(pool.submit(read, key) for key in islice(keys, depth))
        while ahead:
            value = ahead.popleft().result()
            ahead.extend(pool.submit(read, key) for key in islice(keys, 1))
            yield value
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
