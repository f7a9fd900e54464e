"""Tables S1 to S3: the hyper-parameters of params.yaml beside the published ones."""

from __future__ import annotations

import math

import pandas as pd
import torch
from torch import nn

from elm_lib.datasets import task_class
from elm_lib.experiments.config import Params
from elm_lib.experiments.experiment import Experiment
from elm_lib.models.registry import build
from elm_lib.neuron import BranchELM
from elm_lib.paper import PUBLISHED
from elm_lib.paper import tables as forms
from elm_lib.paper.claims import count
from elm_lib.paper.verdict import Verdict

CONFIGURATIONS = {"tabS2": ("lra_elm", "lra_elm_config"), "tabS3": ("lra_chrono", "lra_chrono_config")}
DEFAULTS = ("tabS1", "neuronio_branch_elm", "elm_defaults")


def tables(params: Params) -> dict[str, pd.DataFrame]:
    """tabS1, tabS2, tabS3, each with a column `agrees`."""
    name, experiment, published = DEFAULTS
    found = {name: defaults(params.experiment(experiment), published)}
    for name, (experiment, published) in CONFIGURATIONS.items():
        found[name] = configuration(params.experiment(experiment), published)
    return found


def tables_settings(params: Params) -> dict[str, forms.Table]:
    """tabS1, tabS2, tabS3: the long form and the one that looks like the paper's, ours under published."""
    return {name: forms.Table(long, _shown(long)) for name, long in tables(params).items()}


def _shown(long: pd.DataFrame) -> pd.DataFrame:
    key = long.columns[0]
    names = [name.removesuffix("_published") for name in long if name.endswith("_published")]
    kept = [name for name in long if name not in {key, "agrees", *names, *(f"{name}_published" for name in names)}]
    rows = []
    for line in long.to_dict("records"):
        rows.append([line[key], "published", *(_text(line[f"{name}_published"]) for name in names)])
        rows[-1] += [_text(line[name]) for name in kept]
        rows.append(["", "ours", *(_text(line[name]) for name in names), *([""] * len(kept))])
    return pd.DataFrame(rows, columns=[key, "", *names, *kept])


def _text(value) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def verdicts(params: Params, profile: str) -> list[Verdict]:
    """A row each table: how many of its rows params.yaml agrees with. It needs no training."""
    rows = []
    for name, table in tables(params).items():
        differ = ", ".join(table[~table.agrees].iloc[:, 0])
        note = f"differ: {differ}" if differ else ""
        item = "rows in which params.yaml agrees"
        rows.append(
            count(f"Tab {name[3:]}", item, len(table), int(table.agrees.sum()), 0.0, profile=profile, note=note)
        )
    return rows


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
    assert isinstance(neuron, BranchELM) and neuron.w_y is not None and isinstance(neuron.tau_s, torch.Tensor)
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
