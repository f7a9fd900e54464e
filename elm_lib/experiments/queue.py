"""What Slurm's commands say about jobs. Accounting (sacct) is used where it is on, and not needed."""

from __future__ import annotations

import getpass
import re
import signal
import subprocess
from dataclasses import dataclass

# states from which a job goes on: `man squeue`, JOB STATE CODES
LIVE = (
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "STAGE_OUT",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
)
CALL_S = 60  # s that a command may take


@dataclass(frozen=True)
class Job:
    """A line of squeue."""

    id: str  # 12, or 12_3 of an array
    state: str
    reason: str  # why it waits
    name: str

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"


def jobs() -> dict[str, Job] | None:
    """Jobs of this user by id, also those that ended in the last minutes. None: Slurm does not answer now."""
    said = _call(
        "squeue", "--noheader", "--array", "--states=all", f"--user={getpass.getuser()}", "--format=%i|%T|%r|%j"
    )
    if said is None:
        return None
    lines = [line.split("|", 3) for line in said.splitlines() if line.count("|") >= 3]
    return {parts[0]: Job(*parts) for parts in lines}


def ending(job_id: str, seen: str = "") -> str:
    """How a job ended, in Slurm's words: "OUT_OF_MEMORY", "FAILED (Killed)", "CANCELLED".

    seen  its last state that squeue told
    """
    told = _call("scontrol", "show", "job", job_id, "--oneliner") or ""
    state, code = (re.search(rf"\b{key}=(\S+)", told) for key in ("JobState", "ExitCode"))
    found = [state[1], code[1]] if state and code else []
    if not found or found[0] in LIVE:
        said = _call(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode", f"--jobs={job_id}"
        )
        found = said.splitlines()[0].split("|") if said and "|" in said else found
    if not found or found[0] in LIVE:
        return seen if seen and seen not in LIVE else "gone from Slurm's queue"
    return " ".join(filter(None, [found[0].split()[0], _by_signal(found[1])]))


def _by_signal(code: str) -> str:
    """ "137:0" -> "(Killed)": what a shell makes of a signal, or a signal itself."""
    status, by = (int(part) if part.isdigit() else 0 for part in code.split(":"))
    number = by or (status - 128 if status > 128 else 0)
    return f"({signal.strsignal(number)})" if number in signal.valid_signals() else ""


def cancel(job_ids: list[str]) -> None:
    """End jobs that are pending or running."""
    if job_ids:
        _call("scancel", *job_ids)


def most_in_array() -> int:
    """How many jobs an array may have."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _call("scontrol", "show", "config") or "")
    return max(1, int(found[1]) - 1) if found else 1000


def _call(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=CALL_S).stdout
    except (OSError, subprocess.SubprocessError):
        return None
