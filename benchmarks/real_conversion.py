"""What does it cost to convert one published NeuronIO file (128 simulations of 6 s)?

    python benchmarks/real_conversion.py [--out results/benchmarks]

The file is random, of exactly the published format: each input spike a numpy scalar of its own, about as many as the
published ranges give. Time and peak memory of the conversion are measured in a process of its own. Writes
real_conversion.csv and real_conversion.md.
"""

import argparse
import csv
import multiprocessing
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # who writes the published format

from neuronio_pickles import example, file_name, python2_dumps

from elm_lib.datasets.neuronio.published import convert_file
from elm_lib.support.files import file_digest

N_SIMULATIONS, DURATION_MS = 128, 6000
RATE = 14 / 1278  # per ms and synapse: 2 trees * (4 excitatory + 3 inhibitory) events per ms


def peak_mb() -> float:
    """Highest resident memory of this process so far (ru_maxrss would count the parent's)."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1e3


def convert_and_measure(source: Path, target: Path, sha256: str) -> tuple[float, float, float]:
    """Seconds of CPU; MB of peak memory of this process before and after."""
    before = peak_mb()
    start = time.process_time()
    convert_file(source, target, "Data_test", sha256)
    return time.process_time() - start, before, peak_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        content = example(N_SIMULATIONS, DURATION_MS, rate=RATE)
        source, target = Path(scratch) / file_name(content), Path(scratch) / "out.h5"
        source.write_bytes(python2_dumps(content))
        del content
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, before, peak = pool.apply(convert_and_measure, (source, target, file_digest(source)))
        sizes = source.stat().st_size / 1e6, target.stat().st_size / 1e6
    row = {
        "published_MB": f"{sizes[0]:.0f}",
        "converted_MB": f"{sizes[1]:.0f}",
        "cpu_s": f"{seconds:.1f}",
        "peak_MB": f"{peak:.0f}",
        "peak_before_MB": f"{before:.0f}",
    }
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "real_conversion.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)
    text = (
        f"# Converting one file of the published format ({N_SIMULATIONS} simulations of {DURATION_MS} ms)\n\n"
        f"| {' | '.join(key.replace('_', ' ') for key in row)} |\n|{'---|' * len(row)}\n"
        f"| {' | '.join(row.values())} |\n\n"
        "Peak memory is that of the converting process; before: with the libraries loaded, no file read.\n"
    )
    (args.out / "real_conversion.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
