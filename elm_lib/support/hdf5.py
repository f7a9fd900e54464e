"""Open HDF5 files of others: a file holds its data itself, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from elm_lib.support.errors import DataError


@contextmanager
def reading(path: Path, schema: str, remedy: str) -> Iterator[h5py.File]:
    """The open file. Raises DataError, with the remedy, for one that is damaged, lacks a key, or leads elsewhere.

    HDF5 lets a file name data in other files (links, external storage, virtual datasets): reading such a file would
    read those, whatever they are.
    """
    try:
        with h5py.File(path, "r") as file:
            _refuse_links(path, file, "", remedy)
            yield file
    except (OSError, KeyError, ValueError, TypeError, OverflowError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: not a whole HDF5 file of {schema} ({' '.join(str(error).split())}): {remedy}"
        ) from None


def _refuse_links(path: Path, group: h5py.Group, name: str, remedy: str) -> None:
    for key in group:
        here = f"{name}/{key}".lstrip("/")
        link = group.get(key, getlink=True)
        if not isinstance(link, h5py.HardLink):
            where = getattr(link, "filename", path.name)
            raise DataError(f"{path}: {here} is a link to {link.path} in {where}, not data: {remedy}")
        entry = group[key]
        if isinstance(entry, h5py.Group):
            _refuse_links(path, entry, here, remedy)
        elif isinstance(entry, h5py.Dataset) and (entry.is_virtual or entry.external):
            raise DataError(f"{path}: {here} lies in other files (virtual or external), not in this one: {remedy}")
