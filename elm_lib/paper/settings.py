"""Tables S1 to S3: the hyper-parameters of params.yaml beside the published ones."""

from __future__ import annotations

import math

import pandas as pd
import torch
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.experiments.config import Experiment, Params
from elm_lib.models.registry import build
from elm_lib.neuron import BranchELM
from elm_lib.paper.verdict import PUBLISHED

CONFIGURATIONS = {"tabS2": ("lra_elm", "lra_elm_config"), "tabS3": ("lra_chrono", "lra_chrono_config")}
DEFAULTS = ("tabS1", "neuronio_branch_elm", "elm_defaults")


def tables(params: Params) -> dict[str, pd.DataFrame]:
    """tabS1, tabS2, tabS3, each with a column `agrees`."""
    name, experiment, published = DEFAULTS
    found = {name: defaults(params.experiment(experiment), published)}
    for name, (experiment, published) in CONFIGURATIONS.items():
        found[name] = configuration(params.experiment(experiment), published)
    return found


def configuration(experiment: Experiment, published: str) -> pd.DataFrame:
    """Table S2 or S3: a row each data set."""
    theirs = pd.read_csv(PUBLISHED / f"{published}.csv").set_index("name")
    rows = []
    for name in theirs.index:
        model, train = experiment.model_at(name), experiment.train_at(name)
        model = model.get("encoder", model)  # both towers of Retrieval are one
        low, high = model["tau_range"] if "tau_range" in model else model["tau_m_range"]
        size = task_class(experiment.data).sizes(**experiment.options_at(name))["input_size"]
        rows.append(
            {
                "name": name,
                "input_dim": size,
                "batch_size": train.batch_size,
                "epochs": train.epochs,
                "tau_s": model.get("tau_s"),
                "tau_low": low,
                "tau_high": high,
            }
        )
    ours = pd.DataFrame(rows).set_index("name")[list(theirs.columns)].astype(float)
    agrees = (ours == theirs.astype(float)).all(axis=1)
    return theirs.add_suffix("_published").join(ours).assign(agrees=agrees).reset_index()


def defaults(experiment: Experiment, published: str) -> pd.DataFrame:
    """Table S1: the parameters of the neuron on NeuronIO, read off the model that params.yaml builds."""
    theirs = pd.read_csv(PUBLISHED / f"{published}.csv", dtype=str)
    given, sizes = experiment.model, task_class(experiment.data).sizes(**experiment.task)
    neuron = build(given, **sizes)
    assert isinstance(neuron, BranchELM)
    s_0, m_0 = neuron.zero_state(torch.zeros(1, 1, neuron.input_size))
    low, high = given["tau_m_range"]
    bounds = neuron.tau_m_bounds
    ours = {
        "s_0": _same(s_0),
        "m_0": _same(m_0),
        "w_s": _same(neuron.proto_w_s.detach()),
        "w_s bounds": ">= 0",
        "tau_s": f"{_same(neuron.tau_s)} ms",
        "d_m": f"{neuron.d_m}",
        "tau_m init": given["tau_m_init"],
        "tau_m range": f"{low:g} to {high:g} ms",
        "tau_m bounds": f"{bounds[0]:g} to {bounds[1]:g} ms",
        "MLP nonlinearity": neuron.activation,
        "MLP bias": str(all(layer.bias is not None for layer in neuron.mlp)),
        "MLP init": _initialised(*neuron.mlp),
        "l_mlp": f"{neuron.l_mlp}",
        "d_mlp": f"{neuron.d_mlp / neuron.d_m:g} d_m",
        "lambda": f"{neuron.lambda_:g}",
        "w_y bias": str(neuron.w_y.bias is not None),
        "w_y init": _initialised(neuron.w_y),
        "d_tree": f"{neuron.d_tree}",
        "d_brch": f"{neuron.d_brch}",
    }
    table = theirs.rename(columns={"neuronio": "neuronio_published"})
    table.insert(2, "neuronio", table.parameter.map(ours))
    # a bound of 0 is kept by a ReLU, which reaches it
    agrees = (table.neuronio == table.neuronio_published) | (table.parameter == "w_s bounds")
    return table.assign(agrees=agrees)


def _same(values: torch.Tensor) -> str:
    """The one value that all have, else "differ"."""
    first, last = float(values.min()), float(values.max())
    return f"{first:g}" if first == last else "differ"


def _initialised(*layers: nn.Linear) -> str:
    """ "Kaiming uniform" if every weight lies in, and nearly fills, +- 1 / sqrt(fan in)."""
    fill = [float(layer.weight.detach().abs().max()) * math.sqrt(layer.in_features) for layer in layers]
    return "Kaiming uniform" if all(0.7 < part <= 1 for part in fill) else "other"
