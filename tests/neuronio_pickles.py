"""Write files of exactly the published NeuronIO format: what Python 2's cPickle made of them, opcode by opcode.

Nothing but Python 2 writes such pickles (byte strings as SHORT_BINSTRING, each spike time a numpy scalar of its own), so
the opcodes are spelled out here. `python2_dumps` differs from cPickle in nothing that a reader can notice: it puts an
object into the memo where cPickle does, temporaries of __reduce__ excepted.
"""

from __future__ import annotations

import struct

import numpy as np


class _Writer:
    def __init__(self, core: str):
        self.out, self.memo, self.core = bytearray(b"\x80\x02"), {}, core

    def put(self, key=None) -> None:
        n = self.n_memo = getattr(self, "n_memo", -1) + 1
        self.out += b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n)
        if key is not None:
            self.memo[key] = b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n)

    def known(self, key) -> bool:
        """Write a reference if the object of this key was written before."""
        if key in self.memo:
            self.out += self.memo[key]
            return True
        return False

    def raw(self, data: bytes) -> None:
        self.out += b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data

    def named(self, module: str, name: str) -> None:
        if not self.known((module, name)):
            self.out += f"c{module}\n{name}\n".encode()
            self.put((module, name))

    def dtype(self, dtype: np.dtype) -> None:
        if self.known(dtype):
            return
        self.named("numpy", "dtype")
        self.raw(f"{dtype.kind}{dtype.itemsize}".encode())
        self.out += b"K\x00K\x01\x87R"
        self.put(dtype)
        self.out += b"(K\x03"
        self.raw(b"<" if dtype.itemsize > 1 else b"|")
        self.out += b"NNN" + 2 * (b"J" + struct.pack("<i", -1)) + b"K\x00tb"

    def save(self, value) -> None:
        if value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, np.generic):
            self.named(f"numpy.{self.core}.multiarray", "scalar")
            self.dtype(value.dtype)
            self.raw(value.tobytes())
            self.out += b"\x86R"
            self.put()
        elif isinstance(value, int):
            if 0 <= value < 256:
                self.out += b"K" + bytes([value])
            elif 0 <= value < 65536:
                self.out += b"M" + struct.pack("<H", value)
            else:
                self.out += b"J" + struct.pack("<i", value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str | bytes):  # a Python-2 str is bytes
            data = value.encode("latin1") if isinstance(value, str) else value
            if not self.known(data):
                self.raw(data)
                self.put(data)
        elif isinstance(value, list | tuple | dict):
            self.container(value)
        elif isinstance(value, np.ndarray):
            self.named(f"numpy.{self.core}.multiarray", "_reconstruct")
            self.named("numpy", "ndarray")
            self.out += b"K\x00\x85U\x01b\x87R"
            self.put()
            self.out += b"(K\x01"
            self.save(tuple(value.shape))
            self.dtype(value.dtype)
            self.out += b"\x89"
            self.raw(value.tobytes())
            self.out += b"tb"
        else:
            raise TypeError(type(value))

    def container(self, value) -> None:
        if isinstance(value, tuple):
            self.out += b"("
            for item in value:
                self.save(item)
            self.out += b"t"
            self.put()
            return
        self.out += b"}" if isinstance(value, dict) else b"]"
        self.put()
        self.out += b"("
        for item in value:
            self.save(item)
            if isinstance(value, dict):
                self.save(value[item])
        self.out += b"u" if isinstance(value, dict) else b"e"


def python2_dumps(value, core: str = "core") -> bytes:
    """What Python 2's cPickle writes with protocol 2. core: "core" (numpy 1) or "_core" (numpy 2)."""
    writer = _Writer(core)
    writer.save(value)
    return bytes(writer.out + b".")


def example(n: int = 2, duration_ms: int = 1200, seed: int = 0, rate: float = 0.01, segments: int = 639) -> dict:
    """Content of a file as published, random: spike times and segments are numpy int64 scalars (they came from
    numpy.nonzero), the voltage a float array, names Python-2 strings."""
    rng = np.random.default_rng(seed)

    def spike_times() -> dict:
        times: dict = {}
        for segment, t in zip(*np.nonzero(rng.random((segments, duration_ms)) < rate), strict=True):
            times.setdefault(segment, []).append(t)
        return times

    simulations = [
        {
            "exInputSpikeTimes": spike_times(),
            "inhInputSpikeTimes": spike_times(),
            "outputSpikeTimes": np.sort(rng.uniform(0, duration_ms, 4)),
            "somaVoltageLowRes": rng.normal(-67, 5, duration_ms),
            "recordingTimeLowRes": np.arange(duration_ms, dtype=np.float32),
            "nexusVoltageLowRes": rng.normal(-67, 5, duration_ms).astype(np.float16),
        }
        for _ in range(n)
    ]
    params = {
        "allSegmentsType": ["basal"] * 262 + ["apical"] * 377,
        "allSegments_DistFromSoma": list(rng.uniform(0, 1300, 639)),
        "totalSimDurationInSec": duration_ms // 1000 if duration_ms % 1000 == 0 else duration_ms / 1000,
        "collectAndSaveDVTs": True,
    }
    return {"Params": params, "Results": {"listOfSingleSimulationDicts": simulations}}


def file_name(content: dict, seed: int = 0) -> str:
    """The published naming rule."""
    simulations = content["Results"]["listOfSingleSimulationDicts"]
    n_out = sum(len(s["outputSpikeTimes"]) for s in simulations)
    seconds = int(content["Params"]["totalSimDurationInSec"])
    return f"sim__saved_InputSpikes_DVTs__{n_out}_outSpikes__{len(simulations)}_simulationRuns__{seconds}_secDuration__randomSeed_{seed}.p"
