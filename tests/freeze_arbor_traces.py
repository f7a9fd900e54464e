"""Writes tests/data/arbor_single_compartment.npz: `python tests/freeze_arbor_traces.py`, with arbor 0.12 installed."""

from pathlib import Path

import numpy as np

from elm_lib.simulate.arbor_reference import PROTOCOLS, arbor_voltage

if __name__ == "__main__":
    path = Path(__file__).parent / "data" / "arbor_single_compartment.npz"
    np.savez_compressed(path, **{name: arbor_voltage(p).astype(np.float32) for name, p in PROTOCOLS.items()})
