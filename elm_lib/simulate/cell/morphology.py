"""From a Neurolucida reconstruction to the compartments of a layer-5 pyramidal cell.

The rules are those of the published model (Hay et al. 2011, 10.1371/journal.pcbi.1002107, ModelDB 139653),
as NEURON applies them:

- a section of length L is cut into 1 + 2*int(L / 40 um) equal segments, the soma is one;
- the traced axon is replaced by a stub: two sections of 30 um length and 1 um diameter;
- every neurite leaves from the middle of the soma;
- the point where a section branches is a node of its own, without membrane.

`load_cell` returns a `Cell`: a tree of nodes in Hines order (a parent has a smaller number than its
children), with membrane area, axial conductance to the parent, channel densities, and the segments that
carry synapses.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elm_lib.simulate.cell.densities import APICAL, AXON, BASAL, BRANCH_POINT, SOMA, channel_densities
from elm_lib.simulate.cell.soma import soma_area
from elm_lib.support.errors import DataError

N_SYNAPSE_SEGMENTS = 639  # one excitatory and one inhibitory synapse each: the 1278 channels of NeuronIO

AXIAL_RESISTIVITY = 100.0  # ohm cm
AXON_STUB_LENGTH, AXON_STUB_DIAMETER = 30.0, 1.0  # um


@dataclass(frozen=True)
class Reconstruction:
    """A known reconstruction and what has to be chosen for it."""

    name: str
    sha256: str
    source: str
    segment_length_um: float  # longest segment is about half of it
    n_silent_segments: int  # this many of the smallest segments get no synapses, so that 639 remain
    excitatory_weight: float  # factor on the excitatory synapses
    longest_apical_path_um: float | None  # for the Ih gradient; None: measure it


EXACT = Reconstruction(
    name="cell1",
    sha256="a8afc0925afec1dd9241528ee6ccfdcb1c321904d876835990592c2573567383",
    source="Hay et al. 2011, ModelDB 139653, cell1.asc",
    segment_length_um=40.0,
    n_silent_segments=0,
    excitatory_weight=1.0,
    longest_apical_path_um=1300.5335,
)
# 40 um would give 696 dendritic segments, 44.4 um gives 640: the one with the least membrane, whose input
# weighs least, is left out.
DEFAULT = Reconstruction(
    name="C060114A7",
    sha256="ecd128245dcf7289dd1bc372fa9ed07dfaf0bd31f77fa7934ffefaf21964a10a",
    source="bluepyopt 1.14.26 (PyPI), tests/test_ephys/testdata/acc/l5pc/C060114A7.asc",
    segment_length_um=44.4,
    n_silent_segments=1,
    # 96 simulations, narrow ranges: 4.3 spikes in 6 s at 1.10, 5.3 at 1.14, 7.8 at 1.20 (s.e. 0.6)
    excitatory_weight=1.13,
    longest_apical_path_um=None,
)
KNOWN = {r.sha256: r for r in (EXACT, DEFAULT)}


@dataclass(frozen=True)
class Cell:
    """A discretised neuron. N nodes: soma, segments and branch points, parents before children.

    parent (int32, N): node number of the parent, -1 for the soma
    kind (int8, N): SOMA, AXON, BASAL, APICAL or BRANCH_POINT (no membrane)
    section (int32, N): section number (soma 0, axon 1 and 2, then dendrites in file order)
    length, area, distance (float64, N): um, um2, um of path from the soma's middle
    axial (float64, N): conductance to the parent, uS
    densities (dict of float64, N): S/cm2, uF/cm2 (cm), ms (ca_decay), 1 (ca_gamma)
    synapse_node (int32, 639): node of each synapse segment, basal then apical
    """

    reconstruction: Reconstruction
    parent: np.ndarray
    kind: np.ndarray
    section: np.ndarray
    length: np.ndarray
    area: np.ndarray
    distance: np.ndarray
    axial: np.ndarray
    densities: dict[str, np.ndarray]
    synapse_node: np.ndarray

    @property
    def n_basal_synapses(self) -> int:
        return int(np.sum(self.kind[self.synapse_node] == BASAL))


def load_cell(path: str | os.PathLike) -> Cell:
    """Read a reconstruction and cut it into compartments. DataError when the file is missing or not one of
    `KNOWN`."""
    path = Path(path)
    if not path.is_file():
        raise DataError(
            f"{path}: no such morphology; fetch one with elm_lib.datasets.neuronio.morphology.fetch_morphology"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest not in KNOWN:
        names = ", ".join(f"{r.name} ({r.sha256[:12]})" for r in KNOWN.values())
        raise DataError(f"{path}: sha256 {digest[:12]} is no known morphology; use one of {names}, unedited")
    return discretise(path, KNOWN[digest])


def discretise(path: Path, reconstruction: Reconstruction) -> Cell:
    """Nodes of the tree, see `Cell`."""
    import morphio

    tree = morphio.Morphology(os.fspath(path))
    nodes = _Nodes()
    nodes.add(-1, SOMA, 0, length=0.0, area=soma_area(np.asarray(tree.soma.points, float)), distance=0.0, axial=0.0)
    stub_points = np.array([[0.0, 0, 0], [AXON_STUB_LENGTH, 0, 0]])
    stub_diameters = np.full(2, AXON_STUB_DIAMETER)
    end = nodes.add_section(0, 0.0, AXON, 1, stub_points, stub_diameters, 1, has_children=True)
    nodes.add_section(end, AXON_STUB_LENGTH, AXON, 2, stub_points, stub_diameters, 1, has_children=False)

    section_end: dict[int, tuple[int, float]] = {}  # last node, um from the soma
    for number, kind, section in dendrites(tree):
        points, diameters = np.asarray(section.points, float), np.array(section.diameters, float)
        if section.is_root:
            parent, start = 0, 0.0
        else:
            parent, start = section_end[section.parent.id]
        length = arc_length(points)[-1]
        n_segments = 1 + 2 * int(length / reconstruction.segment_length_um)
        end = nodes.add_section(parent, start, kind, number, points, diameters, n_segments, bool(section.children))
        section_end[section.id] = (end, start + length)
    return nodes.finish(reconstruction)


def dendrites(tree: Any) -> Iterator[tuple[int, int, Any]]:
    """Section number of `Cell.section`, kind and morphio section of each dendrite: basal, then apical."""
    import morphio

    number = 2  # the soma is section 0, the stub of the axon 1 and 2
    for kind, tag in ((BASAL, morphio.SectionType.basal_dendrite), (APICAL, morphio.SectionType.apical_dendrite)):
        for section in tree.sections:
            if section.type == tag:
                number += 1
                yield number, kind, section


class _Nodes:
    """Collects nodes while the sections are walked."""

    def __init__(self) -> None:
        self.rows: list[tuple] = []

    def add(self, parent, kind, section, *, length, area, distance, axial, density_distance=0.0) -> int:
        self.rows.append((parent, kind, section, length, area, distance, axial, density_distance))
        return len(self.rows) - 1

    def add_section(self, parent, start_um, kind, section, points, diameters, n_segments, has_children) -> int:
        """Add a section's segments, and its end as a branch point where sections follow. Returns the last
        node."""
        arc = arc_length(points)
        length = arc[-1]
        resistance = 0.0  # Mohm, from the last node to where we are
        for i in range(n_segments):
            left, centre, right = (length * (i + f) / n_segments for f in (0.0, 0.5, 1.0))
            area = _frusta(arc, diameters, left, right)[0]
            resistance += _frusta(arc, diameters, left, centre)[1]
            # The published model evaluates each section's last segment at the section's end.
            density_at = start_um + (length if i == n_segments - 1 else centre)
            parent = self.add(
                parent,
                kind,
                section,
                length=length / n_segments,
                area=area,
                distance=start_um + centre,
                axial=1.0 / resistance,
                density_distance=density_at,
            )
            resistance = _frusta(arc, diameters, centre, right)[1]
        if has_children:
            parent = self.add(
                parent, BRANCH_POINT, section, length=0.0, area=0.0, distance=start_um + length, axial=1.0 / resistance
            )
        return parent

    def finish(self, reconstruction: Reconstruction) -> Cell:
        parent, kind, section, length, area, distance, axial, density_distance = map(
            np.array, zip(*self.rows, strict=True)
        )
        longest = reconstruction.longest_apical_path_um
        if longest is None:
            longest = float(density_distance[kind == APICAL].max())
        segments = np.concatenate([np.flatnonzero(kind == BASAL), np.flatnonzero(kind == APICAL)])
        smallest = np.argsort(area[segments], kind="stable")[: reconstruction.n_silent_segments]
        segments = np.delete(segments, smallest)
        if len(segments) != N_SYNAPSE_SEGMENTS:
            raise DataError(f"{reconstruction.name}: {len(segments)} segments for synapses, not {N_SYNAPSE_SEGMENTS}")
        return Cell(
            reconstruction,
            parent.astype(np.int32),
            kind.astype(np.int8),
            section.astype(np.int32),
            length,
            area,
            distance,
            axial,
            channel_densities(kind, density_distance, longest),
            segments.astype(np.int32),
        )


def arc_length(points: np.ndarray) -> np.ndarray:
    """Path length (P,) in um at each point (P, 3)."""
    return np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])


def _frusta(arc: np.ndarray, diameters: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """Lateral area (um2) and axial resistance (Mohm) of the truncated cones between path lengths a and b
    (um)."""
    inside = arc[(arc > a) & (arc < b)]
    x = np.concatenate([[a], inside, [b]])
    d = np.interp(x, arc, diameters)
    dx, d1, d2 = np.diff(x), d[:-1], d[1:]
    area = np.sum(np.pi * 0.5 * (d1 + d2) * np.sqrt(dx**2 + 0.25 * (d2 - d1) ** 2))
    resistance = AXIAL_RESISTIVITY * 0.01 * np.sum(dx / (np.pi * 0.25 * d1 * d2))  # ohm cm * um / um2 = 0.01 Mohm
    return float(area), float(resistance)
