"""Writes tests/data/neuron_default_cell.npz: `python tests/freeze_neuron_trace.py C060114A7.asc`, with neuron and a C++ compiler.

The default morphology under input 3 of seed 1 (narrower ranges, 300 ms) in NEURON with a step of 0.025 ms.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from elm_lib.simulate.inputs import draw_input, to_indptr
from elm_lib.simulate.morphology import load_cell

ROOT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from neuron_l5pc import build

    morphology = Path(sys.argv[1]).resolve()
    channel, time_ms = draw_input(load_cell(morphology), seed=1, index=3, ranges="narrow", duration_ms=300)
    with tempfile.TemporaryDirectory() as scratch:
        build(Path(scratch))
        arrays = {"channel": channel, "indptr": to_indptr(time_ms, 300)}
        np.savez(Path(scratch) / "input.npz", **arrays)
        command = [sys.executable, ROOT / "benchmarks" / "neuron_l5pc.py", morphology, "input.npz", "0.025"]
        done = subprocess.run(
            command, cwd=scratch, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    voltage = np.array(json.loads(done.stdout.splitlines()[-1])["voltage_mV"][:300], np.float32)
    np.savez_compressed(ROOT / "tests" / "data" / "neuron_default_cell.npz", voltage_mV=voltage, **arrays)
