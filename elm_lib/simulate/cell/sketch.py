"""The shape of a reconstructed cell, to be drawn: where its neurites run and where its synapses lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elm_lib.simulate.cell.densities import APICAL, AXON, BASAL
from elm_lib.simulate.cell.morphology import arc_length, dendrites, load_cell


@dataclass(frozen=True)
class Sketch:
    """A cell in the plane of its reconstruction; y points to the surface of the cortex.

    name      of the reconstruction
    soma      (P, 2) outline, µm
    neurites  of each section: kind (AXON, BASAL or APICAL), points (P, 2) in µm, diameters (P,) in µm. The axon is as
              traced; the model replaces it by a stub.
    segments  (639, P, 2) µm, the piece of neurite that carries each pair of synapses, basal then apical, as P points
    """

    name: str
    soma: np.ndarray
    neurites: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    segments: np.ndarray


def load_sketch(path: str | os.PathLike, n_points: int = 5) -> Sketch:
    """Read a reconstruction. DataError when the file is missing or not a known one, as `load_cell` says."""
    import morphio

    cell = load_cell(path)
    tree = morphio.Morphology(os.fspath(Path(path)))
    kinds = {
        morphio.SectionType.axon: AXON,
        morphio.SectionType.basal_dendrite: BASAL,
        morphio.SectionType.apical_dendrite: APICAL,
    }
    neurites = tuple(
        (kinds[section.type], np.array(section.points, float)[:, :2], np.array(section.diameters, float))
        for section in tree.sections
        if section.type in kinds
    )
    pieces: dict[int, np.ndarray] = {}  # by node
    for number, _, section in dendrites(tree):
        points = np.asarray(section.points, float)
        arc = arc_length(points)
        nodes = np.flatnonzero((cell.section == number) & (cell.length > 0))
        edges = np.linspace(0, arc[-1], len(nodes) + 1)
        for node, left, right in zip(nodes, edges, edges[1:], strict=False):
            at = np.linspace(left, right, n_points)
            pieces[int(node)] = np.column_stack([np.interp(at, arc, points[:, axis]) for axis in (0, 1)])
    return Sketch(
        cell.reconstruction.name,
        np.array(tree.soma.points, float)[:, :2],
        neurites,
        np.stack([pieces[int(node)] for node in cell.synapse_node]),
    )
