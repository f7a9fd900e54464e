"""The same cell in NEURON, for timing and as a check: `python benchmarks/neuron_l5pc.py MORPHOLOGY
INPUT.npz cvode|DT_MS`.

Needs `pip install neuron` and a C++ compiler. The mechanisms are written here from the equations in
`elm_lib/simulate/cell/channels.py` and compiled with nrnivmodl in the working directory. INPUT.npz holds indptr
(duration_ms + 1) and channel of one simulation.
Prints a JSON line: CPU seconds, and the soma's voltage (mV) at 0, 1, .. ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

# name: (ion, conductance, {gate: (steady state, time constant in ms)}, assignments before those)
QT = 2.3**1.3
NA_RATES = (
    "am = 0.182*6*linoid((v+{m})/6)  bm = 0.124*6*linoid(-(v+{m})/6)  "
    "ah = 0.015*6*linoid(-(v+{h})/6)  bh = 0.015*6*linoid((v+{h})/6)"
)
AB = {"m": ("am/(am+bm)", "1/(am+bm)")}
AB_QT = {x: (f"a{x}/(a{x}+b{x})", f"1/(a{x}+b{x})/{QT}") for x in "mh"}
CHANNELS = {
    "ih": ("h", "m", AB, "am = 0.00643*11.9*linoid(-(v+154.9)/11.9)  bm = 0.193*exp(v/33.1)"),
    "im": ("k", "m", {"m": AB_QT["m"]}, "am = 0.0033*exp(0.1*(v+35))  bm = 0.0033*exp(-0.1*(v+35))"),
    "ca_hva": (
        "ca",
        "m*m*h",
        AB | {"h": ("ah/(ah+bh)", "1/(ah+bh)")},
        "am = 0.055*3.8*linoid((v+27)/3.8)  bm = 0.94*exp((-75-v)/17)  "
        "ah = 0.000457*exp((-13-v)/50)  bh = 0.0065/(exp((-v-15)/28)+1)",
    ),
    "ca_lva": (
        "ca",
        "m*m*h",
        {
            "m": ("1/(1+exp(-(v+40)/6))", f"(5+20/(1+exp((v+35)/5)))/{QT}"),
            "h": ("1/(1+exp((v+90)/6.4))", f"(20+50/(1+exp((v+50)/7)))/{QT}"),
        },
        "",
    ),
    "skv3_1": ("k", "m", {"m": ("1/(1+exp(-(v-18.7)/9.7))", "4/(1+exp(-(v+46.56)/44.14))")}, ""),
    "sk_e2": ("k", "m", {"m": ("1/(1+(0.00043/cai)^4.8)", "1")}, ""),
    "nats2_t": ("na", "m*m*m*h", AB_QT, NA_RATES.format(m=32, h=60)),
    "nata_t": ("na", "m*m*m*h", AB_QT, NA_RATES.format(m=38, h=66)),
    "nap_et2": (
        "na",
        "m*m*m*h",
        {"m": ("1/(1+exp(-(v+52.6)/4.6))", f"6/(am+bm)/{QT}"), "h": ("1/(1+exp((v+48.8)/10))", f"1/(ah+bh)/{QT}")},
        "am = 0.182*6*linoid((v+38)/6)  bm = 0.124*6*linoid(-(v+38)/6)  "
        "ah = 2.88e-6*4.63*linoid(-(v+17)/4.63)  bh = 6.94e-6*2.63*linoid((v+64.4)/2.63)",
    ),
    "k_tst": (
        "k",
        "m*m*m*m*h",
        {
            "m": ("1/(1+exp(-(v+10)/19))", f"(0.34+0.92*exp(-((v+81)/59)^2))/{QT}"),
            "h": ("1/(1+exp((v+76)/10))", f"(8+49*exp(-((v+83)/23)^2))/{QT}"),
        },
        "",
    ),
    "k_pst": (
        "k",
        "m*m*h",
        {
            "m": ("1/(1+exp(-(v+11)/12))", f"kpsttau(v)/{QT}"),
            "h": ("1/(1+exp((v+64)/11))", f"(360+(1010+24*(v+65))*exp(-((v+85)/48)^2))/{QT}"),
        },
        "",
    ),
}
FUNCTIONS = """
FUNCTION linoid(x) { if (fabs(x) < 1e-4) { linoid = 1 + x/2 } else { linoid = x/(1-exp(-x)) } }
FUNCTION kpsttau(v) {
  if (v < -60) { kpsttau = 1.25+175.03*exp(0.026*(v+10)) } else { kpsttau = 1.25+13*exp(-0.026*(v+10)) }
}
"""
CALCIUM = """NEURON { SUFFIX L_ca  USEION ca READ ica WRITE cai  RANGE gamma, decay }
PARAMETER { gamma = 0.0005  decay = 80 }
STATE { cai (mM) }
ASSIGNED { ica (mA/cm2) }
BREAKPOINT { SOLVE states METHOD cnexp }
DERIVATIVE states { cai' = -10000*ica*gamma/(2*96485.33212*0.1) - (cai - 1e-4)/decay }
"""
AMPA_NMDA = """NEURON { POINT_PROCESS L_exc  NONSPECIFIC_CURRENT i  RANGE ampa, nmda }
PARAMETER { ampa = 0.0004  nmda = 0.0004 }
ASSIGNED { v (mV)  i (nA)  fa  fn }
STATE { ar ad nr nd }
INITIAL { ar = 0  ad = 0  nr = 0  nd = 0  fa = peak(0.3, 3)  fn = peak(2, 70) }
FUNCTION peak(r, d) { LOCAL t  t = r*d/(d-r)*log(d/r)  peak = 1/(exp(-t/d)-exp(-t/r)) }
BREAKPOINT { SOLVE states METHOD cnexp  i = (ampa*(ad-ar) + nmda*(nd-nr)/(1+exp(-0.08*v)/3.57))*v }
DERIVATIVE states { ar' = -ar/0.3  ad' = -ad/3  nr' = -nr/2  nd' = -nd/70 }
NET_RECEIVE (w) { ar = ar+w*fa  ad = ad+w*fa  nr = nr+w*fn  nd = nd+w*fn }
"""


def mechanism(name: str) -> str:
    """NMODL of one channel."""
    ion, open_, gates, rates = CHANNELS[name]
    if ion == "h":
        use, current = "NONSPECIFIC_CURRENT i", f"i = gbar*{open_}*(v+45)"
    else:
        use, current = f"USEION {ion} READ e{ion} WRITE i{ion}", f"i{ion} = gbar*{open_}*(v-e{ion})"
    calcium = ("  USEION ca READ cai", "  cai (mM)") if name == "sk_e2" else ("", "")
    ions = "i (mA/cm2)" if ion == "h" else f"e{ion} (mV)  i{ion} (mA/cm2)"
    lines = "\n  ".join(rates.split("  ") + [f"{x}inf = {inf}\n  {x}tau = {tau}" for x, (inf, tau) in gates.items()])
    names = "  ".join(f"{x}inf {x}tau" for x in gates)
    return f"""NEURON {{ SUFFIX L_{name}  {use}{calcium[0]}  RANGE gbar }}
PARAMETER {{ gbar = 0 (S/cm2) }}
ASSIGNED {{ v (mV)  {ions}{calcium[1]}  {names}  am bm ah bh }}
STATE {{ {" ".join(gates)} }}
BREAKPOINT {{ SOLVE states METHOD cnexp
  {current} }}
INITIAL {{ rates()
  {"  ".join(f"{x} = {x}inf" for x in gates)} }}
DERIVATIVE states {{ rates()
  {"  ".join(f"{x}' = ({x}inf-{x})/{x}tau" for x in gates)} }}
PROCEDURE rates() {{
  {lines} }}
{FUNCTIONS}"""


def build(folder: Path) -> None:
    """Write and compile the mechanisms in `folder`."""
    mods = folder / "mods"
    mods.mkdir(parents=True, exist_ok=True)
    for name in CHANNELS:
        (mods / f"{name}.mod").write_text(mechanism(name))
    (mods / "a_calcium.mod").write_text(CALCIUM)  # first by name, as in the published model
    (mods / "exc.mod").write_text(AMPA_NMDA)
    nrnivmodl = Path(sys.executable).with_name("nrnivmodl")
    subprocess.run([sys.executable, nrnivmodl, "mods"], cwd=folder, check=True, capture_output=True)


def main(morphology: str, input_file: str, how: str) -> None:
    import morphio
    from neuron import h

    from elm_lib.simulate.cell.channels import CA_START
    from elm_lib.simulate.cell.densities import BRANCH_POINT
    from elm_lib.simulate.cell.morphology import load_cell

    cell = load_cell(morphology)
    tree = morphio.Morphology(morphology)
    sections = {0: h.Section(name="soma"), 1: h.Section(name="axon1"), 2: h.Section(name="axon2")}
    sections[0].L = sections[0].diam = np.sqrt(cell.area[0] / np.pi)
    for k, parent in ((1, sections[0](0.5)), (2, sections[1](1))):
        sections[k].L, sections[k].diam = 30, 1
        sections[k].connect(parent, 0)
    by_id, number = {}, 2
    for kind in (morphio.SectionType.basal_dendrite, morphio.SectionType.apical_dendrite):
        for traced in (s for s in tree.sections if s.type == kind):
            number += 1
            section = sections[number] = by_id[traced.id] = h.Section(name=f"dend{number}")
            for (x, y, z), d in zip(traced.points, traced.diameters, strict=True):
                section.pt3dadd(float(x), float(y), float(z), float(d))
            section.connect(sections[0](0.5) if traced.is_root else by_id[traced.parent.id](1), 0)

    place = {}
    for k, section in sections.items():
        nodes = np.flatnonzero((cell.section == k) & (cell.kind != BRANCH_POINT))
        section.nseg, section.Ra = len(nodes), 100
        d = {name: values[nodes] for name, values in cell.densities.items()}
        present = [name for name in CHANNELS if d[name].any()]
        for name in ["pas", *(f"L_{name}" for name in present), *(["L_ca"] if d["ca_decay"].any() else [])]:
            section.insert(name)
        for i, segment in enumerate(section):
            place[int(nodes[i])] = segment
            segment.cm, segment.pas.g, segment.pas.e = d["cm"][i], d["pas"][i], -90
            for name in present:
                setattr(segment, f"gbar_L_{name}", d[name][i])
            if d["ca_decay"].any():
                segment.gamma_L_ca, segment.decay_L_ca = d["ca_gamma"][i], d["ca_decay"][i]
        for ion, value in (("k", -85), ("na", 50)):
            if h.ismembrane(f"{ion}_ion", sec=section):
                setattr(section, f"e{ion}", value)
    h.celsius, h.cai0_ca_ion, h.cao0_ca_ion = 279.45 - 273.15, float(CA_START), 2.0

    connections, synapses = [], []
    for node in cell.synapse_node:
        exc, inh = h.L_exc(place[int(node)]), h.Exp2Syn(place[int(node)])
        exc.ampa = exc.nmda = 4e-4 * cell.reconstruction.excitatory_weight
        inh.tau1, inh.tau2, inh.e = 0.2, 8, -80
        for synapse, weight in ((exc, 1.0), (inh, 1e-3)):
            connection = h.NetCon(None, synapse)
            connection.weight[0], connection.delay = weight, 0
            connections.append(connection)
            synapses.append(synapse)  # NEURON drops what Python forgets
    with np.load(input_file) as spikes:
        indptr, channel = spikes["indptr"], spikes["channel"]
    times = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))

    def queue_events():
        for c, t in zip(channel, times, strict=True):
            connections[c].event(float(t))

    handler = h.FInitializeHandler(queue_events)
    solver = h.CVode()
    solver.active(how == "cvode")
    if how != "cvode":
        h.dt = float(how)
    voltage = h.Vector()
    voltage.record(sections[0](0.5)._ref_v, 1.0)  # every ms
    h.load_file("stdrun.hoc")
    h.steps_per_ms = 1 if how == "cvode" else round(1 / float(how))
    h.v_init, h.tstop = -76, len(indptr) - 1
    start = time.process_time()
    h.run()
    cpu_s = time.process_time() - start
    del handler
    print(json.dumps({"cpu_s": cpu_s, "voltage_mV": [round(x, 6) for x in voltage]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
