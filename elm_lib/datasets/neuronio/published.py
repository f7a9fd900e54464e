"""The published NeuronIO data (Beniaguev et al. 2021): fetched from Kaggle, checked, converted to our schema.

About 115 GB of Python-2 pickles in eleven folders, each file 128 simulations of 6 s. A folder is used where it lies if
the user has put it anywhere below the raw folder; else it is fetched there. Kaggle publishes no checksums, so the first
sight of a file is what later ones are held to: manifest.json in the raw folder.

Files are converted one at a time, so the memory needed is that of one file however many there are: 425 MB at the peak
and 17 s of CPU for 128 simulations of 6 s in 274 MB (benchmarks/real_conversion.py), which makes 31 MB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path

import numpy as np

from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.support import manifest
from elm_lib.support.errors import DataError
from elm_lib.support.files import file_digest, need_space, read_or_set_aside
from elm_lib.support.processes import progress
from elm_lib.support.python2_pickle import field, load, numbers
from elm_lib.support.workers import pool

_TRAIN = "selfishgene/single-neurons-as-deep-nets-nmda-train-data"
_TEST = "selfishgene/single-neurons-as-deep-nets-nmda-test-data"

# the authors validate on the first batch of the training set and train on the others
SPLITS: dict[str, tuple[str, ...]] = {
    "train": tuple(f"full_ergodic_train_batch_{i}" for i in range(2, 11)),
    "valid": ("full_ergodic_train_batch_1",),
    "test": ("Data_test",),
}
FOLDER_BYTES = 115e9 / 11  # bytes: mean size of a folder
BYTES_PER_SIMULATION = 0.25e6  # bytes: 6 s in our schema
N_SEGMENTS, N_BASAL = 639, 262  # dendritic segments, the basal ones first
LONGEST_S = 600.0  # s: of a simulation; the published ones have 6
_KAGGLE = "kaggle"  # folder in the raw folder that kagglehub manages


def fetch(raw: str | Path, splits: Iterable[str] = tuple(SPLITS), *, attempts: int = 5, wait_s: float = 5.0) -> None:
    """Make sure that the folders of these splits lie below `raw`, whole; download those that do not.

    Files that the user has put below raw/<folder>/ are taken as they are. A download goes on where it stopped, file by
    file and within a file. Every file is entered in raw/manifest.json (sha256, size) when it is first seen.

    raw:       e.g. data/raw/neuronio
    attempts:  how often a failing connection is tried in one call; wait_s (s) in between
    Raises DataError without Kaggle credentials, without space, or when Kaggle cannot be reached or refuses.
    """
    raw = Path(raw)
    for folder in _folders(splits):
        if folder in manifest.entered(raw):
            find_files(raw, folder)
            continue
        if not _files_by_hand(raw, folder):
            need_space(raw, FOLDER_BYTES, f"NeuronIO's {folder}")
            _fetch_folder(raw, folder, attempts, wait_s)
        register(raw, folder)


def register(raw: str | Path, folder: str) -> None:
    """Enter the files of one folder in raw/manifest.json: {folder: {path: {"sha256": hex, "bytes": int}}}."""
    raw = Path(raw)
    files = _files_by_hand(raw, folder) or sorted(set((raw / _KAGGLE).rglob(f"{folder}/**/*.p")))
    if not files:
        raise DataError(f"{raw}: holds no {folder}/*.p: run the download stage, or put the files there by hand")
    for path in files:
        _check_pickle(path)
    entries = {
        path.relative_to(raw).as_posix(): manifest.seen(path) for path in _shown(files, len(files), f"sha256 {folder}")
    }
    manifest.enter(raw, folder, entries)


def _check_pickle(path: Path) -> None:
    """Raise DataError for what is no pickle from its first byte to its last: an error page, a file that was cut off."""
    with path.open("rb") as file:
        first, size = file.read(1), file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if first not in (b"\x80", b"(", b"c", b"]", b"}") or file.read() != b".":
            raise DataError(f"{path}: no pickle, or not a whole one ({size} bytes): get it again from Kaggle")


def find_files(raw: str | Path, folder: str) -> dict[Path, str]:
    """The files of one folder and their sha256, from the manifest; sizes are checked, contents are not.

    Raises DataError naming the first file that is missing, of another size, or not in the manifest.
    """
    raw = Path(raw)
    known = manifest.entered(raw)
    if folder not in known:
        raise DataError(f"{raw / 'manifest.json'}: does not list {folder}: run the download stage")
    entries = {raw / name: entry for name, entry in known[folder].items()}
    for path, entry in entries.items():
        if not path.is_file():
            raise DataError(f"{path}: missing, though in manifest.json: put it back, {_forget(folder)}")
        if path.stat().st_size != entry["bytes"]:
            size = path.stat().st_size
            raise DataError(
                f"{path}: {size} bytes, not {entry['bytes']} as in manifest.json: put it back, {_forget(folder)}"
            )
    for path in _files_by_hand(raw, folder):
        if path not in entries:
            raise DataError(f"{path}: not in manifest.json: take it away, {_forget(folder)}")
    return {path: entry["sha256"] for path, entry in entries.items()}


def convert(
    raw: str | Path,
    out: str | Path,
    splits: Iterable[str] = tuple(SPLITS),
    *,
    workers: int = 1,
) -> dict[str, list[Path]]:
    """Convert the files of these splits to out/<split>/<folder>__<name>.h5; returns those paths for each split.

    A file that is there already, from the same source (sha256), is left: an interrupted conversion goes on. Each of
    `workers` processes holds one file at a time in memory.
    Raises DataError naming the file for anything that is not as published.
    """
    raw, out = Path(raw), Path(out)
    paths: dict[str, list[Path]] = {}
    jobs = []
    for split in splits:
        paths[split] = []
        for folder in _folders([split]):
            for source, sha256 in find_files(raw, folder).items():
                target = out / split / f"{folder}__{source.stem}.h5"
                paths[split].append(target)
                if not _is_converted(target, sha256):
                    jobs.append((source, target, folder, sha256))
    if not jobs:
        return paths
    need_space(out, 128 * BYTES_PER_SIMULATION * len(jobs), f"converting {len(jobs)} files of NeuronIO")
    with pool(workers) if workers > 1 else nullcontext() as executor:
        mapped = executor.map if executor else map
        for _ in _shown(mapped(convert_file, *zip(*jobs, strict=True)), len(jobs), "convert"):
            pass
    return paths


def convert_file(source: Path, target: Path, folder: str, sha256: str) -> None:
    """Convert one published file, after comparing it with its checksum; atomic.

    Raises DataError naming the file: wrong checksum, a pickle that asks for anything but numbers, other content than
    published.
    """
    found = file_digest(source)
    if found != sha256:
        raise DataError(
            f"{source}: sha256 is {found}, not {sha256} as in manifest.json: put it back, {_forget(folder)}"
        )
    content = load(source)
    try:
        params, results = field(content, "Params"), field(content, "Results")
        seconds = numbers(field(params, "totalSimDurationInSec")).item()
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"totalSimDurationInSec is {seconds}, not in 0..{LONGEST_S:.0f}")
        duration_ms = round(1000 * seconds)
        _check_segments(field(params, "allSegmentsType"))
        simulations = field(results, "listOfSingleSimulationDicts")
        if not isinstance(simulations, list) or not simulations:
            raise ValueError("listOfSingleSimulationDicts holds no simulation")
        spikes, output, voltages = [], [], []
        for simulation in simulations:
            spikes.append(_input_spikes(simulation))
            voltages.append(numbers(field(simulation, "somaVoltageLowRes")).astype(np.float32).reshape(duration_ms))
            output.append(numbers(field(simulation, "outputSpikeTimes")).reshape(-1))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{source}: not a file of NeuronIO ({reason}): get it again from Kaggle") from None
    del content, simulations
    write_simulations(
        target,
        spikes=spikes,
        soma_voltage=np.stack(voltages),
        output_spikes_ms=output,
        source="real",
        provenance={
            "dataset": _TEST if folder in SPLITS["test"] else _TRAIN,
            "folder": folder,
            "file": source.name,
            "sha256": sha256,
        },
    )


def _check_segments(types: list) -> None:
    """ValueError unless the file counts its segments as we do: 262 of one type (basal), then 377 of another
    (apical)."""
    first, last = set(types[:N_BASAL]), set(types[N_BASAL:])
    if len(types) != N_SEGMENTS or not len(first) == len(last) == 1 or first == last:
        raise ValueError(f"allSegmentsType is not {N_BASAL} basal, then {N_SEGMENTS - N_BASAL} apical segments")


def _input_spikes(simulation: dict) -> tuple[np.ndarray, np.ndarray]:
    """One published simulation -> (channel, time_ms) of its input spikes, int64 each."""
    channels, times_ms = [], []
    for kind, name in enumerate(("exInputSpikeTimes", "inhInputSpikeTimes")):
        for segment, times in field(simulation, name).items():
            if not 0 <= segment < N_SEGMENTS:
                raise ValueError(f"{name} of segment {segment}, outside 0..{N_SEGMENTS - 1}")
            times = numbers(times).reshape(-1)
            times_ms.append(times)
            channels.append(np.full(len(times), 2 * int(segment) + kind))
    if not channels:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(channels), np.concatenate(times_ms)


def _is_converted(target: Path, sha256: str) -> bool:
    found = read_or_set_aside(target, open_simulations)
    return found is not None and found.provenance.get("sha256") == sha256


def _shown(items: Iterable, total: int, what: str) -> Iterator:
    """The items, with a progress bar."""
    with progress(total, what, "file") as bar:
        for item in items:
            yield item
            bar.update()


def _folders(splits: Iterable[str]) -> list[str]:
    unknown = [split for split in splits if split not in SPLITS]
    if unknown:
        raise ValueError(f"split {unknown[0]!r}: must be one of {', '.join(SPLITS)}")
    return [folder for split in splits for folder in SPLITS[split]]


def _forget(folder: str) -> str:
    return f"or, if that is as it should be, delete {folder!r} from manifest.json and run the download stage"


def _files_by_hand(raw: Path, folder: str) -> list[Path]:
    """What the user has put anywhere below raw in a folder of this name, kagglehub's own folder aside."""
    return sorted({path for path in raw.rglob(f"{folder}/**/*.p") if path.relative_to(raw).parts[0] != _KAGGLE})


