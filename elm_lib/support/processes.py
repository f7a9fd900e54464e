"""Long work that is killed must leave nothing behind: no orphan that goes on writing, no half file, no stale lock."""

from __future__ import annotations

import fcntl
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil
from tqdm import tqdm  # not tqdm.auto: its widgets have another id in every run

from elm_lib.support.errors import DataError

POLL_S = 0.5


def die_with(pid: int) -> None:
    """End this process and its children as soon as process `pid` is gone; a thread watches it."""
    try:
        watched = psutil.Process(pid)
    except psutil.NoSuchProcess:
        os._exit(1)
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()


def _watch(watched: psutil.Process) -> None:
    pause = threading.Event()
    while _is_alive(watched):
        pause.wait(POLL_S)
    for child in _children():
        with suppress(psutil.Error):  # it has ended meanwhile
            child.kill()
    os._exit(1)


def _is_alive(watched: psutil.Process) -> bool:
    """Whether a process runs. It may end between two looks, also within this one."""
    try:
        return watched.is_running() and watched.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OSError):  # it cannot be looked at, at this moment
        return True


def _children() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except (psutil.Error, OSError):
        return []


def for_owner_alone() -> None:
    """From here on, this process and those it starts make no file that group or others can write."""
    os.umask(os.umask(0o022) | 0o022)


def ancestor(name: str) -> int:
    """PID of the nearest ancestor whose command line holds `name`, else of the parent."""
    for process in psutil.Process().parents():
        try:
            if any(name in Path(part).name for part in process.cmdline()[:3]):
                return process.pid
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return os.getppid()


@contextmanager
def locked(folder: Path, patience_s: float = math.inf):
    """Hold a folder for one writer: waits for a former writer that is still ending. The lock dies with its process.

    patience_s  how long to wait (s)

    Raises DataError when the wait is over, which says who holds the folder, or when its file system has no locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        _lock(file, folder, patience_s)
        file.truncate(0)
        file.write(_who())
        file.flush()
        yield


def _lock(file: TextIO, folder: Path, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if math.isinf(patience_s) else fcntl.LOCK_NB))
            return
        except BlockingIOError:
            if time.monotonic() > until:
                file.seek(0)
                raise DataError(
                    f"{folder} is held by {file.read().strip() or 'another process'}: wait for its end, or end it, and "
                    "call again"
                ) from None
            time.sleep(POLL_S)
        except OSError as error:
            raise DataError(
                f"{folder}: its file system has no file locks ({error.strerror}): mount it with them (Lustre: -o "
                "flock), or put the folder elsewhere"
            ) from None


def _who() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}{f', Slurm job {job}' if job else ''}, since {since}\n"


@contextmanager
def progress(total: int | None, what: str, unit: str, initial: int = 0) -> Iterator[tqdm]:
    """A progress bar: in the notebook when a person runs it, on the terminal when the pipeline does."""
    terminal = os.environ.get("ELM_TERMINAL")
    file = None
    if terminal:
        with suppress(OSError):
            file = open(terminal, "a")  # noqa: SIM115
    try:
        options = {} if file is None else {"file": file, "mininterval": 2}
        with tqdm(total=total, desc=what, unit=unit, initial=initial, **options) as bar:
            yield bar
    finally:
        if file is not None:
            file.close()
