"""The same membranes in Arbor (10.1109/EMPDP.2019.8671560), whose compiled `bbp` channels are an
independent reference.

Needs `pip install arbor`, a development dependency. Nothing in the pipeline imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elm_lib.simulate.cell.channels import CA_START
from elm_lib.simulate.cell.densities import APICAL, AXON, BASAL, SOMA, channel_densities
from elm_lib.simulate.cell.inputs import to_indptr
from elm_lib.simulate.cell.l5pc import PEAK, V_INIT, simulate
from elm_lib.simulate.cell.morphology import EXACT, Cell

ARBOR_NAMES = {
    "ih": "Ih",
    "im": "Im",
    "ca_lva": "Ca_LVAst",
    "ca_hva": "Ca_HVA",
    "skv3_1": "SKv3_1",
    "sk_e2": "SK_E2",
    "nats2_t": "NaTs2_t",
    "nata_t": "NaTa_t",
    "nap_et2": "Nap_Et2",
    "k_tst": "K_Tst",
    "k_pst": "K_Pst",
}
DIAMETER_UM = 20.0  # of the cylinder, as long as wide
DISTANCE_UM = 800.0  # of the apical compartment: in the hot zone of the calcium channels
KINDS = {"soma": SOMA, "axon": AXON, "basal": BASAL, "apical": APICAL}


def single_compartment(kind: str) -> Cell:
    """A cylinder of 20 x 20 um with the channels of kind "soma", "axon", "basal" or "apical" (800 um out)."""
    one = np.ones(1)
    kinds = np.full(1, KINDS[kind], np.int8)
    assert EXACT.longest_apical_path_um is not None  # it is given with the reconstruction
    return Cell(
        EXACT,
        np.full(1, -1, np.int32),
        kinds,
        np.zeros(1, np.int32),
        DIAMETER_UM * one,
        np.pi * DIAMETER_UM**2 * one,
        DISTANCE_UM * one,
        0.0 * one,
        channel_densities(kinds, DISTANCE_UM * one, EXACT.longest_apical_path_um),
        np.zeros(1, np.int32),
    )


@dataclass(frozen=True)
class Protocol:
    """What one compartment gets: a current from 20 ms on, AMPA events (ms), GABA_A events (ms); no NMDA."""

    kind: str
    current_nA: float
    stop_ms: int = 60
    exc_ms: tuple[int, ...] = ()
    inh_ms: tuple[int, ...] = ()


START_MS, DURATION_MS = 20, 100
# of both: the two engines order the parts of a step differently, which shows in action potentials at larger steps
DT_MS = 0.005
PROTOCOLS = {
    "soma, quiet": Protocol("soma", 0.02),
    "soma, action potential": Protocol("soma", 0.3, 24),
    "axon, quiet": Protocol("axon", 0.02),
    "axon, action potential": Protocol("axon", 0.2, 24),
    "basal": Protocol("basal", 0.15),
    "apical, calcium spike": Protocol("apical", 0.6),
    "synapses": Protocol("basal", 0.0, 60, (20, 21, 21, 40, 55), (30, 40, 41)),
}


def our_voltage(protocol: Protocol, dt_ms: float = DT_MS) -> np.ndarray:
    """Voltage (mV) at 0, 1, .. 99 ms in our simulator."""
    time_ms = np.array(protocol.exc_ms + protocol.inh_ms, int)
    channel = np.array([0] * len(protocol.exc_ms) + [1] * len(protocol.inh_ms), np.uint16)
    order = np.argsort(time_ms, kind="stable")
    current = np.zeros((1, DURATION_MS))
    current[0, START_MS : protocol.stop_ms] = protocol.current_nA
    recording = simulate(
        single_compartment(protocol.kind),
        to_indptr(time_ms[order], DURATION_MS)[None],
        channel[order],
        dt_ms=dt_ms,
        inject_node=0,
        inject_nA=current,
        peak_uS=PEAK | {"nmda": 0.0},
    )
    return recording.at_whole_ms()[0, 0]


def arbor_voltage(protocol: Protocol, dt_ms: float = DT_MS) -> np.ndarray:
    """Voltage (mV) at 0, 1, .. 99 ms in Arbor."""
    import arbor as A
    from arbor import units as U

    cell = single_compartment(protocol.kind)
    d = {name: float(values[0]) for name, values in cell.densities.items()}
    tree = A.segment_tree()
    tree.append(A.mnpos, A.mpoint(0, 0, 0, DIAMETER_UM / 2), A.mpoint(DIAMETER_UM, 0, 0, DIAMETER_UM / 2), tag=1)
    decor = A.decor().set_property(Vm=V_INIT * U.mV, cm=d["cm"] * 0.01 * U.F / U.m2, tempK=279.45 * U.Kelvin)
    decor.paint("(all)", A.density("pas/e=-90", {"g": d["pas"]}))
    for ours, theirs in ARBOR_NAMES.items():
        if d[ours] > 0:
            decor.paint("(all)", A.density(theirs, {f"g{theirs}bar": d[ours]}))
    if d["ca_decay"] > 0:
        decor.paint("(all)", A.density("CaDynamics_E2", {"decay": d["ca_decay"], "gamma": d["ca_gamma"]}))
    decor.place(
        "(location 0 0.5)", A.i_clamp(START_MS * U.ms, (protocol.stop_ms - START_MS) * U.ms, protocol.current_nA * U.nA)
    )
    decor.place("(location 0 0.5)", A.synapse("exp2syn", {"tau1": 0.3, "tau2": 3.0, "e": 0.0}), "ampa")
    decor.place("(location 0 0.5)", A.synapse("exp2syn", {"tau1": 0.2, "tau2": 8.0, "e": -80.0}), "gaba")

    model = A.single_cell_model(A.cable_cell(tree, decor, A.label_dict(), A.cv_policy_single()))
    catalogue = A.default_catalogue()
    catalogue.extend(A.bbp_catalogue(), "")
    model.properties.catalogue = catalogue
    model.properties.set_ion("na", rev_pot=50 * U.mV)
    model.properties.set_ion("k", rev_pot=-85 * U.mV)
    model.properties.set_ion("ca", int_con=float(CA_START) * U.mM, ext_con=2 * U.mM, method="nernst/ca")
    for label, times, weight in (("ampa", protocol.exc_ms, PEAK["ampa"]), ("gaba", protocol.inh_ms, PEAK["gaba"])):
        if len(times):
            model.event_generator(A.event_generator(label, weight, A.explicit_schedule([t * U.ms for t in times])))
    model.probe("voltage", "(location 0 0.5)", tag="v", frequency=1 * U.kHz)
    model.run(tfinal=DURATION_MS * U.ms, dt=dt_ms * U.ms)
    return np.array(model.traces[0].value)[:DURATION_MS]
