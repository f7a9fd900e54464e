"""Generation as a file factory: the same bytes however it is run, interrupted or repeated."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from elm_lib.datasets import prepare
from elm_lib.datasets.neuronio import morphology
from elm_lib.datasets.neuronio.generated import generate_split
from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.datasets.neuronio.settings import NeuronIO, Split
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.support.errors import DataError
from elm_lib.support.manifest import checksums

pytest_plugins = ["simulate_fixtures"]

SMALL = dict(duration_ms=30, dt_ms=0.1, progress=False)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, default_morphology):
    for workers in (1, 2):
        generate_split(tmp_path / str(workers), 35, 4, morphology=default_morphology, workers=workers, **SMALL)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert list(digests(tmp_path / "1")) == ["sims_00000.h5", "sims_00001.h5", "sims_00002.h5"]
    assert open_simulations(tmp_path / "1" / "sims_00002.h5").verify().n_simulations == 3


def test_only_what_is_missing_damaged_or_stale_is_made(tmp_path, default_morphology):
    def make(n, seed=4):
        paths = generate_split(tmp_path, n, seed, morphology=default_morphology, workers=1, **SMALL)
        return [path.stat().st_mtime_ns for path in paths]

    first = make(48)
    whole = digests(tmp_path)
    (tmp_path / "sims_00001.h5").write_bytes((tmp_path / "sims_00001.h5").read_bytes()[:1000])  # truncated
    (tmp_path / "sims_00007.h5.part").touch()  # left by a kill
    with pytest.warns(UserWarning, match=r"sims_00001\.h5 cannot be read .*renamed to sims_00001\.h5\.unreadable"):
        second = make(48)
    assert (tmp_path / "sims_00001.h5.unreadable").stat().st_size == 1000
    (tmp_path / "sims_00001.h5.unreadable").unlink()
    assert digests(tmp_path) == whole
    assert (second[0], second[2]) == (first[0], first[2]) and second[1] != first[1]
    make(16)
    assert list(digests(tmp_path)) == ["sims_00000.h5"]
    make(16, seed=5)
    assert digests(tmp_path)["sims_00000.h5"] != whole["sims_00000.h5"]


def test_the_first_files_are_those_of_the_whole(tmp_path, default_morphology):
    def make(folder, most=None):
        return generate_split(tmp_path / folder, 40, 4, morphology=default_morphology, workers=1, most=most, **SMALL)

    assert len(make("whole")) == 3
    assert [path.name for path in make("first", most=17)] == ["sims_00000.h5", "sims_00001.h5"]
    assert len(make("first")) == 3
    assert digests(tmp_path / "first") == digests(tmp_path / "whole")
    assert len(make("first", most=1)) == 3  # what is there stays


def test_a_file_of_an_earlier_day_is_not_made_again(tmp_path, default_morphology):
    """What a file says of its making, word for word. Another wording would throw away months of simulations."""
    made = {
        "dt_ms": 0.1,
        "duration_ms": 30,
        "excitatory_weight": 1.13,
        "first_index": 0,
        "generator": "elm_lib.simulate",
        "generator_version": 1,
        "morphology": "C060114A7",
        "morphology_sha256": "ecd128245dcf7289dd1bc372fa9ed07dfaf0bd31f77fa7934ffefaf21964a10a",
        "morphology_source": "bluepyopt 1.14.26 (PyPI), tests/test_ephys/testdata/acc/l5pc/C060114A7.asc",
        "ranges": "script",
        "seed": 4,
        "segment_length_um": 44.4,
        "silence_synapses_hit_at_zero": False,
    }
    path = tmp_path / "sims_00000.h5"
    silence = (np.zeros(0, int), np.zeros(0, int))
    arrays = {"spikes": [silence], "soma_voltage": np.zeros((1, 30)), "output_spikes_ms": [[]]}
    write_simulations(path, **arrays, source="generated", provenance=made)
    before = digests(tmp_path)
    generate_split(tmp_path, 1, 4, morphology=default_morphology, workers=1, **SMALL)
    assert digests(tmp_path) == before


def test_training_data_come_later_and_leave_the_others_as_they_are(tmp_path, default_morphology, monkeypatch):
    monkeypatch.setattr("elm_lib.datasets.neuronio.generated.usable_cores", lambda: 1)
    split = {"duration_ms": 30, "dt_ms": 0.1, "ranges": "narrow"}  # shorter than params.yaml allows
    sizes = {"train": 2, "valid": 1, "test": 17}
    splits = {name: Split.model_construct(**split, simulations=n) for name, n in sizes.items()}
    wanted = NeuronIO.model_construct(source="generated", morphology="default", seed=1, **splits)
    sources = {"source": "generated", "morphology": default_morphology.name}
    (tmp_path / "l5pc").symlink_to(default_morphology.parent)

    def make(folder, **options):
        return prepare("neuronio", wanted, sources, raw=tmp_path, out=tmp_path / folder, **options)

    first = make("later", splits=("valid", "test"), most={"test": 5})
    assert set(first["sha256"]) == {"valid", "test"}
    assert len(first["files"]["test"]) == 1
    with pytest.raises(DataError, match="does not say what train holds"):
        checksums(tmp_path / "later", ("train", "test"), "x")
    make("later", splits=("train",))
    second = make("later", splits=("test",))
    assert second == make("at_once")
    assert second["sha256"]["valid"] == first["sha256"]["valid"]
    assert len(second["files"]["test"]) == 2


def test_a_killed_run_leaves_no_orphans_and_goes_on(tmp_path, default_morphology):
    script = tmp_path / "make.py"
    script.write_text(
        "from elm_lib.datasets.neuronio.generated import generate_split\n"
        "if __name__ == '__main__':\n"
        f"    generate_split({str(tmp_path / 'out')!r}, 64, 4, morphology={str(default_morphology)!r}, workers=2,\n"
        "                   duration_ms=400, dt_ms=0.1, progress=False)\n"
    )
    run = subprocess.Popen([sys.executable, script], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    folder = tmp_path / "out"
    while not list(folder.glob("*.h5")):
        assert run.poll() is None  # works or has failed: pytest's own limit guards against hanging
        time.sleep(0.02)
    workers = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGKILL)
    run.wait()
    psutil.wait_procs(workers)  # nobody writes on
    left = digests(folder)
    subprocess.run([sys.executable, script], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True)
    done = digests(folder)
    assert len(done) == 4 and all(done[name] == digest for name, digest in left.items() if name.endswith(".h5"))


def test_bad_arguments_are_named(tmp_path, default_morphology):
    with pytest.raises(ValueError, match="n_simulations = 0"):
        generate_split(tmp_path, 0, 1, morphology=default_morphology)
    with pytest.raises(DataError, match="needs .* GB"):
        generate_split(tmp_path, 16, 1, morphology=default_morphology, duration_ms=10**13)
    assert not list(tmp_path.iterdir())


def test_a_process_that_compiles_and_one_that_reads_the_cache_agree_to_the_bit(tmp_path, default_morphology):
    script = (
        "from elm_lib.datasets.neuronio.generated import generate_split; import sys;"
        "generate_split(sys.argv[1], 4, 3, morphology=sys.argv[2], "
        "duration_ms=400, dt_ms=0.1, workers=1, progress=False)"
    )
    for name in ("compiled", "cached"):
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script, tmp_path / name, default_morphology],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")},
            check=True,
        )
    assert digests(tmp_path / "compiled") == digests(tmp_path / "cached")


def test_the_morphology_at_hand(tmp_path, default_morphology, monkeypatch):
    at_hand, folder = morphology.morphology_at_hand, default_morphology.parent
    assert at_hand(folder, "default") == folder / "C060114A7.asc"
    assert at_hand(tmp_path, "exact") is None  # no download

    def unreachable(*_, **__):
        raise DataError("no network")

    monkeypatch.setattr(morphology.subprocess, "run", unreachable)
    assert at_hand(tmp_path, "auto") is None and at_hand(tmp_path, "default") is None
    (tmp_path / "C060114A7.asc").write_bytes(default_morphology.read_bytes())
    assert at_hand(tmp_path, "auto") == tmp_path / "C060114A7.asc" and at_hand(tmp_path, "exact") is None
    (tmp_path / "cell1.asc").write_text("another cell")
    with pytest.raises(DataError, match="cell1.asc: sha256"):
        at_hand(tmp_path, "exact")
