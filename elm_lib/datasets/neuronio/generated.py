"""Generated NeuronIO: a folder of simulations, one file for each batch of 16.

Simulation i of a split depends on (seed, i) and on what `provenance` lists, on nothing else: not on the
number of workers, not on what was interrupted when. Files are whole or absent, so a run that was killed
goes on where it stopped.
"""

from __future__ import annotations

import os
from concurrent.futures import as_completed
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from elm_lib.datasets.neuronio.schema import open_simulations, write_simulations
from elm_lib.simulate.cell import inputs, l5pc
from elm_lib.simulate.cell.morphology import Cell, load_cell
from elm_lib.support import processes
from elm_lib.support.files import need_space, read_or_set_aside
from elm_lib.support.workers import pool, usable_cores

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md
BYTES_PER_MS = 45  # of one simulation on disk: about 14 input spikes, an offset and a voltage


def generate_split(
    folder: str | os.PathLike,
    n_simulations: int,
    seed: int,
    *,
    morphology: str | os.PathLike,
    ranges: str = "script",
    dt_ms: float = 0.05,
    duration_ms: int = 6000,
    most: int | None = None,
    workers: int | None = None,
    progress: bool = True,
    silence_synapses_hit_at_zero: bool = False,
) -> list[Path]:
    """Simulate what is missing in `folder` and return its files, sims_00000.h5 and on.

    morphology  file, see `fetch_morphology`
    ranges      "narrow" (test, validation) or "script" (training), see `inputs.RANGES`
    dt_ms       0.025 as in the reference runs, 0.05 or 0.1 for training
    most        simulate no more than the first files that hold so many simulations; a call without it adds the others
    workers     processes; all usable cores by default
    silence_synapses_hit_at_zero  as in the original data: a synapse with an event at t = 0 stays silent
    Files of another configuration are replaced, files beyond n_simulations removed. A damaged file is set aside.
    Raises DataError: unknown morphology, no space. ValueError: an argument out of range.
    """
    folder = Path(folder)
    if n_simulations < 1 or duration_ms < 1:
        raise ValueError(f"n_simulations = {n_simulations}, duration_ms = {duration_ms}: both must be at least 1")
    cell = load_cell(morphology)
    settings = dict(
        seed=int(seed),
        ranges=ranges,
        dt_ms=float(dt_ms),
        duration_ms=int(duration_ms),
        silence_synapses_hit_at_zero=bool(silence_synapses_hit_at_zero),
    )
    jobs = []
    for first in range(0, n_simulations, l5pc.LANES):
        path = folder / f"sims_{first // l5pc.LANES:05d}.h5"
        jobs.append((path, os.fspath(morphology), first, min(l5pc.LANES, n_simulations - first), settings))
    every = {job[0] for job in jobs}
    jobs = [job for job in jobs if most is None or job[2] < most or job[0].exists()]
    missing = [job for job in jobs if not _is_done(*job, cell)]
    n_missing = sum(job[3] for job in missing)
    need_space(folder, n_missing * duration_ms * BYTES_PER_MS, f"{n_missing} simulations")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [job[0] for job in jobs]
    for stale in {*folder.glob("sims_*.h5"), *folder.glob("sims_*.h5.part")} - every:
        stale.unlink()
    asked = sum(job[3] for job in jobs)
    bar = processes.progress(asked, folder.name, "sim", asked - n_missing) if progress else nullcontext()
    with bar as shown:
        for n_done in _run(missing, min(workers or usable_cores(), len(missing)), cell):
            if shown is not None:
                shown.update(n_done)
    return paths


def provenance(cell: Cell, first: int, settings: dict) -> dict:
    """What the bytes of a file depend on."""
    return {
        "generator": "elm_lib.simulate",
        "generator_version": REVISION,
        "morphology": cell.reconstruction.name,
        "morphology_sha256": cell.reconstruction.sha256,
        "morphology_source": cell.reconstruction.source,
        "segment_length_um": cell.reconstruction.segment_length_um,
        "excitatory_weight": cell.reconstruction.excitatory_weight,
        "first_index": first,
        **settings,
    }


def simulate_batch(cell: Cell, first: int, n: int, settings: dict) -> dict:
    """Simulations first .. first + n - 1: the arguments of `write_simulations` that hold data."""
    duration_ms = settings["duration_ms"]
    spikes = [
        inputs.draw_input(cell, seed=settings["seed"], index=i, ranges=settings["ranges"], duration_ms=duration_ms)
        for i in range(first, first + n)
    ]
    felt = [_without_hit_at_zero(*s) for s in spikes] if settings["silence_synapses_hit_at_zero"] else spikes
    offsets = np.cumsum([0] + [len(channel) for channel, _ in felt[:-1]])
    indptr = np.stack(
        [inputs.to_indptr(time_ms, duration_ms) + k for (_, time_ms), k in zip(felt, offsets, strict=True)]
    )
    recording = l5pc.simulate(cell, indptr, np.concatenate([channel for channel, _ in felt]), dt_ms=settings["dt_ms"])
    return {
        "spikes": spikes,
        "soma_voltage": recording.at_whole_ms()[0],
        "output_spikes_ms": [l5pc.output_spikes(recording.voltage[:, 0, k], recording.time_step) for k in range(n)],
    }


def _without_hit_at_zero(channel: np.ndarray, time_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keep = ~np.isin(channel, channel[time_ms == 0])
    return channel[keep], time_ms[keep]


def _is_done(path: Path, _morphology: str, first: int, n: int, settings: dict, cell: Cell) -> bool:
    found = read_or_set_aside(path, open_simulations)
    return found is not None and found.n_simulations == n and found.provenance == provenance(cell, first, settings)


def _write_batch(path: Path, morphology: str, first: int, n: int, settings: dict) -> int:
    cell = load_cell(morphology)
    batch = simulate_batch(cell, first, n, settings)
    write_simulations(path, **batch, source="generated", provenance=provenance(cell, first, settings))
    return n


def _run(jobs: list[tuple], workers: int, cell: Cell):
    """Yields the number of simulations of each finished job."""
    if workers <= 1:
        yield from (_write_batch(*job) for job in jobs)
        return
    # Compile here, once; the workers find the machine code in numba's cache.
    l5pc.simulate(cell, np.zeros((1, 2), np.int64), np.zeros(0, np.uint16), dt_ms=1.0)
    with pool(workers) as executor:
        for future in as_completed([executor.submit(_write_batch, *job) for job in jobs]):
            yield future.result()
