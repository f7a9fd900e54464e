"""What does one step of one stream cost, and what do sequences of different lengths?

    python benchmarks/streaming.py [--rounds 7] [--out results/benchmarks]

* stream: microseconds a step at B = 1, no gradient: `forward` of one step, `step`, `streamer`, beside nn.LSTMCell of as
  many units
* lengths: milliseconds forward and backward of 32 sequences whose lengths are uniform up to T: the padded batch without
  lengths, with `lengths`, packed
One thread, CPU time, interleaved; the median of the rounds. Writes streaming.csv; rows of other machines are kept.
"""

import argparse
import statistics
import time
from pathlib import Path

import pandas as pd
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from elm_lib import ELM, BranchELM
from elm_lib.experiments.work import commit
from elm_lib.training.run import device_name

# inputs, model
MODELS = {
    "elm, 32 inputs, d_m 20": lambda: ELM(32, 20, d_o=2, batch_first=True),
    "elm, 32 inputs, d_m 64": lambda: ELM.for_sequences(32, 64, 500, d_o=2, batch_first=True),
    "branch_elm of NeuronIO": lambda: BranchELM(1278, 20, d_o=2, lambda_=10, batch_first=True),
    "branch_elm of SHD": lambda: BranchELM(700, 100, d_o=20, d_tree=100, d_brch=15, routing="random", batch_first=True),
}
STEPS, BATCH = 500, 32


def interleaved(contenders: dict, rounds: int, calls: int) -> dict[str, float]:
    """Median CPU seconds of a call."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.process_time()
            for _ in range(calls):
                run()
            if round_:  # the first warms up
                times[name].append((time.process_time() - start) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def of_a_stream(neuron, rounds: int) -> dict[str, float]:
    x, cell, streamer = torch.randn(1, neuron.input_size), nn.LSTMCell(neuron.input_size, neuron.d_m), neuron.streamer()
    with torch.no_grad():
        found = interleaved(
            {
                "forward": lambda: neuron(x.unsqueeze(1)),
                "step": lambda: neuron.step(x),
                "streamer": lambda: streamer(x[0]),
                "nn.LSTMCell": lambda: cell(x),
            },
            rounds,
            200,
        )
    return {name: 1e6 * seconds for name, seconds in found.items()}


def of_lengths(neuron, rounds: int) -> dict[str, float]:
    x, lengths = torch.randn(BATCH, STEPS, neuron.input_size), torch.randint(1, STEPS + 1, (BATCH,))
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)

    def trained(given, **options):
        y, _ = neuron(given, **options)
        (y if isinstance(y, torch.Tensor) else y.data).sum().backward()

    found = interleaved(
        {
            "padded": lambda: trained(x),
            "lengths": lambda: trained(x, lengths=lengths),
            "packed": lambda: trained(packed),
        },
        rounds,
        1,
    )
    return {name: 1e3 * seconds for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, machine = [], device_name("cpu")
    for name, make in MODELS.items():
        neuron = make()
        for what, unit, measure in (("stream", "us a step", of_a_stream), ("lengths", "ms", of_lengths)):
            for how, value in measure(neuron, options.rounds).items():
                rows.append(
                    {
                        "what": what,
                        "model": name,
                        "how": how,
                        "time": f"{value:.4g}",
                        "unit": unit,
                        "machine": machine,
                        "commit": commit()[:7],
                    }
                )
    path = options.out / "streaming.csv"
    kept = pd.read_csv(path, dtype=str).query("machine != @machine") if path.exists() else None
    table = pd.concat([kept, pd.DataFrame(rows)])
    table.to_csv(path, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
