"""What does the compiled loop of the LSTM gain in training?

    python benchmarks/lstm.py [--rounds 5] [--out results/benchmarks]

Forward and backward of the cell for a batch as the experiments have it, one thread, CPU time, the least of the rounds:
torch.nn.LSTM, a loop in torch, and the loop of `elm_lib.kernels.lstm`, interleaved. Writes lstm.csv and keeps rows of
other machines.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch

from elm_lib.kernels import lstm
from elm_lib.training.run import device_name

# data set -> samples, steps, units
SHAPES = {
    "NeuronIO, n = 15": (8, 500, 15),
    "NeuronIO, n = 50": (8, 500, 50),
    "SHD, 2 ms": (8, 500, 250),
    "Pathfinder": (96, 256, 150),  # a piece of a batch, a quarter of the steps
}


def of_torch(p, h, c, mask, w_hh):
    """The cell of torch.nn.LSTM, which reads gates whose input part is computed already. It has no mask."""
    weights = [torch.eye(len(w_hh)), w_hh]
    y, _, c_end = torch._VF.lstm(p, (h[None], c[None]), weights, False, 1, 0.0, True, False, False)
    return y, c_end


LOOPS = {"nn_lstm_s": of_torch, "torch_s": lstm._Loop.apply, "compiled_s": lstm._Compiled.apply}


def step(run, batch: int, steps: int, n: int) -> float:
    """CPU seconds of forward and backward."""
    torch.manual_seed(0)
    p = torch.randn(steps, batch, 4 * n, requires_grad=True)
    w_hh = (torch.randn(4 * n, n) / n**0.5).requires_grad_()
    start = time.process_time()
    y, _ = run(p, torch.zeros(batch, n), torch.zeros(batch, n), torch.ones(batch, n), w_hh)
    y.backward(torch.ones_like(y))
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, shape in SHAPES.items():
        step(LOOPS["compiled_s"], *shape)  # compiles
        spent = [[step(run, *shape) for run in LOOPS.values()] for _ in range(options.rounds)]
        least = dict(zip(LOOPS, map(min, zip(*spent, strict=True)), strict=True))
        gains = {f"gain_over_{kind[:-2]}": least[kind] / least["compiled_s"] for kind in ("nn_lstm_s", "torch_s")}
        rows.append({"machine": device_name("cpu"), "data": name, **least, **gains})
    found = pd.DataFrame(rows).round(4)
    path = options.out / "lstm.csv"
    if path.is_file():
        before = pd.read_csv(path)
        found = pd.concat([before[before.machine != device_name("cpu")], found])
    found.to_csv(path, index=False)
    print(found.to_markdown(index=False))


if __name__ == "__main__":
    main()
