"""`runner` of a profile in params.yaml: where runs are executed. Options of Slurm are checked when it is read."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import Field, model_validator

from elm_lib.support.strict import Strict

OTHER_KEYS = ("cpus_per_task", "slurm_cpus_per_task", "slurm_array_parallelism", "slurm_time")
GPU_COUNTS = ("gpus_per_node", "slurm_gpus_per_node", "slurm_gpus_per_task", "slurm_num_gpus")
GENERIC = ("slurm_gres", "slurm_additional_parameters")  # of which a GPU is one
ONE_TASK = ("nodes", "tasks_per_node", "slurm_nodes", "slurm_ntasks_per_node")
SIGNAL_S = 90  # s before the end of a job's time at which Slurm tells it, unless `slurm_signal_delay_s` says another
EARLY_S = 60  # s by which Slurm may send a signal early (man sbatch, --signal)


class Runner(Strict):
    """Where runs are made, how many at once, and the threads of each."""

    cluster: Literal["debug", "threads", "local", "slurm"]
    jobs: int = Field(ge=1, le=10_000)
    threads: int = Field(ge=1, le=1024)
    stop_at_first: bool = False  # end all runs when one fails
    accumulate: Literal["published", "auto"] = "published"  # auto: pieces of a batch by the free memory of a GPU
    slurm: dict[str, Any] = {}  # options of submitit
    runs_per_job: int = Field(default=1, ge=1, le=1000)  # of Slurm: that many runs are threads of one job
    stage_to: str | None = None  # of Slurm: folder on the node's disk that data are copied to first

    @property
    def asks_for_gpu(self) -> bool:
        """Whether the options of Slurm ask for a GPU."""
        counts = any(name in self.slurm for name in GPU_COUNTS)
        return counts or any("gpu" in str(self.slurm.get(name, "")) for name in GENERIC)

    @property
    def signal_s(self) -> int:
        """How long before the end of a job's time Slurm tells it (s)."""
        return self.slurm.get("slurm_signal_delay_s", SIGNAL_S)

    @model_validator(mode="after")
    def _slurm_options_are_known(self):
        if self.slurm:
            _check_slurm(self.slurm)
        if self.cluster != "slurm" and (self.runs_per_job > 1 or self.stage_to is not None):
            raise ValueError(
                "runs_per_job and stage_to are for cluster: slurm only: with cluster: threads, `jobs` sets how many "
                "runs share the process"
            )
        return self


def _check_slurm(options: dict[str, Any]) -> None:
    """Raise ValueError for an option that submitit does not have, or of another type, or that other keys say; and for
    too short a time."""
    from submitit import AutoExecutor, SlurmExecutor  # slow, and of use to few

    types: dict[str, Any] = dict(AutoExecutor._typed_parameters()) | {"slurm_signal_delay_s": int}
    known = {*types, *(f"slurm_{name}" for name in SlurmExecutor._valid_parameters())}
    for name, value in options.items():
        if name in OTHER_KEYS:
            raise ValueError(f"slurm.{name}: give `threads`, `jobs` or `timeout_min` instead")
        if name in ONE_TASK and value != 1:
            raise ValueError(f"slurm.{name} = {value!r}: a job is one task on one node, so leave it out")
        if name not in known:
            near = ", ".join(get_close_matches(name, known, 1)) or f"one of {sorted(known)}"
            raise ValueError(f"slurm.{name} is no option of submitit: correct its spelling, it may be {near}")
        kinds = (int, float) if types.get(name) is float else types.get(name, object)
        if name in types and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise ValueError(f"slurm.{name} = {value!r}: must be of type {types[name].__name__}")
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise ValueError(f"slurm.{name} = {value!r}: must be above 0")
    need = options.get("slurm_signal_delay_s", SIGNAL_S) + EARLY_S  # s
    if 60 * options.get("timeout_min", math.inf) <= need:
        raise ValueError(
            f"slurm.timeout_min = {options['timeout_min']}: Slurm may signal a job {need} s before its end "
            f"(slurm_signal_delay_s + {EARLY_S} s), so no time is left to train: give {need // 60 + 1} or more"
        )