def _fetch_folder(raw: Path, folder: str, attempts: int, wait_s: float) -> None:
    """Download one folder with kagglehub into raw/kaggle."""
    handle = _TEST if folder in SPLITS["test"] else _TRAIN
    by_hand = f"or put the files into {raw / folder}/ by hand (https://www.kaggle.com/datasets/{handle})"
    with _kagglehub_in(raw / _KAGGLE):
        import kagglehub  # slow, and of use to few
        import requests
        from kagglehub.config import get_kaggle_credentials
        from kagglehub.exceptions import DataCorruptionError, KaggleApiHTTPError

        try:
            found = get_kaggle_credentials()
        except (OSError, ValueError) as error:
            raise DataError(f"Kaggle credentials cannot be read ({error}): mend that file, {by_hand}") from None
        if found is None:
            raise DataError(
                "no Kaggle credentials: make a token at https://www.kaggle.com/settings and save it as "
                f"~/.kaggle/kaggle.json (or set KAGGLE_API_TOKEN, or KAGGLE_USERNAME and KAGGLE_KEY), {by_hand}"
            )
        for attempt in range(1, attempts + 1):
            try:
                # by folder: the whole data set would come as one archive, and need twice the space
                kagglehub.dataset_download(handle, path=folder)
                return
            except KaggleApiHTTPError as error:
                status = getattr(error.response, "status_code", None)
                if attempt == attempts or status is None or status < 500:
                    remedy = "check the credentials" if status in (401, 403) else "run again later"
                    raise DataError(
                        f"Kaggle answers HTTP {status} for {handle}, {folder}: {remedy}, {by_hand}"
                    ) from None
            except (requests.RequestException, DataCorruptionError) as error:
                if attempt == attempts:
                    raise DataError(
                        f"Kaggle: download of {folder} stopped ({type(error).__name__}) {attempts} times: run again to "
                        f"go on where it stopped, {by_hand}"
                    ) from None
            time.sleep(wait_s)


@contextmanager
def _kagglehub_in(folder: Path) -> Iterator[None]:
    """kagglehub reads where to download to from the environment; put that back afterwards."""
    ours = {
        "KAGGLEHUB_CACHE": str(folder.absolute()),
        "DISABLE_KAGGLE_CACHE": "1",
        "DISABLE_COLAB_CACHE": "1",
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        with progress(1, f"Kaggle to {folder}", "call") as bar, redirect_stderr(bar.fp):
            yield
            bar.update()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
