"""Runs in threads of this process: many small ones share a GPU."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass

from elm_lib.support.errors import ConfigError, DataError
from elm_lib.training.run import Run, train_run


@dataclass(frozen=True)
class Ended:
    """A run that works no longer: it is done, or was told to end, or failed."""

    run: Run
    reason: str = ""  # why it failed, in one line
    error: Exception | None = None


def train_here(run: Run, over: Callable[[int], bool]) -> Ended:
    """Train in this thread. `over` is called with the number of steps done; True: save a checkpoint and end."""
    try:
        if not over(0):
            train_run(run, over=over)
        return Ended(run)
    except Exception as error:
        return Ended(run, reason_of(error), error)


def reason_of(error: Exception) -> str:
    """An error as one line. Those of ours say all in their text."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ConfigError | DataError) and text else f"{type(error).__name__}: {text}"


def in_threads(runs: list[Run], jobs: int, over: Callable[[int], bool]) -> Iterator[list[Ended]]:
    """Train in `jobs` threads. Yields twice a second the runs that have ended since.

    over  see `train_here`

    An interrupt, and the end of this iterator, let all of them save a checkpoint and end.
    """
    ends, before = threading.Event(), sys.getswitchinterval()
    if jobs > 1:
        sys.setswitchinterval(0.0005)  # s: a thread that draws batches must not keep the others from launching theirs
    with ThreadPoolExecutor(jobs) as pool:
        try:
            waiting = {pool.submit(train_here, run, lambda step: ends.is_set() or over(step)) for run in runs}
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                yield [future.result() for future in done]
        finally:
            ends.set()
            pool.shutdown(wait=False, cancel_futures=True)
            sys.setswitchinterval(before)
