"""What do the compiled loops of the spiking network gain in training?

    python benchmarks/spiking.py [--bins 100 20 10 4 2] [--rounds 7] [--out results/benchmarks]

Forward and backward of a batch of 8 words of about 5,000 spikes, one thread, CPU time, the least of the rounds: loops
in torch against those of `elm_lib.kernels.spiking`, interleaved. Writes spiking.csv and keeps rows of other machines.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from torch.nn import functional as F

from elm_lib.kernels.spikes import thinned
from elm_lib.models import snn
from elm_lib.training.run import device_name

CHANNELS, BATCH, SPIKES_A_WORD = 700, 8, 5000


def step(bin_ms: int, loops) -> float:
    """CPU seconds of forward and backward."""
    snn.spiking = loops
    torch.manual_seed(0)
    model = snn.SNN(CHANNELS, 500, 20, delta_t=float(bin_ms), batch_first=True)
    steps = -(-1000 // bin_ms)
    x = thinned(torch.poisson(torch.full((BATCH, steps, CHANNELS), SPIKES_A_WORD / CHANNELS / steps)))
    start = time.process_time()
    y, _ = model(x)
    (F.cross_entropy(y[:, -1], torch.arange(BATCH)) + model.penalty).backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", type=int, nargs="+", default=[100, 20, 10, 4, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    compiled, rows = snn.spiking, []
    for bin_ms in options.bins:
        step(bin_ms, compiled)  # compiles
        spent = [[step(bin_ms, loops) for loops in (None, compiled)] for _ in range(options.rounds)]
        torch_s, compiled_s = (min(column) for column in zip(*spent, strict=True))
        rows.append([device_name("cpu"), bin_ms, torch_s, compiled_s, torch_s / compiled_s])
    found = pd.DataFrame(rows, columns=["machine", "bin_ms", "torch_s", "compiled_s", "gain"]).round(4)
    path = options.out / "spiking.csv"
    if path.is_file():
        before = pd.read_csv(path)
        found = pd.concat([before[before.machine != device_name("cpu")], found])
    found.to_csv(path, index=False)
    print(found.to_markdown(index=False))


if __name__ == "__main__":
    main()
