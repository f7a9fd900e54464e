"""The published NeuronIO files: read without running them, converted exactly, fetched through kagglehub."""

import json
import os
import pickle
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from neuronio_pickles import example, file_name, python2_dumps

from elm_lib.datasets.neuronio import published
from elm_lib.datasets.neuronio.published import SPLITS, convert, convert_file, fetch, find_files, register
from elm_lib.datasets.neuronio.schema import SimulationSet
from elm_lib.support.errors import DataError
from elm_lib.support.python2_pickle import load, numbers


def drop(raw: Path, folder: str, content: dict, seed: int = 0, **options) -> Path:
    path = raw / folder / file_name(content, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(python2_dumps(content, **options))
    return path


def check_converted(path: Path, content: dict) -> None:
    """The converted file holds exactly what the published one does, by a second, plain computation."""
    sims = SimulationSet(path)
    for n, simulation in enumerate(content["Results"]["listOfSingleSimulationDicts"]):
        x = np.zeros((sims.duration_ms(n), 1278))
        for name, kind, sign in (("exInputSpikeTimes", 0, 1), ("inhInputSpikeTimes", 1, -1)):
            for segment, times in simulation[name].items():
                x[np.array(times, int), 2 * int(segment) + kind] = sign
        np.testing.assert_array_equal(sims.dense(n), x)
        voltage = np.asarray(simulation["somaVoltageLowRes"]).astype(np.float32)
        np.testing.assert_array_equal(sims.files[0].soma_voltage[n], voltage)
        spike = np.zeros(len(x))
        spike[[int(t - 0.5) for t in simulation["outputSpikeTimes"]]] = 1
        np.testing.assert_array_equal(sims.targets(n)[0], spike)


# --- reading the pickles ---------------------------------------------------------------------------------------------


def test_the_writer_of_these_tests_writes_what_python_reads(tmp_path):
    """Our Python-2 pickles mean the same to Python's own unpickler (which runs what they name) and to our reader."""
    content = example(n=1, duration_ms=20, rate=0.1)
    data = python2_dumps(content)
    assert b"cnumpy.core.multiarray\nscalar\n" in data
    assert b"U\x11exInputSpikeTimes" in data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy.core is an old name
        by_python = pickle.loads(data, encoding="latin1")
    np.testing.assert_equal(by_python, content)
    with pytest.raises(UnicodeDecodeError):  # so Python-2 strings that are not ASCII are in the test
        pickle.loads(data)
    (tmp_path / "a.p").write_bytes(data)
    ours = load(tmp_path / "a.p")[b"Results"][b"listOfSingleSimulationDicts"][0]
    simulation = content["Results"]["listOfSingleSimulationDicts"][0]
    assert ours[b"exInputSpikeTimes"] == simulation["exInputSpikeTimes"]
    np.testing.assert_array_equal(numbers(ours[b"nexusVoltageLowRes"]), simulation["nexusVoltageLowRes"])


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2", "<i8", ">i2", "|u1", "|b1"])
def test_arrays_of_every_number_type_and_order_are_read(tmp_path, dtype):
    """Against numpy itself, for pickles written by Python 3 with protocol 2 (bytes go through _codecs.encode)."""
    array = np.asfortranarray(np.arange(-3, 21).reshape(4, 6) % 7).astype(dtype)
    (tmp_path / "a.p").write_bytes(pickle.dumps({"a": array, "s": array[1, 2]}, protocol=2))
    ours = load(tmp_path / "a.p")
    np.testing.assert_array_equal(numbers(ours["a"]), array)
    assert numbers(ours["s"]) == array[1, 2]


class Call:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def raw_global(module: str, name: str) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(U\x04trueo."


HOSTILE = {
    "posix.system": pickle.dumps(Call(os.system, "touch hostile-ran"), protocol=2),
    "__builtin__.eval": pickle.dumps(Call(eval, "open('hostile-ran', 'w')"), protocol=2),
    "builtins.exec": pickle.dumps(Call(exec, "open('hostile-ran', 'w')"), protocol=4),
    "numpy.load": b"\x80\x02cnumpy\nload\nU\x01a\x85R.",
    "os.system": raw_global("os", "system"),
    "__builtin__.getattr": b"\x80\x02c__builtin__\ngetattr\ncnumpy\nndarray\nU\x04dump\x86R.",
    "numpy.core.multiarray.fromfile": raw_global("numpy.core.multiarray", "fromfile"),
    "numpy.ndarray.tofile": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",  # a dotted name
    "numpy.core.multiarray.scalar.__class__": b"\x80\x04\x8c\x15numpy.core.multiarray\x8c\x10scalar.__class__\x93.",
    "copy_reg._reconstructor": b"\x80\x02ccopy_reg\n_reconstructor\n.",
    "subprocess.Popen": b"\x80\x02(isubprocess\nPopen\n.",  # the old opcode INST
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_asks_for_more_is_refused_by_name_and_does_not_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.p"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataError) as error:
        load(path)
    assert f"{path}: asks to call {name}, " in str(error.value)
    assert "\n" not in str(error.value)
    # the same deep inside an otherwise good file, behind objects that were read already
    content = pickle.dumps(example(n=1, duration_ms=50), protocol=2)
    body = HOSTILE[name][2:-1] if name != "builtins.exec" else HOSTILE[name][11:-1]
    path.write_bytes(content[:-1] + b"(" + body + b"t\x86.")
    with pytest.raises(DataError, match="refused, nothing was run"):
        load(path)
    assert os.listdir(tmp_path) == ["hostile.p"]


@pytest.mark.parametrize(
    "body",
    [
        b"cnumpy\ndtype\n}U\x04codeU\x01xsb",  # set attributes of an allowed name: dict state
        b"cnumpy\nndarray\nN}U\x05numpycnumpy\ndtype\ns\x86b",  # and slots state
        b"cnumpy.core.multiarray\nscalar\n(NNtb",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R",  # another codec
        b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\x02O8K\x00K\x01\x87RU\x08aaaaaaaa\x86R",  # a raw pointer
        b"Pid\n",  # a persistent id
        b"\x82\x01",  # an extension code
    ],
)
def test_tricks_with_the_allowed_names_fail_and_change_nothing(tmp_path, body):
    (tmp_path / "a.p").write_bytes(b"\x80\x02" + body + b".")
    with pytest.raises(DataError, match=r"a\.p: not a whole pickle"):
        load(tmp_path / "a.p")
    test_arrays_of_every_number_type_and_order_are_read(tmp_path, "<f8")


def test_a_damaged_pickle_is_one_clear_line(tmp_path):
    data = python2_dumps(example(n=1, duration_ms=50))
    for damaged in (b"", data[: len(data) // 2], data[:-1], b"<html>", b"\x80\x02" + data[100:]):
        (tmp_path / "a.p").write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.p: .*get it again") as error:
            load(tmp_path / "a.p")
        assert "\n" not in str(error.value)


# --- conversion
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["core", "_core"])
def test_conversion_is_exact(tmp_path, core):
    content = example(seed=1)
    simulation = content["Results"]["listOfSingleSimulationDicts"][1]
    simulation["exInputSpikeTimes"][np.int64(3)] = [np.int64(7), np.int64(7), np.int64(9)]  # twice in one ms: once
    simulation["inhInputSpikeTimes"] = {5: [0, 1199], 6: np.array([3.0, 4.0]), 7: []}  # other containers of times
    simulation["outputSpikeTimes"] = np.array([])
    raw, out = tmp_path / "raw", tmp_path / "out"
    source = drop(raw, "some/where/Data_test", content, core=core)
    fetch(raw, ["test"])
    (target,) = convert(raw, out, ["test"])["test"]
    check_converted(target, content)
    provenance = SimulationSet(out / "test").files[0].provenance
    assert provenance["file"] == source.name
    assert provenance["folder"] == "Data_test"
    assert len(provenance["sha256"]) == 64
    assert SimulationSet(out / "test").source == "real"


def test_splits_are_the_authors(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    for i in range(1, 11):
        drop(raw, f"full_ergodic_train_batch_{i}", example(n=1, duration_ms=60, seed=i), seed=i)
    drop(raw, "Data_test", example(n=1, duration_ms=60))
    fetch(raw)
    paths = convert(raw, out, workers=2)
    assert {split: len(files) for split, files in paths.items()} == {"train": 9, "valid": 1, "test": 1}
    assert "train_batch_1__" in paths["valid"][0].name
    check_converted(paths["valid"][0], example(n=1, duration_ms=60, seed=1))
    assert sum(map(len, SPLITS.values())) == 11
    with pytest.raises(ValueError, match="split 'tset': must be one of train, valid, test"):
        fetch(raw, ["tset"])


def test_conversion_goes_on_where_it_stopped(tmp_path, monkeypatch):
    raw, out = tmp_path / "raw", tmp_path / "out"
    contents = [example(n=1, duration_ms=60, seed=i) for i in range(3)]
    for i, content in enumerate(contents):
        drop(raw, "Data_test", content, seed=i)
    register(raw, "Data_test")
    done, real = [], published.write_simulations

    def killed_at_the_third(target, **content):
        done.append(target)
        if len(done) == 3:
            raise KeyboardInterrupt
        real(target, **content)

    monkeypatch.setattr(published, "write_simulations", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        convert(raw, out, ["test"])
    before = {path: path.stat().st_mtime_ns for path in (out / "test").iterdir()}
    assert len(before) == 2
    next(iter(before)).write_bytes(b"damaged")  # is made again as well
    with pytest.warns(UserWarning, match="cannot be read .* renamed to .*unreadable and made again"):
        paths = convert(raw, out, ["test"])["test"]
    assert len(done) == 5
    for path, content in zip(paths, contents, strict=True):
        check_converted(path, content)
    convert(raw, out, ["test"])
    assert len(done) == 5


def test_what_is_not_as_published_is_named(tmp_path):
    def bad(change):
        content = example(n=2, duration_ms=60)
        path = tmp_path / file_name(content)
        change(content, content["Results"]["listOfSingleSimulationDicts"][1])
        path.write_bytes(python2_dumps(content))
        return path

    for change, says in [
        (lambda c, s: c.pop("Params"), r"not a file of NeuronIO \(KeyError: b'Params'\)"),
        (lambda c, s: c["Params"]["allSegmentsType"].reverse(), "allSegmentsType is not 262 basal, then 377 apical"),
        (
            lambda c, s: c["Params"].update(totalSimDurationInSec=1e12),
            "totalSimDurationInSec is 1000000000000.0, not in",
        ),
        (lambda c, s: c["Params"].update(totalSimDurationInSec=float("nan")), "totalSimDurationInSec is nan"),
        (lambda c, s: c["Results"]["listOfSingleSimulationDicts"].clear(), "holds no simulation"),
        (lambda c, s: s.update(somaVoltageLowRes=np.zeros(61)), "cannot reshape array of size 61"),
        (lambda c, s: s.update(somaVoltageLowRes=np.full(60, np.nan)), "soma_voltage of simulation 1 at 0 ms is nan"),
        (lambda c, s: s["exInputSpikeTimes"].update({639: [1]}), "exInputSpikeTimes of segment 639"),
        (lambda c, s: s["exInputSpikeTimes"].update({0: [60]}), "simulation 1: spike time in ms 60 is not"),
        (lambda c, s: s.update(outputSpikeTimes=["x"]), "TypeError: numbers expected"),
    ]:
        path = bad(change)
        with pytest.raises(DataError, match=says) as error:
            convert_file(path, tmp_path / "out.h5", "Data_test", published.file_digest(path))
        assert "\n" not in str(error.value)
        assert not (tmp_path / "out.h5").exists()


def test_an_array_without_a_type_is_refused(tmp_path):
    content = example(n=1, duration_ms=60)
    data = python2_dumps(content)
    assert b"U\x02f8" in data
    path = tmp_path / file_name(content)
    path.write_bytes(data.replace(b"U\x02f8", b"U\x00"))
    with pytest.raises(DataError, match=r"not a file of NeuronIO .*array of dtype ''|not a whole pickle .*dtype ''"):
        convert_file(path, tmp_path / "out.h5", "Data_test", published.file_digest(path))


@pytest.mark.parametrize("content", [b"<html>no such file</html>", b"", b"\x80\x02}q"])
def test_a_failed_download_is_not_entered(tmp_path, content):
    path = drop(tmp_path, "Data_test", example(n=1, duration_ms=60))
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{path}: no pickle, or not a whole one \({len(content)} bytes\)"):
        fetch(tmp_path, ["test"])
    assert not (tmp_path / "manifest.json").exists()


def test_the_manifest_holds_files_to_their_first_sight(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    with pytest.raises(DataError, match=r"manifest\.json: does not list Data_test: run the download stage"):
        convert(raw, out, ["test"])
    content = example(n=1, duration_ms=60)
    path = drop(raw, "Data_test", content)
    fetch(raw, ["test"])
    manifest = json.loads((raw / "manifest.json").read_text())
    name = f"Data_test/{path.name}"
    assert manifest["Data_test"][name]["bytes"] == path.stat().st_size
    data = path.read_bytes()

    path.write_bytes(data[:-2] + b"e.")  # same size
    with pytest.raises(DataError, match=r"\.p: sha256 is .* as in manifest\.json: put it back, or, if"):
        convert(raw, out, ["test"])
    path.write_bytes(data + b".")
    with pytest.raises(DataError, match=rf"{path}: {len(data) + 1} bytes, not {len(data)} as in manifest"):
        fetch(raw, ["test"])
    path.unlink()
    with pytest.raises(DataError, match="missing, though in manifest"):
        fetch(raw, ["test"])
    path.write_bytes(data)
    extra = drop(raw, "Data_test", content, seed=9)
    with pytest.raises(DataError, match=rf"{extra}: not in manifest\.json"):
        find_files(raw, "Data_test")
    (raw / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json: not JSON"):
        fetch(raw, ["test"])


def test_no_space_for_the_conversion_is_said_before_it_starts(tmp_path, monkeypatch):
    drop(tmp_path, "Data_test", example(n=1, duration_ms=60))
    fetch(tmp_path, ["test"])
    monkeypatch.setattr(published, "BYTES_PER_SIMULATION", 1e15)
    with pytest.raises(DataError, match=r"converting 1 files of NeuronIO needs 128000000\.0 GB and"):
        convert(tmp_path, tmp_path / "out", ["test"])


# --- Kaggle
# ------------------------------------------------------------------------------------------------------------


class Kaggle(BaseHTTPRequestHandler):
    """The four calls of Kaggle's API that kagglehub makes, from loopback. Files: server.files[path] = bytes."""

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        call = self.path.rsplit("/", 1)[-1]
        self.server.calls.append((call, request.get("fileName") or request.get("path")))
        if self.headers["Authorization"] != self.server.authorization:
            self.answer(401)
        elif call == "GetDataset":
            self.answer(200, b'{"currentVersionNumber": 3}', Content_Type="application/json")
        elif call == "ListTreeDatasetFiles":
            names = [name for name in self.server.files if name.startswith(request["path"] + "/")]
            body = {"files": [{"name": n, "relativeUrl": n} for n in names], "directories": [], "nextPageToken": ""}
            self.answer(200, json.dumps(body).encode(), Content_Type="application/json")
        elif request["fileName"] in self.server.files:
            self.answer(302, Location=f"/files/{request['fileName']}")
        else:
            self.answer(404)

    def do_GET(self):
        data = self.server.files[self.path.removeprefix("/files/")]
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.server.ranges.append(start)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        stop = len(data) if self.server.drops == 0 else start + (len(data) - start) // 2
        self.server.drops -= self.server.drops > 0
        self.wfile.write(data[start:stop])


@pytest.fixture
def kaggle(tmp_path, monkeypatch):
    import kagglesdk.kaggle_env as env

    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN", "KAGGLE_CONFIG_DIR", "KAGGLEHUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "home" / ".kaggle"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Kaggle)
    server.daemon_threads = True
    server.files, server.calls, server.ranges, server.drops = {}, [], [], 0
    server.authorization = "Bearer secret"
    monkeypatch.setitem(env._env_to_endpoint, env.KaggleEnv.PROD, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(published, "FOLDER_BYTES", 1e3)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_download_from_kaggle_resumes_and_needs_no_network_afterwards(tmp_path, kaggle, monkeypatch):
    raw, out = tmp_path / "raw", tmp_path / "out"
    contents = [example(n=1, duration_ms=200, seed=i) for i in range(2)]
    for i, content in enumerate(contents):
        kaggle.files[f"Data_test/{file_name(content, i)}"] = python2_dumps(content)
    monkeypatch.setenv("KAGGLE_API_TOKEN", "secret")
    monkeypatch.setattr("kagglehub.clients.CHUNK_SIZE", 10_000)
    kaggle.drops = 1  # the connection breaks half way through a file
    with pytest.raises(
        DataError, match=r"download of Data_test stopped .* 1 times: run again to go on where it stopped"
    ):
        fetch(raw, ["test"], attempts=1, wait_s=0)
    assert not (raw / "manifest.json").exists()
    kaggle.drops = 1
    fetch(raw, ["test"], attempts=3, wait_s=0)  # a second break is mended within the call
    assert any(start > 0 for start in kaggle.ranges)
    paths = convert(raw, out, ["test"])["test"]
    for path, content in zip(paths, contents, strict=True):
        check_converted(path, content)
    calls = len(kaggle.calls)
    fetch(raw, ["test"])
    assert len(kaggle.calls) == calls
    assert "KAGGLEHUB_CACHE" not in os.environ


def test_kaggle_credentials_from_the_usual_places_or_a_clear_error(tmp_path, kaggle, monkeypatch):
    raw = tmp_path / "raw"
    content = example(n=1, duration_ms=60)
    kaggle.files[f"full_ergodic_train_batch_1/{file_name(content)}"] = python2_dumps(content)
    with pytest.raises(
        DataError, match=r"no Kaggle credentials: make a token .*kaggle\.json.*KAGGLE_API_TOKEN"
    ) as error:
        fetch(raw, ["valid"])
    assert "\n" not in str(error.value)
    assert str(raw / "full_ergodic_train_batch_1") in str(error.value)
    assert kaggle.calls == []

    file = tmp_path / "home" / ".kaggle" / "kaggle.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(DataError, match=r"credentials cannot be read .*kaggle\.json is missing 'username'"):
        fetch(raw, ["valid"])
    file.write_text('{"username": "ann", "key": "wrong"}')
    with pytest.raises(DataError, match=r"HTTP 401 .*check the credentials"):
        fetch(raw, ["valid"], wait_s=0)
    kaggle.authorization = "Basic YW5uOmtleQ=="  # ann:key
    file.write_text('{"username": "ann", "key": "key"}')
    fetch(raw, ["valid"])
    monkeypatch.setenv("KAGGLE_USERNAME", "ann")
    monkeypatch.setenv("KAGGLE_KEY", "key")
    file.unlink()
    fetch(tmp_path / "again", ["valid"])
    kaggle.files.clear()
    with pytest.raises(DataError, match=r"HTTP 404 .*Data_test"):
        fetch(raw, ["test"], wait_s=0)


def test_kaggle_out_of_reach_or_no_space(tmp_path, kaggle, monkeypatch):
    monkeypatch.setenv("KAGGLE_API_TOKEN", "secret")
    import kagglesdk.kaggle_env as env

    monkeypatch.setitem(env._env_to_endpoint, env.KaggleEnv.PROD, "http://127.0.0.1:1")
    with pytest.raises(DataError, match=r"stopped \(ConnectionError\) 2 times"):
        fetch(tmp_path, ["test"], attempts=2, wait_s=0)
    monkeypatch.setattr(published, "FOLDER_BYTES", 1e18)
    with pytest.raises(DataError, match=r"NeuronIO's Data_test needs 1000000000\.0 GB"):
        fetch(tmp_path, ["test"])
