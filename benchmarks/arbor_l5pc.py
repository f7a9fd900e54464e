"""The same cell in Arbor, for timing and as a check: `python benchmarks/arbor_l5pc.py MORPHOLOGY INPUT.npz
DT_MS`.

Needs `pip install arbor`, a C++ compiler and cmake (for the NMDA synapse, written and compiled here in the
working directory).
Prints a JSON line: CPU seconds, and the soma's voltage (mV) at 0, 1, .. ms.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

NMDA = """NEURON { POINT_PROCESS nmda  NONSPECIFIC_CURRENT i }
PARAMETER { v (mV) }
STATE { r d }
ASSIGNED { f }
INITIAL { LOCAL t
  r = 0  d = 0
  t = 2*70/(70-2)*log(70/2)
  f = 1/(exp(-t/70)-exp(-t/2)) }
BREAKPOINT { SOLVE states METHOD cnexp
  i = (d-r)/(1+exp(-0.08*v)/3.57)*v }
DERIVATIVE states { r' = -r/2  d' = -d/70 }
NET_RECEIVE (w) { r = r+w*f  d = d+w*f }
"""


def build(folder: Path) -> None:
    """Write and compile the NMDA synapse in `folder`."""
    (folder / "arbor_mods").mkdir(parents=True, exist_ok=True)
    (folder / "arbor_mods" / "nmda.mod").write_text(NMDA)
    bin_folder = Path(sys.executable).parent  # the tool starts the `python3` of the path
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [sys.executable, bin_folder / "arbor-build-catalogue", "elm", "arbor_mods"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)


def main(morphology: str, input_file: str, dt: str) -> None:
    import arbor as A
    import morphio
    from arbor import units as U

    from elm_lib.simulate.cell.arbor_reference import ARBOR_NAMES
    from elm_lib.simulate.cell.channels import CA_START
    from elm_lib.simulate.cell.densities import BRANCH_POINT
    from elm_lib.simulate.cell.l5pc import PEAK
    from elm_lib.simulate.cell.morphology import load_cell

    cell = load_cell(morphology)
    traced = morphio.Morphology(morphology)
    # The soma as two halves, so that neurites leave from its middle; the stub and the dendrites lie apart,
    # each from its first point.
    tree = A.segment_tree()
    radius = 0.5 * np.sqrt(cell.area[0] / np.pi)
    half = tree.append(A.mnpos, A.mpoint(-radius, 0, 0, radius), A.mpoint(0, 0, 0, radius), tag=0)
    tree.append(half, A.mpoint(0, 0, 0, radius), A.mpoint(radius, 0, 0, radius), tag=0)
    first, number, by_id = {}, 2, {}  # first: section -> its first segment
    axon = tree.append(half, A.mpoint(0, 0, 0, 0.5), A.mpoint(0, -30, 0, 0.5), tag=1)
    tree.append(axon, A.mpoint(0, -30, 0, 0.5), A.mpoint(0, -60, 0, 0.5), tag=2)
    for kind in (morphio.SectionType.basal_dendrite, morphio.SectionType.apical_dendrite):
        for section in (s for s in traced.sections if s.type == kind):
            number += 1
            points = [
                A.mpoint(*map(float, p), float(d) / 2) for p, d in zip(section.points, section.diameters, strict=True)
            ]
            parent = half if section.is_root else by_id[section.parent.id]
            for a, b in zip(points, points[1:], strict=False):
                parent = tree.append(parent, a, b, tag=number)
                first.setdefault(number, parent)
            by_id[section.id] = parent
    morph = A.morphology(tree)

    branch_of = {
        segment.tag: b for b in range(morph.num_branches) for segment in morph.branch_segments(b) if segment.tag > 2
    }
    axon_branch = next(b for b in range(morph.num_branches) for s in morph.branch_segments(b) if s.tag == 1)
    soma_branches = [b for b in range(morph.num_branches) if morph.branch_segments(b)[0].tag == 0]
    cables, bounds = {}, []
    for k in range(1, number + 1):
        nodes = np.flatnonzero((cell.section == k) & (cell.kind != BRANCH_POINT))
        branch, start, stop = (axon_branch, 0.5 * (k - 1), 0.5 * k) if k <= 2 else (branch_of[k], 0.0, 1.0)
        edges = np.linspace(start, stop, len(nodes) + 1)
        for node, a, b in zip(nodes, edges, edges[1:], strict=False):
            cables[int(node)] = f"(cable {branch} {a} {b})", f"(location {branch} {(a + b) / 2})"
            bounds += [f"(location {branch} {a})", f"(location {branch} {b})"]
    soma = "(join " + " ".join(f"(cable {b} 0 1)" for b in soma_branches) + ")"
    cables[0] = soma, f"(location {soma_branches[0]} 1)"

    decor = A.decor().set_property(Vm=-76 * U.mV, tempK=279.45 * U.Kelvin, rL=100 * U.Ohm * U.cm)
    weights = PEAK | {k: PEAK[k] * cell.reconstruction.excitatory_weight for k in ("ampa", "nmda")}
    for node, (region, _) in cables.items():
        d = {name: float(values[node]) for name, values in cell.densities.items()}
        decor.paint(region, cm=d["cm"] * 0.01 * U.F / U.m2)
        decor.paint(region, A.density("pas/e=-90", {"g": d["pas"]}))
        for name, theirs in ARBOR_NAMES.items():
            if d[name] > 0:
                decor.paint(region, A.density(theirs, {f"g{theirs}bar": d[name]}))
        if d["ca_decay"] > 0:
            decor.paint(region, A.density("CaDynamics_E2", {"decay": d["ca_decay"], "gamma": d["ca_gamma"]}))
    for k, node in enumerate(cell.synapse_node):
        where = cables[int(node)][1]
        decor.place(where, A.synapse("exp2syn", {"tau1": 0.3, "tau2": 3.0, "e": 0.0}), f"ampa{k}")
        decor.place(where, A.synapse("nmda"), f"nmda{k}")
        decor.place(where, A.synapse("exp2syn", {"tau1": 0.2, "tau2": 8.0, "e": -80.0}), f"gaba{k}")
    policy = A.cv_policy_explicit("(sum " + " ".join(sorted(set(bounds))) + ")")
    model = A.single_cell_model(A.cable_cell(morph, decor, A.label_dict(), policy))
    catalogue = A.default_catalogue()
    catalogue.extend(A.bbp_catalogue(), "")
    catalogue.extend(A.load_catalogue(str(Path("elm-catalogue.so").resolve())), "")
    model.properties.catalogue = catalogue
    model.properties.set_ion("na", rev_pot=50 * U.mV)
    model.properties.set_ion("k", rev_pot=-85 * U.mV)
    model.properties.set_ion("ca", int_con=float(CA_START) * U.mM, ext_con=2 * U.mM, method="nernst/ca")

    with np.load(input_file) as spikes:
        indptr, channel = spikes["indptr"], spikes["channel"]
    times = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    for c in np.unique(channel):
        schedule = A.explicit_schedule([float(t) * U.ms for t in times[channel == c]])
        for name in ("gaba",) if c & 1 else ("ampa", "nmda"):
            model.event_generator(A.event_generator(f"{name}{c >> 1}", weights[name], schedule))
    model.probe("voltage", cables[0][1], tag="v", frequency=1 * U.kHz)
    start = time.process_time()
    model.run(tfinal=(len(indptr) - 1) * U.ms, dt=float(dt) * U.ms)
    cpu_s = time.process_time() - start
    print(json.dumps({"cpu_s": cpu_s, "voltage_mV": [round(x, 6) for x in model.traces[0].value]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
