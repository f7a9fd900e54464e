"""What of the engine's speed reaches its user?

    python benchmarks/practice.py [--rounds 7] [--steps 5700] [--out results/benchmarks]

* inference: 2 s of one stream (T = 2000, B = 1), no gradient, against the step loop of `recurrence.py`; one thread, CPU
  time, interleaved
* two threads: a training step with one and with two threads, wall time, interleaved
* training loop: a step of `train_run` on NeuronIO files of the published size, an epoch of profile desk: data loading,
  optimiser and validation on 16 simulations included, what torch loads once a process (2 s) aside, against forward and
  backward alone on the same batches; one thread for the model, one that draws batches

Writes practice.csv and practice.md; the rows of other machines are kept.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from operator import le
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from loader import write_example
from recurrence import CONFIGURATIONS, contenders, make_input, step_loop, timed, training_step

from elm_lib.datasets.neuronio.task import Task
from elm_lib.experiments.work import commit
from elm_lib.models.registry import build
from elm_lib.training.run import Run, device_name, train_run

INFERENCE_STEPS = 2000  # ms of 1 ms
MODELS = {
    "neuronio_branch_elm": {"kind": "branch_elm", "d_m": 20, "d_tree": 45, "d_brch": 100},
    "neuronio_elm": {"kind": "elm", "d_m": 20},
}


def ratio_row(what: str, name: str, base: list[float], ours: list[float]) -> dict:
    """Medians, and the median ratio of interleaved rounds with its spread."""
    ratios = np.array(base) / np.array(ours)
    return {
        "what": what,
        "configuration": name,
        "ms_base": np.median(base),
        "ms": np.median(ours),
        "ratio": np.median(ratios),
        "ratio_10": np.percentile(ratios, 10),
        "ratio_90": np.percentile(ratios, 90),
    }


def wall_ms(action) -> float:
    start = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - start)


def inference(rounds: int) -> list[dict]:
    rows = []
    for name in ("neuronio_branch_elm", "neuronio_elm", "shd"):
        inputs, spikes, _, _, make, *_ = CONFIGURATIONS[name]
        torch.manual_seed(0)
        model = make().eval()
        sparse, dense = make_input(inputs, spikes, 1, INFERENCE_STEPS, "cpu")
        with torch.no_grad():
            for kind, x in (("spikes", sparse), ("dense", dense)):
                actions = (partial(step_loop, model, dense), partial(model, x))
                times = [[timed(action, "cpu") for action in actions] for _ in range(rounds)]
                rows.append(ratio_row(f"inference of 2 s, {kind}", name, *zip(*times, strict=True)))
    return rows


def two_threads(rounds: int) -> list[dict]:
    rows = []
    for name in ("neuronio_branch_elm", "neuronio_elm", "shd", "pathfinder"):
        actions = contenders(name, "cpu")[3]
        action = actions.get(("cpu", "spikes"), actions["cpu", "dense"])
        times = []
        for _ in range(rounds):
            pair = []
            for threads in (1, 2):
                torch.set_num_threads(threads)
                action()
                pair.append(wall_ms(action))
            times.append(pair)
        rows.append(ratio_row("two threads against one", name, *zip(*times, strict=True)))
    torch.set_num_threads(1)
    return rows


def training_loop(steps: int) -> list[dict]:
    """ms_base: forward and backward alone; ms: a step of the loop, all included."""
    rows = []
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        folder = Path(scratch)
        for split, n_files in (("train", 16), ("valid", 1), ("test", 1)):
            write_example(folder / split, n_files=n_files)
        train = {
            "optimizer": "adam",
            "lr": 5e-4,
            "batch_size": 8,
            "epochs": 1,
            "batches_per_epoch": steps,
            "clip_grad_norm": None,
        }
        options = {"window_ms": 500, "burn_in_ms": 150}
        task = Task(folder, train["batch_size"], 0, **options)
        batches = [task.batch(0, k) for k in range(32)]
        for name, model_arguments in MODELS.items():
            model = build(model_arguments, **Task.sizes(**options))
            steps_alone = [partial(training_step, model, partial(task.loss, model, batch)) for batch in batches]
            before = [wall_ms(step) for step in steps_alone + steps_alone][len(batches) :]
            run = Run("loop", "neuronio", model_arguments, train, 0, str(folder), str(folder / name), options)
            train_run(replace(run, folder=str(folder / f"first_{name}")), stop=partial(le, 1))
            loop = wall_ms(partial(train_run, run, stop=partial(le, steps))) / steps
            kernel = float(np.median(before + [wall_ms(step) for step in steps_alone]))
            rows.append(ratio_row("training loop against forward and backward alone", name, [kernel], [loop]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5700)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = inference(arguments.rounds) + two_threads(arguments.rounds) + training_loop(arguments.steps)
    table = pd.DataFrame(rows).assign(machine=device_name("cpu"), commit=commit())
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "practice.csv"
    if path.exists():
        old = pd.read_csv(path)
        table = pd.concat([old[old.machine != table.machine[0]], table])
    table.to_csv(path, index=False, float_format="%.4g")
    lines = [
        " | ".join(map(str, line))
        for line in (
            table.columns,
            ["---"] * table.shape[1],
            *table.map(lambda v: f"{v:.3g}" if isinstance(v, float) else v).itertuples(index=False),
        )
    ]
    (arguments.out / "practice.md").write_text(
        "Ratio: ms_base over ms.\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"
    )
    print(table.to_string())


if __name__ == "__main__":
    main()
