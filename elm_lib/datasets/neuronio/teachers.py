"""NeuronIO's input with the output of a point neuron in place of the pyramidal cell's (Figure S7).

The files lie below those that they are made of: <folder>/<kind>/<split>/sims_00000.h5 beside <folder>/<split>/.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elm_lib.datasets.neuronio.schema import N_CHANNELS, Simulations, SimulationSet, open_simulations
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.simulate import point_neurons
from elm_lib.support.files import read_or_set_aside
from elm_lib.support.processes import locked, progress


def taught(folder: Path, split: str, kind: str) -> SimulationSet:
    """A split of the data set in `folder` with the output of that point neuron. What is missing is made first.

    kind  one of `point_neurons.KINDS`
    """
    own, files = folder / kind / split, SimulationSet(folder / split).files
    with locked(own):  # runs at the same time
        missing = [file for file in files if not _is_done(own / file.path.name, file, kind)]
        if missing:
            with progress(len(missing), f"{kind} {split}", "file") as bar:
                for file in missing:
                    _teach(file, own / file.path.name, kind)
                    bar.update()
    return SimulationSet(own / file.path.name for file in files)


def provenance(file: Simulations, kind: str) -> dict:
    """What the bytes of a file depend on."""
    return {"teacher": kind, "revision": point_neurons.REVISION, "input": file.provenance}


def _is_done(path: Path, file: Simulations, kind: str) -> bool:
    found = read_or_set_aside(path, open_simulations)
    return found is not None and found.provenance == provenance(file, kind)


def _teach(file: Simulations, path: Path, kind: str) -> None:
    indptr, channel = np.asarray(file.indptr), np.asarray(file.channel)
    voltage, spikes = point_neurons.simulate(indptr, channel, N_CHANNELS, kind)
    time = np.arange(file.duration_ms)
    write_simulations(
        path,
        spikes=[(channel[row[0] : row[-1]], np.repeat(time, np.diff(row))) for row in indptr],
        soma_voltage=voltage,
        output_spikes_ms=[times + 0.5 for times in spikes],  # which `output_bin` takes back to the ms
        source="generated",  # real input, too, gets a generated output
        provenance=provenance(file, kind),
    )
