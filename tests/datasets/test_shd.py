"""SHD on disk and in batches: the published layout, exact bins, splits, streams that depend on (seed, epoch, step)
alone, downloads."""

import gzip
import hashlib
import json
import threading
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elm_lib.datasets.shd import published as shd_real
from elm_lib.datasets.shd.batches import (
    BINS_MS,
    ShdData,
    bin_spikes,
    draw,
    draw_pairs,
    drop,
    fixed_pairs,
    gather,
    n_bins,
    validation_mask,
)
from elm_lib.datasets.shd.prepare import prepare
from elm_lib.datasets.shd.schema import Recordings, open_recordings, write_recordings
from elm_lib.experiments.config import Shd
from elm_lib.support.errors import DataError

EDGES = np.array([0, 0.125, 0.25, 0.5, 0.9995, 1.0, 1.001, 1.17], np.float16)  # 0.9995: the last float16 below 1 s


def published_layout(path: Path, n: int, seed: int, speakers=tuple(range(12)), change=None) -> list:
    """A file as the authors wrote theirs, by h5py alone: variable-length float16 and integer lists, no attributes."""
    rng = np.random.default_rng(seed)
    spikes = []
    for _ in range(n):
        size = int(rng.integers(0, 400))
        times = np.sort(np.concatenate([rng.uniform(0, 1.2, size).astype(np.float16), np.repeat(EDGES, 2)]))
        spikes.append((times, rng.integers(0, 700, len(times)).astype(np.uint16)))
    content = {
        "labels": rng.integers(0, 20, n).astype(np.uint16),
        "extra/speaker": rng.choice(speakers, n).astype(np.uint16),
        "extra/keys": np.array([b"zero"] * 20),
        "extra/meta_info/gender": np.array([b"male"] * 12),
        "extra/meta_info/age": np.full(12, 30, np.uint16),
        "extra/meta_info/body_height": np.full(12, 180, np.uint16),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, k, dtype in (("times", 0, np.float16), ("units", 1, np.uint16)):
            dataset = file.create_dataset(f"spikes/{name}", (n,), h5py.vlen_dtype(dtype))
            for i, lists in enumerate(spikes):
                dataset[i] = lists[k]
        for name, values in content.items():
            file[name] = values
        if change:
            change(file)
    return spikes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("shd")
    published_layout(path / "train.h5", 120, 1, speakers=(0, 1, 2))
    published_layout(path / "test.h5", 37, 2, speakers=(0, 4, 5))
    return path


@pytest.fixture(scope="module")
def data(folder) -> ShdData:
    return ShdData(folder)


def test_the_published_layout_is_read_as_it_is(tmp_path):
    spikes = published_layout(tmp_path / "a.h5", 11, 3)
    found = open_recordings(tmp_path / "a.h5")
    assert (found.source, len(found)) == ("real", 11)
    for i, (times, units) in enumerate(spikes):
        np.testing.assert_array_equal(found.spikes(i)[0], times)
        np.testing.assert_array_equal(found.spikes(i)[1], units)
    assert found.time_s.dtype == np.float16
    of = found.statistics()
    assert of["spikes"].tolist() == [len(times) for times, _ in spikes]
    assert of["channels"].tolist() == [len(set(units.tolist())) for _, units in spikes]
    np.testing.assert_array_equal(of["duration_s"], [float(times.max()) for times, _ in spikes])


def test_what_is_written_comes_back_and_its_bytes_depend_on_content_alone(tmp_path):
    spikes = [(np.array([0.5, 0.25, 0.25]), np.array([3, 699, 0])), (np.zeros(0), np.zeros(0, int))]
    for name in ("a.h5", "b.h5"):
        write_recordings(
            tmp_path / name,
            spikes,
            [1, 19],
            [0, 11],
            words=["w"] * 20,
            genders=["male"] * 12,
            source="generated",
            provenance={"seed": 1},
        )
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    found = open_recordings(tmp_path / "a.h5")
    assert (found.source, found.label.tolist(), found.speaker.tolist()) == ("generated", [1, 19], [0, 11])
    assert [x.tolist() for x in found.spikes(0)] == [[0.25, 0.25, 0.5], [0, 699, 3]]
    assert len(found.spikes(1)[0]) == 0


def _put(key, i, value):
    def change(file):
        values = file[key][i]
        if isinstance(values, np.ndarray):
            values = values.copy()
            values[0] = value
        else:
            values = value
        file[key][i] = values

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_put("spikes/units", 2, 700), "spikes/units of recording 2 holds 700"),
        (_put("spikes/times", 1, np.nan), "spikes/times of recording 1 holds nan"),
        (_put("spikes/times", 0, 31.0), "spikes/times of recording 0 holds 31.0"),
        (_put("labels", 3, 20), "labels of recording 3 holds 20"),
        (lambda f: f["spikes/units"].__setitem__(1, np.zeros(3, np.uint16)), "recording 1 has .* and 3 spikes/units"),
        (lambda f: f.pop("extra/speaker"), "not a whole HDF5 file of the SHD layout"),
    ],
)
def test_damage_is_named(tmp_path, change, words):
    published_layout(tmp_path / "a.h5", 5, 4, change=change)
    with pytest.raises(DataError, match=rf"a\.h5: .*{words}.*delete it"):
        open_recordings(tmp_path / "a.h5")


