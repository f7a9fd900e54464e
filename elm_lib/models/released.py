"""Weights released by the authors: fifteen Branch-ELM neurons fitted to NeuronIO.

They are at github.com/AaronSpieler/elmneuron, under the MIT licence.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from elm_lib.interface.settings import with_settings
from elm_lib.neuron import BranchELM
from elm_lib.support.errors import DataError

WEIGHTS = "neuronio_best_model_state.pt"
SHA256 = {
    "best_elm_neuron": "ee1252616cd2ad7dd60786e304a56e6d9d13b4f85ce9974fbef909efa9f43812",
    "num_memory_1": "2fde82f06143fee92dc1e76d20a16aa69cfb0f3fed3876f6e321e643a6846a7e",
    "num_memory_10": "31fe64fc597d990d549f4f60b1eb2da410cfd85449774f8b34982a4dad87d1e8",
    "num_memory_100": "444dd697c7f0f9ea13dd82bcd46f56b757d2ef4dfdc367e1d63520ea625303f7",
    "num_memory_15": "c97111e4ab732adccdd01982db5b6ddf6f3273ad7f84739ff7edc24399259832",
    "num_memory_2": "f484d08371267a8713d2d94e638e3e83e57c2ff37805ef2b48b0bc84efbd34bd",
    "num_memory_20": "d5860dd60cb6799797818dad20b63873fb51a40c362767d73ba9bd47b5ae28f5",
    "num_memory_25": "51fcb04f20302d96e657bab45572ac4f2e866df87634e16cdf0816338814166c",
    "num_memory_3": "af629ea0bc064c90082bac2f7c6fe441e736eee150a909f0b8b7e37435ffe2e4",
    "num_memory_30": "90e81b6a970f536d18f99abfeec8baa7b46a007b0ce06e70c118c38622937491",
    "num_memory_40": "25a34b7863c4738b4e3437f9828e52d29ba965c564c6feb06c777813d9487e4b",
    "num_memory_5": "db39914f78fd96d5c67c0d3d1d1db12ab7d9fedc263d0ea06ace67b20216f8fb",
    "num_memory_50": "30ef79c024a7ddeebc2ae1635a85ee547b04285a0d03524c5fca411505545f2c",
    "num_memory_7": "a77898efabc57ad3f75064c86ecc448b2992f6dd1befb37d2a53217753f60cea",
    "num_memory_75": "ea17dc3ecbe248fef79a2bfe7e014ecd5fec29bbaa8ead2d809fb95db40019aa",
}
# what the released configurations leave to the released code's defaults
DEFAULTS = dict(
    d_o=2,
    l_mlp=1,
    activation="relu",
    lambda_=5.0,
    tau_s=5.0,
    w_s=0.5,
    delta_t=1.0,
    tanh="scaled",
    tau_m_init="logspace",
    memory_update="original",
)
NAMES = {
    "_proto_w_s": "proto_w_s",
    "_proto_tau_m": "proto_tau_m",
    "input_to_synapse_indices": "routing_index",
    "valid_indices_mask": "routing_mask",
    "mlp.network.0": "mlp.0",
    "mlp.network.2": "mlp.1",
    "w_y": "w_y",
}


def load_released(folder: str | Path, *, channels: str = "released") -> BranchELM:
    """Load one folder of released weights (model_config.json and neuronio_best_model_state.pt).

    channels  "released": inputs as the authors order them, 639 excitatory then 639 inhibitory
              "interleaved": as this project's files order them, channel = 2 segment + (0 excitatory | 1 inhibitory)
    Returns a float32 `BranchELM` whose y has spike logit and voltage ((mV + 67.7) / 10), batch first.
    Raises DataError when a file is missing or is not one of the fifteen released, before anything of it is interpreted.
    """
    folder = Path(folder)
    for name in ("model_config.json", WEIGHTS):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name} is missing: copy the released folder whole, with its {name}")
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    if digest not in SHA256.values():
        raise DataError(
            f"{folder / WEIGHTS} has sha256 {digest}, not one of the fifteen released files: download it again"
        )
    if channels not in ("released", "interleaved"):
        raise ValueError(f"channels={channels!r}: choose 'released' or 'interleaved'")
    config = json.loads((folder / "model_config.json").read_text())
    model = BranchELM(
        config["num_input"],
        config["num_memory"],
        d_tree=config["num_branch"],
        d_brch=config["num_synapse_per_branch"],
        tau_m_range=(config["memory_tau_min"], config["memory_tau_max"]),
        tau_m_bounds=(config["memory_tau_min"], config["memory_tau_max"]),
        learn_tau_m=config["learn_memory_tau"],
        batch_first=True,
        **{**DEFAULTS, "activation": config.get("mlp_activation", "relu")},
    )
    released = torch.load(folder / WEIGHTS, weights_only=True, map_location="cpu")
    model.load_state_dict(with_settings(translate(released) | {"tau_s": model.tau_s}, model))
    if channels == "interleaved":
        half, index = config["num_input"] // 2, model.routing_index
        model.routing_index.copy_(torch.where(index < half, 2 * index, 2 * (index - half) + 1))
    return model


def translate(released: dict) -> dict:
    """Released names to ours. tau_s is left out: released files hold one value a synapse, all 5 ms."""
    ours = {}
    for name, tensor in released.items():
        for theirs, mine in NAMES.items():
            if name == theirs or name.startswith(theirs + "."):
                ours[mine + name[len(theirs) :]] = tensor
    return ours
