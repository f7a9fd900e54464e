"""What the authors' follow-up publishes on the same data (Spieler, Martius and Levina 2026, arXiv:2605.12049).

Networks of ELM neurons on SHD-Adding at 2 ms, and Branch-ELMs with the improved memory update on NeuronIO. The numbers
are from its result tables as stored with a public re-implementation of it; its text was not at hand. What else a row
needs, such as the branches of a neuron and the training, is ours (docs/networks.md).
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from elm_lib.experiments.config import Params
from elm_lib.paper import PUBLISHED
from elm_lib.paper.claims import better, cell, claim_row, count
from elm_lib.paper.counts import counts
from elm_lib.paper.neuronio import AUC, RMSE
from elm_lib.paper.points import Runs, largest
from elm_lib.paper.shd import CHANCE, NEAR_CHANCE, published, score_of
from elm_lib.paper.verdict import Verdict, separation

NETWORK, NEURONIO = "ELM network", "Improved update"  # claims; see elm_lib.paper.items
EXPERIMENTS = {NETWORK: "elm_network_77k", NEURONIO: "follow_up_branch_elm"}
BIN_MS = 2
DIGIT = 0.01  # accuracy: as for the tables of SHD-Adding
COUNT_TOLERANCE = 0.02  # published are "about 77 thousand"


def published_networks() -> pd.DataFrame:
    """num_neurons, d_m, parameters, test_accuracy of networks on SHD-Adding."""
    return pd.read_csv(PUBLISHED / "follow_up_networks.csv")


def published_neuronio() -> pd.DataFrame:
    """d_m, spike_auc, voltage_rmse (mV) of Branch-ELMs with the improved update."""
    return pd.read_csv(PUBLISHED / "follow_up_neuronio.csv")


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row for each published number, and for what the networks show."""
    return [*_networks(runs, params, profile), *_neuronio(runs, profile)]


def _networks(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    rows, experiment = [], EXPERIMENTS[NETWORK]
    where: dict[str, Any] = {"dataset": "shd", "profile": profile}
    table, chance = published_networks(), CHANCE["shd_adding"] + NEAR_CHANCE
    score = score_of("test", "shd_adding")
    for line in table.itertuples(index=False):
        item = f"SHD-Adding, {BIN_MS} ms: {line.num_neurons} neurons of d_m={line.d_m}"
        failed = chance if line.test_accuracy < chance else None
        point = largest(runs, experiment, line.num_neurons)
        rows.append(
            cell(
                NETWORK, f"{item} test accuracy", line.test_accuracy, point, score, DIGIT, failed_below=failed, **where
            )
        )
        ours = counts(params, experiment, line.num_neurons)[0]
        rows.append(
            count(NETWORK, f"{item} parameters", line.parameters, ours, COUNT_TOLERANCE, profile=profile, note="about")
        )
    theirs = {("network", int(n)): value for n, value in zip(table.num_neurons, table.test_accuracy, strict=True)}
    one = published("shd_adding").set_index(["model", "bin_ms"]).test_accuracy_mean["ELM", BIN_MS]
    sides = {"network": experiment, "ELM": "shd_adding_elm"}
    few, many = (int(n) for n in table.num_neurons)
    for claim in (
        better(
            f"{few} complex neurons above {many} simple ones of as many parameters, by",
            ("network", (few,)),
            ("network", (many,)),
            learned=(0,),
        ),
        better(
            f"{few} neurons keep up with one ELM of 2.4 times their parameters: their accuracy less that of the ELM",
            ("network", (few,)),
            ("ELM", (BIN_MS,)),
            tolerance=DIGIT,
        ),
    ):
        rows.append(claim_row(NETWORK, claim, runs, sides, theirs | {("ELM", BIN_MS): one}, score, **where))
    return rows


def _neuronio(runs: Runs, profile: str) -> list[Verdict]:
    rows, table = [], published_neuronio()
    tolerances = separation(table.spike_auc, 0.0001)
    for line, tolerance in zip(table.itertuples(index=False), tolerances, strict=True):
        point = largest(runs, EXPERIMENTS[NEURONIO], line.d_m)
        item = f"Branch-ELM, improved update, d_m={line.d_m}"
        scores = [("AUC", line.spike_auc, AUC, tolerance), ("RMSE (mV)", line.voltage_rmse, RMSE, 0.001)]
        for shown, value, score, most in scores:
            if pd.notna(value):
                rows.append(
                    cell(NEURONIO, f"{item} {shown}", value, point, score, most, dataset="neuronio", profile=profile)
                )
    return rows