def test_a_truncated_or_missing_file_is_named(tmp_path):
    published_layout(tmp_path / "a.h5", 5, 4)
    (tmp_path / "a.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:3000])
    with pytest.raises(DataError, match=r"a\.h5: not a whole HDF5 file"):
        open_recordings(tmp_path / "a.h5")
    with pytest.raises(DataError, match=r"b\.h5: no such file: run"):
        open_recordings(tmp_path / "b.h5")


def counted(times: np.ndarray, units: np.ndarray, bin_ms: int) -> np.ndarray:
    """Reference: exact fractions, one spike at a time."""
    x = np.zeros((-(-1000 // bin_ms), 700), np.float32)
    for time, unit in zip(times.tolist(), units.tolist(), strict=True):
        ms = Fraction(time) * 1000
        if ms < 1000:
            x[ms // bin_ms, unit] += 1
    return x


@pytest.mark.parametrize("bin_ms", BINS_MS)
def test_bins_hold_exactly_the_spikes_of_one_second(data, bin_ms):
    train = data.file("train")
    which = np.array([[3], [17], [60]])
    x = gather(data.binned("train", bin_ms), train, which).x.check(torch.float32)
    assert x.shape == (3, n_bins(bin_ms), 700)
    expected = np.stack([counted(*train.spikes(i), bin_ms) for i in which[:, 0]])
    np.testing.assert_array_equal(x.dense().numpy(), expected)
    rows = x.rows().numpy() * 700 + x.channel.numpy()
    assert (np.diff(rows) > 0).all()  # ascending, no pair twice


@given(st.lists(st.tuples(st.floats(0, 1.5, width=16), st.integers(0, 699)), max_size=60), st.integers(1, 1000))
@settings(max_examples=100)
def test_any_spikes_in_any_bins(spikes, bin_ms):
    times, units = np.array([t for t, _ in spikes], np.float16), np.array([u for _, u in spikes], np.uint16)
    recordings = Recordings(
        Path("x"),
        "real",
        np.array([0, len(times), len(times)]),
        times,
        units,
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
    )
    x = gather(bin_spikes(recordings, bin_ms), recordings, np.array([[1, 0]])).x.check(torch.float32)
    np.testing.assert_array_equal(x.dense()[0, n_bins(bin_ms) :].numpy(), counted(times, units, bin_ms))
    assert x.row_ptr[n_bins(bin_ms)] == 0  # the other recording is silent


def test_a_last_bin_may_be_short_and_none_is_extra():
    assert [n_bins(bin_ms) for bin_ms in BINS_MS] == [1000, 500, 250, 167, 125, 100, 50, 20, 10]
    times = np.array([0.9956, 0.9961, 0.9995, 1.0], np.float16)  # 166 bins of 6 ms end at 996 ms
    recordings = Recordings(
        Path("x"), "real", np.array([0, 4]), times, np.zeros(4, np.uint16), np.zeros(1, np.int64), np.zeros(1, np.int64)
    )
    binned = bin_spikes(recordings, 6)
    assert dict(zip(binned.bin.tolist(), binned.count.tolist(), strict=True)) == {165: 1.0, 166: 2.0}
    for wrong in (0, 1001, 2.5):
        with pytest.raises(ValueError, match="bin_ms"):
            n_bins(wrong)


def test_the_split_is_the_published_one(data):
    assert np.count_nonzero(~validation_mask(8156)) // 8 == 814  # batches an epoch, section B of the paper
    train, valid = data.members("train"), data.members("valid")
    assert sorted([*train, *valid]) == list(range(120))
    assert 0.1 < len(valid) / 120 < 0.3
    assert len(data.members("test")) == 37
    assert data.held_out_speakers == (4, 5)
    assert data.batches_per_epoch(8) == len(train) // 8


def same(a, b) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in vars(a))


@pytest.mark.parametrize("adding", [False, True])
def test_a_batch_is_a_pure_function_of_seed_epoch_step(folder, data, adding):
    arguments = {"batch_size": 8, "bin_ms": 10, "adding": adding, "dropout": 0.5}
    steps = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    batches = [data.batch(seed=s, epoch=e, step=k, **arguments) for s, e, k in steps]
    other = ShdData(folder)
    for (s, e, k), batch in list(zip(steps, batches, strict=True))[::-1]:
        assert same(batch, other.batch(seed=s, epoch=e, step=k, **arguments))
    assert len({tuple(batch.recording.flatten().tolist()) for batch in batches}) == 4
    assert set(np.concatenate([b.recording.flatten() for b in batches])) <= set(data.members("train"))
    assert same(batches[0], batches[0].to("cpu"))


def test_a_pass_sees_every_recording_once_and_goes_on_with_another():
    n, size = 43, 8
    passes = [[draw(n, 5, 2, step, size)[:, 0].tolist() for step in range(k * 5, k * 5 + 5)] for k in range(3)]
    for batches in passes:
        seen = np.concatenate(batches).tolist()
        assert len(set(seen)) == 40
    assert passes[0] != passes[1] != passes[2]
    with pytest.raises(ValueError, match="7 recordings do not fill a batch of 8"):
        draw(7, 0, 0, 0, 8)


def test_adding_is_two_seconds_one_after_the_other_and_the_sum_of_the_digits(data):
    batch = data.batch(seed=1, epoch=0, step=3, batch_size=8, bin_ms=6, adding=True)
    assert batch.x.shape == (8, 334, 700)
    for k in range(2):
        alone = gather(data.binned("train", 6), data.file("train"), batch.recording[:, k : k + 1].numpy())
        assert torch.equal(batch.x.dense()[:, 167 * k : 167 * (k + 1)], alone.x.dense())
        assert torch.equal(batch.speaker[:, k], alone.speaker[:, 0])
    label = data.file("train").label[batch.recording.numpy()]
    assert batch.label.tolist() == [(a % 10) + (b % 10) for a, b in label]


def test_pairs_are_independent_and_uniform_and_fixed_sets_are_fixed():
    pairs = np.concatenate([draw_pairs(10, 0, 0, step, 8) for step in range(2000)])
    table = np.histogram2d(*pairs.T, bins=10)[0]
    chi2 = ((table - 160) ** 2 / 160).sum()  # 99 degrees of freedom
    assert 50 < chi2 < 160
    np.testing.assert_array_equal(fixed_pairs(100, "valid", 10), fixed_pairs(100, "valid", 4000)[:10])
    assert not np.array_equal(fixed_pairs(100, "valid", 10), fixed_pairs(100, "test", 10))


def test_dropout_removes_entries_and_keeps_the_mean(data):
    which = np.arange(100)[:, None]
    whole = gather(data.binned("train", 10), data.file("train"), which)
    dropped = drop(whole, 0.3, np.random.default_rng(1))
    kept = dropped.x.check(torch.float32).dense() != 0
    torch.testing.assert_close(dropped.x.dense(), torch.where(kept, whole.x.dense() / 0.7, 0.0))
    share = len(dropped.channel) / len(whole.channel)
    assert abs(share - 0.7) < 4 * (0.21 / len(whole.channel)) ** 0.5
    unscaled = drop(whole, 0.3, np.random.default_rng(1), rescale=False)
    assert torch.equal(unscaled.x.dense(), torch.where(kept, whole.x.dense(), 0.0))
    assert drop(whole, 0.0, np.random.default_rng(1)) is whole
    with pytest.raises(ValueError, match="dropout = 1"):
        drop(whole, 1.0, np.random.default_rng(1))


def test_a_split_is_read_whole_and_in_order(data):
    for split in ("train", "valid", "test"):
        batches = list(data.split_batches(split, batch_size=8, bin_ms=100))
        assert torch.cat([b.recording[:, 0] for b in batches]).tolist() == data.members(split).tolist()
    test = data.file("test")
    assert torch.cat([b.label for b in batches]).tolist() == test.label.tolist()
    assert torch.cat([b.speaker[:, 0] for b in batches]).tolist() == test.speaker.tolist()
    assert len(batches[-1].label) == 37 % 8
    pairs = list(data.split_batches("valid", batch_size=8, bin_ms=100, adding=True, n_pairs=20))
    assert [len(b.label) for b in pairs] == [8, 8, 4]
    assert set(torch.cat([b.recording.flatten() for b in pairs]).tolist()) <= set(data.members("valid").tolist())


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Two servers on loopback: the first has nothing, the second both files, packed; and what they were asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            asked.append(self.path)

    (tmp_path / "empty").mkdir()
    published = {}
    for number, split in enumerate(("train", "test")):
        plain = tmp_path / "full" / f"shd_{split}.h5"
        published_layout(plain, 30 - 10 * number, number)
        packed = plain.with_name(plain.name + ".gz")
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        published[split] = shd_real.Published(
            plain.name, *(hashlib.md5(p.read_bytes()).hexdigest() for p in (plain, packed))
        )
    servers = [
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path / name)) for name in ("empty", "full")
    ]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    yield published, tuple(f"http://127.0.0.1:{server.server_port}" for server in servers), asked
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def test_real_files_are_downloaded_unpacked_and_named_by_their_hash(tmp_path, server, monkeypatch):
    published, servers, asked = server
    raw, out = tmp_path / "raw", tmp_path / "out"
    found = shd_real.fetch(raw, servers=servers, published=published, wait_s=0)
    assert {split: path.name for split, path in found.items()} == {"train": "shd_train.h5.gz", "test": "shd_test.h5.gz"}
    n_asked = len(asked)
    shd_real.fetch(raw, servers=servers, published=published, wait_s=0)
    assert len(asked) == n_asked  # there already
    monkeypatch.setattr(shd_real, "PUBLISHED", published)
    wanted = Shd(source="real", seed=1, train=None, test=None, valid_pairs=16, test_pairs=16)
    sources = {"source": "real", "files": {split: path.name for split, path in found.items()}}
    manifest = prepare(wanted, sources, raw=raw, out=out)
    assert manifest == prepare(wanted, sources, raw=raw, out=out) == json.loads((out / "manifest.json").read_text())
    assert manifest["source"] == "real"
    assert manifest["files"]["test"] == {
        "test.h5": hashlib.sha256((tmp_path / "full" / "shd_test.h5").read_bytes()).hexdigest()
    }
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "test.h5", "train.h5"]
    assert ShdData(out).source == "real"


def test_a_file_put_there_by_hand_is_used_and_a_wrong_one_refused(tmp_path, server):
    published, servers, asked = server
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("shd_train.h5", "shd_test.h5.gz"):  # one unpacked, one not
        (raw / name).write_bytes((tmp_path / "full" / name).read_bytes())
    found = shd_real.fetch(raw, servers=servers, published=published)
    assert [path.name for path in found.values()] == ["shd_train.h5", "shd_test.h5.gz"]
    assert asked == []
    (raw / "shd_train.h5").write_bytes(b"another release")
    with pytest.raises(DataError, match=r"shd_train\.h5: md5 is .*, not .*: replace it, or delete it"):
        shd_real.fetch(raw, servers=servers, published=published)


def test_no_server_and_a_damaged_archive_are_named(tmp_path, server):
    published, servers, _ = server
    with pytest.raises(DataError, match=r"shd_train\.h5\.gz: no server gave it: .*HTTP 404"):
        shd_real.fetch(tmp_path / "raw", servers=servers[:1], published=published, attempts=1)
    packed = tmp_path / "full" / "shd_train.h5.gz"
    packed.write_bytes(packed.read_bytes()[:500])
    with pytest.raises(DataError, match=r"shd_train\.h5\.gz: damaged .*delete it and run again"):
        shd_real.unpack(packed, tmp_path / "out" / "train.h5", published["train"].md5)
    packed.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match=r"unpacked, its md5 is .*delete it and run again"):
        shd_real.unpack(packed, tmp_path / "out" / "train.h5", published["train"].md5)
    assert list((tmp_path / "out").iterdir()) == []
