"""Training steps a second, all told, of runs that share a GPU in threads; data generated at random.

python benchmarks/shared_gpu.py [--steps 3000]
"""

import argparse
import tempfile
import time
from pathlib import Path

import loader

from elm_lib.experiments.config import Runner
from elm_lib.experiments.execute import execute
from elm_lib.training.run import Run

TRAIN = dict(optimizer="adam", lr=5e-4, batch_size=8, epochs=1, clip_grad_norm=None)
MODELS = {
    "branch_elm": {"kind": "branch_elm", "d_m": 20},
    "elm": {"kind": "elm", "d_m": 20},
    "elm_50": {"kind": "elm", "d_m": 50},
    "lstm_15": {"kind": "lstm", "hidden_size": 15},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        for split, n in (("train", 4), ("valid", 1), ("test", 1)):
            loader.write_example(Path(folder) / split, n, 8)
        for name, jobs in (
            ("branch_elm", 1),
            ("branch_elm", 4),
            ("branch_elm", 10),
            ("elm", 1),
            ("elm_50", 1),
            ("lstm_15", 1),
        ):
            runs = [
                Run(
                    name,
                    "neuronio",
                    MODELS[name],
                    TRAIN | {"batches_per_epoch": steps if "lstm" not in name else steps // 5},
                    seed,
                    folder,
                    f"{folder}/{name}{jobs}/{seed}",
                    "cuda",
                )
                for seed in range(jobs)
            ]
            start = time.time()
            execute(runs, Runner(cluster="threads", jobs=jobs, threads=1))
            done = jobs * runs[0].train["batches_per_epoch"]
            print(f"{name}, {jobs} at once: {done / (time.time() - start):.0f} steps/s with evaluation", flush=True)


if __name__ == "__main__":
    main()
