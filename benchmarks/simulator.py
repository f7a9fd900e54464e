"""How long does one 6 s simulation of the layer-5 pyramidal cell take, here, in Arbor and in NEURON?

    python benchmarks/simulator.py [--morphology FILE] [--duration-ms 1000] [--out results/benchmarks]

All engines get the same cell, the same input (narrower ranges) and one core; CPU seconds are scaled to 6 s.
NEURON needs `pip install neuron` and a C++ compiler, Arbor `pip install arbor`, a C++ compiler and cmake;
what is missing is left out, and said so. "error" is the largest difference of the soma's voltage from
NEURON's with a step of 0.025 ms in the first 100 ms. Writes simulator.csv and simulator.md.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from elm_lib.datasets.neuronio.morphology import fetch_morphology
from elm_lib.simulate.cell import inputs, l5pc
from elm_lib.simulate.cell.morphology import load_cell
from elm_lib.support.files import write_atomically
from elm_lib.support.workers import usable_cores

HERE = Path(__file__).resolve().parent
DURATION_MS = 6000
OTHERS = {  # engine -> (file beside this one, steps)
    "NEURON": ("neuron_l5pc.py", ("cvode", "0.025", "0.05", "0.1")),
    "Arbor": ("arbor_l5pc.py", ("0.025", "0.05", "0.1")),
}


def ours(cell, indptr: np.ndarray, channel: np.ndarray, dt_ms: float) -> tuple[float, np.ndarray]:
    """CPU seconds for one of 16 simulations, and the soma's voltage at whole ms."""
    start = time.process_time()
    recording = l5pc.simulate(cell, np.stack([indptr] * l5pc.LANES), channel, dt_ms=dt_ms)
    return (time.process_time() - start) / l5pc.LANES, recording.at_whole_ms()[0, 0]


def others(engine: str, morphology: Path, input_file: Path, folder: Path) -> list[tuple[str, float, np.ndarray]]:
    """(step, CPU seconds, voltage) of another engine, in processes of its own."""
    script, steps = OTHERS[engine]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]), "OMP_NUM_THREADS": "1"}
    build = f"import pathlib, {Path(script).stem} as other; other.build(pathlib.Path('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=folder, env=environment, check=True, capture_output=True)
    results = []
    for step in steps:
        command = [sys.executable, str(HERE / script), str(morphology), str(input_file), step]
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        results.append((step, answer["cpu_s"], np.array(answer["voltage_mV"])))
    return results


def processor() -> str:
    """Name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return f"{names[0] if names else platform.processor() or platform.machine()}, {usable_cores()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--morphology", type=Path, help="default: fetched into data/raw/l5pc, the exact one if it is there"
    )
    parser.add_argument("--duration-ms", type=int, default=1000, help="simulated by each, scaled to 6000")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "benchmarks")
    options = parser.parse_args()
    morphology = options.morphology or fetch_morphology(HERE.parent / "data" / "raw" / "l5pc", "auto")
    cell = load_cell(morphology)
    channel, time_ms = inputs.draw_input(cell, seed=0, index=0, ranges="narrow", duration_ms=DURATION_MS)
    indptr = inputs.to_indptr(time_ms, DURATION_MS)[: options.duration_ms + 1]
    channel, scale = channel[: indptr[-1]], DURATION_MS / options.duration_ms

    start = time.perf_counter()
    l5pc.simulate(cell, indptr[None, :2], channel, dt_ms=1.0)
    ready_s = time.perf_counter() - start
    runs = []
    for dt_ms in (0.025, 0.05, 0.1):
        cpu_s, voltage = ours(cell, indptr, channel, dt_ms)
        runs.append(("ours", f"{dt_ms:g}", cpu_s * scale, voltage))
    notes = [
        f"{options.duration_ms} ms simulated, scaled to 6000 ms. Ours: 16 simulations in SIMD lanes; "
        f"compiled or read from its cache in {ready_s:.1f} s."
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        np.savez(folder / "input.npz", indptr=indptr, channel=channel)
        for engine in OTHERS:
            package = engine.lower()
            if importlib.util.find_spec(package) is None:
                notes.append(f"{engine} is left out: not installed (pip install {package}).")
                continue
            notes.append(f"{engine} {importlib.metadata.version(package)}.")
            try:
                for step, cpu_s, voltage in others(engine, morphology.resolve(), folder / "input.npz", folder):
                    runs.append((engine, step, cpu_s * scale, voltage))
            except (subprocess.CalledProcessError, OSError) as error:
                reason = (getattr(error, "stderr", None) or str(error)).strip()
                reason = (reason.decode() if isinstance(reason, bytes) else reason).splitlines()[-1:]
                notes.append(
                    f"{engine} is left out: it did not build or run ({' '.join(reason)}); it needs a C++ compiler."
                )
    report(options.out, cell, runs, notes)


def report(out: Path, cell, runs: list[tuple], notes: list[str]) -> None:
    """Write and print the table."""
    reference = next((v for engine, step, _, v in runs if engine == "NEURON" and step == "0.025"), None)
    cvode = next((cpu for engine, step, cpu, _ in runs if step == "cvode"), None)
    rows = []
    for engine, step, cpu_s, voltage in runs:
        error = "" if reference is None or step == "cvode" else f"{np.abs(voltage[:100] - reference[:100]).max():.4f}"
        faster = "" if cvode is None else f"{cvode / cpu_s:.1f}"
        rows.append(
            {"engine": engine, "dt_ms": step, "cpu_s_per_6s": f"{cpu_s:.2f}", "times_cvode": faster, "error_mV": error}
        )
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "simulator.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = [
        "# One simulation of 6 s",
        "",
        f"Morphology {cell.reconstruction.name}; {processor()}; CPU seconds on one core.",
        "",
    ]
    text += ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    text += ["| " + " | ".join(row.values()) + " |" for row in rows] + ["", *notes, ""]
    write_atomically(out / "simulator.md", "\n".join(text).encode())
    print("\n".join(text))


if __name__ == "__main__":
    main()
