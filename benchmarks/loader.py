"""How long does it take to read a NeuronIO training batch (8 windows of 500 ms) from disk?

    python benchmarks/loader.py [--folder data/processed/neuronio/train] [--out results/benchmarks]

Without a folder, 256 simulations of 6 s with the spike counts of the published input ranges are written to a temporary
one. Reported per batch, on one thread: the sparse form with both targets, the same after the files
were dropped from the page cache, and the dense input (what a plain LSTM needs). Writes loader.csv and loader.md.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from elm_lib.datasets.neuronio.batches import Windows
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.datasets.neuronio.writer import write_simulations

DURATION_MS = 6000
SPIKES_PER_MS = 14.0  # per simulation: 2 trees * (4 excitatory + 3 inhibitory), the middle of the published ranges


def write_example(folder: Path, n_files: int = 16, n_simulations: int = 16) -> None:
    """Random files with the size of generated ones."""
    for i in range(n_files):
        rng = np.random.default_rng([0, i])
        counts = rng.poisson(SPIKES_PER_MS * DURATION_MS, n_simulations)
        write_simulations(
            folder / f"sims_{i:05d}.h5",
            spikes=[(rng.integers(1278, size=c), rng.integers(DURATION_MS, size=c)) for c in counts],
            soma_voltage=rng.normal(-67, 4, (n_simulations, DURATION_MS)),
            output_spikes_ms=[np.sort(rng.uniform(0, DURATION_MS, 6)) for _ in range(n_simulations)],
            source="generated",
            provenance={"benchmark": "loader"},
        )


def drop_from_cache(simulations: SimulationSet) -> None:
    """Ask the kernel to forget the files, so that the next read comes from the disk."""
    for file in simulations.files:
        descriptor = os.open(file.path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def milliseconds(action, n: int, before=None) -> tuple[float, float, float]:
    """Median and 95th percentile of the wall time, and mean CPU time, of n calls action(step), each after before()."""
    wall, cpu = [], []
    for step in range(n):
        if before:
            before()
        start, start_cpu = time.perf_counter(), time.thread_time()
        action(step)
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.thread_time() - start_cpu))
    return float(np.median(wall)), float(np.percentile(wall, 95)), float(np.mean(cpu))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="a folder of NeuronIO files; default: random ones of the same size")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        if args.folder is None:
            write_example(Path(scratch))
        start = time.perf_counter()
        simulations = SimulationSet(args.folder or scratch)
        opened = 1e3 * (time.perf_counter() - start) / len(simulations.files)
        windows = Windows(simulations, seed=0)
        spikes = np.mean([len(windows.batch(0, s).channel) for s in range(20)])
        rows = [
            ("sparse batch, files in the page cache", *milliseconds(lambda s: windows.batch(1, s), 500)),
            (
                "sparse batch, files dropped from the page cache",
                *milliseconds(lambda s: windows.batch(2, s), 50, lambda: drop_from_cache(simulations)),
            ),
            ("sparse batch + dense input", *milliseconds(lambda s: windows.batch(3, s).x.dense(), 100)),
        ]
        n_files = len(simulations.files)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "loader.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "median_ms", "p95_ms", "cpu_ms"])
        writer.writerows((what, *(f"{number:.2f}" for number in numbers)) for what, *numbers in rows)
    lines = [
        "# Reading a NeuronIO training batch: 8 windows of 500 ms, one thread",
        "",
        (
            f"{n_files} files, {len(simulations)} simulations, {spikes:.0f} spikes a batch; "
            f"opening and checking a file: {opened:.1f} ms, once."
        ),
        "",
        "| | wall, median ms | wall, 95 % ms | CPU, mean ms |",
        "|---|---|---|---|",
        *(f"| {what} | " + " | ".join(f"{number:.2f}" for number in numbers) + " |" for what, *numbers in rows),
    ]
    text = "\n".join(lines) + "\n"
    (args.out / "loader.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
