"""Generation as a file factory: the same bytes however it is run, interrupted or repeated."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import pytest

from elm_lib.datasets.neuronio.generated import generate_split
from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.support.errors import DataError

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
    second = make(48)
    assert digests(tmp_path) == whole
    assert (second[0], second[2]) == (first[0], first[2]) and second[1] != first[1]
    make(16)
    assert list(digests(tmp_path)) == ["sims_00000.h5"]
    make(16, seed=5)
    assert digests(tmp_path)["sims_00000.h5"] != whole["sims_00000.h5"]


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
    deadline = time.monotonic() + 300
    while not list(folder.glob("*.h5")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    left = digests(folder)
    time.sleep(2)
    assert digests(folder) == left  # nobody writes on
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
        "generate_split(sys.argv[1], 4, 3, morphology=sys.argv[2], duration_ms=400, dt_ms=0.1, workers=1, progress=False)"
    )
    for name in ("compiled", "cached"):
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script, tmp_path / name, default_morphology],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")},
            check=True,
        )
    assert digests(tmp_path / "compiled") == digests(tmp_path / "cached")
