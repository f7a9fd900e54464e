"""The authors' released weights, which never saw our simulations, predict them.

That is evidence that generated data stand for the real.

    python benchmarks/released_weights.py --released FOLDER [--data data/desk/neuronio/test]

FOLDER holds the released folders (num_memory_20, num_memory_50, best_elm_neuron), each checked against its sha256. The
data are simulations with the exact morphology. Writes results/benchmarks/released_weights.{csv,md}. The column `sd` is
the sampling error of `ours`: the standard deviation over sets of as many simulations, drawn from these with
replacement.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from elm_lib import load_released
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.datasets.neuronio.task import predict_all, score
from elm_lib.support.files import write_text

NEURONS = {"num_memory_20": "d_m = 20", "num_memory_50": "d_m = 50", "best_elm_neuron": "best effort (d_m = 100)"}
SCORES = {
    "auc": ("AUC", 4),
    "rmse": ("RMSE mV", 3),
    "explained_variance": ("explained variance %", 1),
    "tp_at_0.01_fp": ("TP at 0.01 FP", 3),
}
RELEASED = {
    "auc": "AUC",
    "rmse": "soma_RMSE",
    "explained_variance": "soma_explained_variance_percent",
    "tp_at_0.01_fp": "TP @ 0.0100 FP",
}


def bootstrap(predictions: list[np.ndarray], draws: int = 200) -> dict[str, float]:
    """Standard deviation of the released evaluation's scores when the simulations are drawn again."""
    rng, n = np.random.default_rng(0), len(predictions[0])
    drawn = [score(*(a[index] for a in predictions))["released"] for index in rng.integers(n, size=(draws, n))]
    return pd.DataFrame(drawn).std().to_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--released", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("data/desk/neuronio/test"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    simulations = SimulationSet(options.data)
    made = simulations[0][0].provenance
    if made["morphology"] != "cell1":
        raise SystemExit(
            f"{options.data}: made with {made['morphology']}; the released weights apply to cell1.asc alone: "
            "use profile desk"
        )

    rows = []
    for name, neuron in NEURONS.items():
        published = json.loads((options.released / name / "eval_results.json").read_text())["test_results"]
        predictions = predict_all(load_released(options.released / name, channels="interleaved"), simulations)
        ours, sd = score(*predictions), bootstrap(predictions)
        for key, (_, digits) in SCORES.items():
            rows.append(
                {
                    "neuron": neuron,
                    "score": key,
                    "published": published[RELEASED[key]],
                    "ours": ours["released"][key],
                    "ours_clean": ours["clean"][key],
                    "sd": sd[key],
                    "digits": digits,
                }
            )
    frame = pd.DataFrame(rows)
    write_text(options.results / "tables/released_weights.csv", frame.drop(columns="digits").to_csv(index=False))
    lines = ["| score | data | " + " | ".join(NEURONS.values()) + " |", "|---|---|" + "---|" * len(NEURONS)]
    for key, (title, digits) in SCORES.items():
        part = frame[frame.score == key].set_index("neuron")
        for column, where in (
            ("published", "published test set"),
            ("ours", "simulated here, released evaluation"),
            ("sd", "sampling error of that (bootstrap)"),
            ("ours_clean", "simulated here, clean evaluation"),
        ):
            lines.append(
                f"| {title} | {where} | "
                + " | ".join(f"{part[column][neuron]:.{digits}f}" for neuron in NEURONS.values())
                + " |"
            )
    lines += [
        "",
        f"{len(simulations)} simulations of {simulations.duration_ms(0) / 1000:g} s, dt {made['dt_ms']} ms, "
        f"{made['ranges']} input ranges, morphology {made['morphology']}.",
    ]
    write_text(options.results / "tables/released_weights.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
