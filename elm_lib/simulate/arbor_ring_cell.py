"""The cell of Arbor's network tutorial: Hodgkin-Huxley channels at the soma, a passive dendrite that forks once.

Morphology, channels and spike detector are those of `python/example/network_ring.py` of Arbor
(10.1109/EMPDP.2019.8671560; https://docs.arbor-sim.org), which nobody here wrote. Arbor simulates it. Where the
tutorial has one synapse, a cell here has many along its dendrite; their weights are ours.

Needs `pip install arbor`, a development dependency. Nothing in the pipeline imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SAMPLED_MS = 0.1  # of the voltage
DT_MS = 0.025
DETECTED_MV = -10.0
EXC, INH = {"e": 0.0, "tau": 2.0}, {"e": -80.0, "tau": 8.0}  # of expsyn: mV, ms
EXC_US, INH_US = 3e-3, 1.5e-3  # weights
# branch and place on it: the first branch begins with the soma, whose 12 of its 62 um hold no synapse
PLACES = [(0, x) for x in np.linspace(0.25, 1, 10)] + [(b, x) for b in (1, 2) for x in np.linspace(0.1, 1, 10)]
SIGNS = np.array([1, 1, -1] * 10)  # of the 30 synapses, in the order of their places


def simulate(trials: Sequence[Sequence[np.ndarray]], duration_ms: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of each trial the soma voltage (mV) every 0.1 ms, (T,), and the times (ms) of the output spikes.

    trials  N lists of 30 arrays: times (ms) of the spikes at each synapse
    """
    import arbor as A
    from arbor import units as U

    class Trials(A.recipe):
        """A cell for each trial; they are not connected."""

        def __init__(self):
            super().__init__()
            self.properties = A.neuron_cable_properties()

        def num_cells(self):
            return len(trials)

        def cell_kind(self, gid):
            return A.cell_kind.cable

        def global_properties(self, kind):
            return self.properties

        def cell_description(self, gid):
            return _cell(A, U)

        def probes(self, gid):
            return [A.cable_probe_membrane_voltage("(root)", "voltage")]

        def event_generators(self, gid):
            return [
                A.event_generator(
                    f"s{k}", EXC_US if sign > 0 else INH_US, A.explicit_schedule([t * U.ms for t in times])
                )
                for k, (times, sign) in enumerate(zip(trials[gid], SIGNS, strict=True))
                if len(times)
            ]

    simulation = A.simulation(Trials(), A.context(threads=1))
    simulation.record(A.spike_recording.local)
    schedule = A.regular_schedule(SAMPLED_MS * U.ms)
    handles = [simulation.sample((gid, "voltage"), schedule) for gid in range(len(trials))]
    simulation.run(duration_ms * U.ms, DT_MS * U.ms)
    steps = round(duration_ms / SAMPLED_MS)
    voltage = [np.asarray(simulation.samples(handle)[0][0])[:steps, 1] for handle in handles]
    spikes: list[list[float]] = [[] for _ in trials]
    for (gid, _), time in simulation.spikes():
        spikes[gid].append(time)
    return voltage, [np.sort(times) for times in spikes]


def _cell(A, U):
    tree, fork = A.segment_tree(), 50 + 50 / np.sqrt(2)
    soma = tree.append(A.mnpos, A.mpoint(-12, 0, 0, 6), A.mpoint(0, 0, 0, 6), tag=1)
    trunk = tree.append(soma, A.mpoint(0, 0, 0, 2), A.mpoint(50, 0, 0, 2), tag=3)
    tree.append(trunk, A.mpoint(50, 0, 0, 2), A.mpoint(fork, fork - 50, 0, 0.5), tag=3)
    tree.append(trunk, A.mpoint(50, 0, 0, 1), A.mpoint(fork, 50 - fork, 0, 1), tag=3)
    decor = A.decor().paint("(tag 1)", A.density("hh")).paint("(tag 3)", A.density("pas"))
    for k, ((branch, place), sign) in enumerate(zip(PLACES, SIGNS, strict=True)):
        decor.place(f"(location {branch} {place:.3f})", A.synapse("expsyn", EXC if sign > 0 else INH), f"s{k}")
    decor.place("(root)", A.threshold_detector(DETECTED_MV * U.mV), "detector")
    return A.cable_cell(tree, decor, A.label_dict())
