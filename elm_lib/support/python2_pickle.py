"""Read pickles written by Python 2 without running anything that they name.

A pickle is a program: it may call any function it names. This reader knows six names, those that a container of
numbers and numpy arrays needs, and gives each of them a meaning of its own. Nothing else is ever looked up, not even
numpy's own functions; a pickle that names anything else is refused, and the message says what it asked for.

Python-2 strings come out as bytes (they may be text or an array's raw content, the file does not say); `field` looks a
name up either way.
"""

from __future__ import annotations

import pickle
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from elm_lib.support.errors import DataError

_TIMES, _SPARE_BYTES = 20, 1e9  # memory that a pickle may take: so many times its size, and so many bytes
_MAX_CACHE = 100_000  # scalars a dtype remembers: the 6000 spike times, not every float of a file


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value


class _Dtype:
    """Stands for numpy.dtype(code, align, copy), then its state (version, byte order, ...)."""

    def __init__(self, code: str | bytes, align: Any = False, copy: Any = False):
        self.code, self.order = _text(code), "="
        self.scalars: dict[bytes, Any] = {}

    def __setstate__(self, state: tuple) -> None:
        self.order = _text(state[1])
        if any(part is not None for part in state[2:5]):
            self.code = "V"  # sub-arrays and records: not numbers

    def numpy(self) -> np.dtype:
        if self.code[:1] not in tuple("biuf") or not self.code[1:].isdigit():
            raise ValueError(f"array of dtype {self.code!r}: only numbers are read")
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]  # from a file; numpy refuses others


class Array:
    """Stands for a numpy array, not yet decoded: what nobody asks for costs no second copy."""

    def __init__(self, subtype: Any = None, shape: Any = (0,), typecode: Any = b"b"):
        self._state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self._state = state

    def numpy(self) -> np.ndarray:
        """The array (read-only). Raises ValueError if it does not hold numbers."""
        _version, shape, dtype, is_fortran, raw = self._state
        return np.frombuffer(raw, dtype.numpy()).reshape(shape, order="F" if is_fortran else "C")


class _Scalar:
    """Stands for numpy.core.multiarray.scalar(dtype, raw): a plain Python number.

    A file holds ten million of these, with few different values: each value is made once.
    """

    def __new__(cls, dtype: _Dtype, raw: bytes) -> Any:
        value = dtype.scalars.get(raw)
        if value is None:
            value = np.frombuffer(raw, dtype.numpy())[0].item()
            if len(dtype.scalars) < _MAX_CACHE:
                dtype.scalars[raw] = value
        return value

    def __setstate__(self, state: Any) -> None:  # on every class here, so that a pickle cannot set attributes of it
        raise ValueError("a scalar has no state")


class _Encode:
    """Stands for _codecs.encode(text, "latin1"): how Python 3 writes bytes with protocol 2."""

    def __new__(cls, text: str, codec: str | bytes) -> Any:
        if _text(codec) not in ("latin1", "latin-1"):
            raise ValueError(f"text encoded as {codec!r}: only latin1 is read")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        raise ValueError("an encoded text has no state")


_ALLOWED = {
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode,
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy.core.multiarray", "scalar"): _Scalar,
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "scalar"): _Scalar,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path):
        super().__init__(file, encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise DataError(
                f"{self._path}: asks to call {module}.{name}, which simulation data never needs: refused, nothing was "
                f"run; delete the file and get it again from its source"
            ) from None


@contextmanager
def _bounded(n_bytes: float) -> Iterator[None]:
    """Within it, this process gets no more than n_bytes of memory on top of what it has: MemoryError beyond."""
    try:
        before = resource.getrlimit(resource.RLIMIT_AS)
        most = int(psutil.Process().memory_info().vms + n_bytes)
        resource.setrlimit(resource.RLIMIT_AS, (most if before[0] < 0 else min(most, before[0]), before[1]))
    except (OSError, ValueError):  # a system without such limits
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def load(path: str | Path) -> Any:
    """The content of a pickle of numbers, strings, lists, tuples, dicts and numpy arrays (as `Array`).

    Raises DataError if the pickle names anything else (saying what), or is damaged.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file, _bounded(_TIMES * path.stat().st_size + _SPARE_BYTES):
            return _Unpickler(file, path).load()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (DataError, OSError):
        raise
    except MemoryError:
        raise DataError(f"{path}: asks for far more memory than it has content: delete it and get it again") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{path}: not a whole pickle ({type(error).__name__}: {error}): delete it and get it again"
        ) from None


def field(mapping: Mapping, name: str) -> Any:
    """mapping[name], whether name was written as text or as a Python-2 string. Raises KeyError."""
    return mapping[name] if name in mapping else mapping[name.encode()]


def numbers(value: Any) -> np.ndarray:
    """An array, a number or a list of numbers -> numpy array of numbers. Raises ValueError or TypeError otherwise."""
    array = value.numpy() if isinstance(value, Array) else np.asarray(value)
    if array.size == 0:
        return np.zeros(array.shape)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"numbers expected, found {array.dtype}")
    return array
