"""What the paper shows: 14 figures and 13 tables. Each has at least one row in the verdict table."""

from __future__ import annotations

from elm_lib.paper.verdict import Origin, Verdict

ITEMS = {
    "Fig 1": "neuron sketch, architecture, equations",
    "Fig 2": "voltage and spike prediction over trainable parameters",
    "Fig 3": "ablations of ELM and Branch-ELM on NeuronIO",
    "Fig 4": "branches, a prediction of the Branch-ELM, true positives at few false ones",
    "Fig 5": "SHD-Adding: a sample, accuracy over bin size, ablations",
    "Fig S1": "as Figure 2, over FLOPs",
    "Fig S2": "Branch-ELM with lambda=5",
    "Fig S3": "as Figure 3, with the Branch-ELM",
    "Fig S4": "ablations with the improved memory update",
    "Fig S5": "SHD: accuracy over bin size",
    "Fig S6": "Branch-ELM with its branches changed",
    "Fig S7": "ELM of few memory units fitted to LIF, adaptive LIF and the biophysical model",
    "Fig S8": "tau_s on Pathfinder-X",
    "Fig S9": "inputs, predictions, synapses and memory units over two seconds",
    "Tab 1": "Long Range Arena",
    "Tab S1": "hyper-parameters of the ELM",
    "Tab S2": "hyper-parameters of the ELM on the Long Range Arena",
    "Tab S3": "hyper-parameters of the Chrono-LSTM on the Long Range Arena",
    "Tab S4": "tiny models on NeuronIO",
    "Tab S5": "d_m on Pathfinder",
    "Tab S6": "layers of S5 on Pathfinder",
    "Tab S7": "dropout on Pathfinder",
    "Tab S8": "Branch-ELM on NeuronIO",
    "Tab S9": "ELM on NeuronIO",
    "Tab S10": "LSTM on NeuronIO",
    "Tab S11": "SHD",
    "Tab S12": "SHD-Adding",
}
# what the authors' follow-up publishes on the same data, arXiv:2605.12049
FOLLOW_UP = {
    "ELM network": "networks of ELM neurons on SHD-Adding, of the follow-up paper",
    "Improved update": "Branch-ELMs with the improved memory update on NeuronIO, of the follow-up paper",
}
# questions that are ours, on what the paper leaves open
OURS = {
    "SNN reading": "the spiking network whose output decays by time, and by the step",
    "Routing": "the Branch-ELM on spoken digits whose branches read every channel",
    "Digits": "four models on handwritten digits, a small real task of 64 steps",
}
HEADLINE = "headline"  # the one claim of the abstract, which is of no single item
# figures without a published number, which show what the model looks like
DRAWINGS = {"Fig 1": "a) a cortical neuron b) the architecture c) the equations"}


def verdicts(profile: str) -> list[Verdict]:
    """Rows of what has no number."""
    return [
        Verdict(claim=claim, item=item, verdict="drawn", origin=Origin(profile=profile))
        for claim, item in DRAWINGS.items()
    ]


def order(claim: str) -> int:
    """Where a claim stands in the verdict table: the headline, what is in the paper, in its follow-up, what is ours."""
    return [HEADLINE, *ITEMS, *FOLLOW_UP, *OURS].index(claim)
