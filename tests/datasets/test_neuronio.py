"""The NeuronIO schema, its reader and the batches: what goes in comes out, and damage is loud."""

import errno
import os
import pickle
import threading

import h5py
import numpy as np
import pytest
import torch

from elm_lib.datasets.neuronio import batches_cpu
from elm_lib.datasets.neuronio.batches import Windows, read_batch
from elm_lib.datasets.neuronio.schema import SimulationSet, scale_voltage, unscale_voltage
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.support import files
from elm_lib.support.errors import DataError
from elm_lib.support.prefetch import prefetch

D = 1300  # ms


def make(path, n=3, seed=0, source="generated", duration_ms=D):
    """A file of random content; returns what was written as dense arrays."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n, duration_ms, 1278)) < 0.01
    voltage = rng.normal(-67, 8, (n, duration_ms)).astype(np.float32)  # mV, some above the cap
    spikes = []
    for k in range(n):
        t, c = np.nonzero(dense[k])
        order = rng.permutation(len(t))  # the writer sorts
        spikes.append((c[order], t[order].astype(float)))
    output = [np.array([20.6, 700.2 + k, 700.4 + k, 1200.0]) for k in range(n)]  # ms; two share a bin
    write_simulations(
        path,
        spikes=spikes,
        soma_voltage=voltage,
        output_spikes_ms=output,
        source=source,
        provenance={"b": 1, "a": seed},
    )
    return dense, voltage, output


@pytest.fixture
def folder(tmp_path):
    for i in range(2):
        make(tmp_path / "train" / f"sims_{i:05d}.h5", seed=i)
    return tmp_path / "train"


def test_round_trip_signs_targets_and_order_of_files(folder):
    sims = SimulationSet(folder)
    assert len(sims) == 6
    assert sims.source == "generated"
    assert sims.files[1].provenance == {"a": 1, "b": 1}
    dense, voltage, _ = make(folder.parent / "copy.h5", seed=1)
    sign = np.where(np.arange(1278) % 2 == 0, 1.0, -1.0)
    np.testing.assert_array_equal(sims.dense(4), dense[1] * sign)  # simulation 4 is number 1 of the second file
    np.testing.assert_array_equal(sims.dense(4, 600, 720), (dense[1] * sign)[600:720])
    spike, target = sims.targets(4)
    np.testing.assert_array_equal(np.flatnonzero(spike), [20, 700, 1199])  # int(time - 0.5); 700.7, 700.9 ms: one bin
    np.testing.assert_allclose(target, (np.minimum(voltage[1], -55) + 67.7) / 10, rtol=0, atol=1e-6)
    assert sims.dense(4).dtype == spike.dtype == target.dtype == np.float32
    np.testing.assert_array_equal(np.flatnonzero(sims.targets(4, 700, 1199)[0]), [0])
    assert sims.files[1].soma_voltage[1, 7] == voltage[1, 7]
    assert sims.files[1].verify() is sims.files[1]
    np.testing.assert_allclose(unscale_voltage(scale_voltage(np.array([-80.0, -55.0, 30.0]))), [-80, -55, -55])


def test_layout_on_disk_is_the_documented_one(tmp_path):
    """Golden: written out by hand from the schema, so that a change of it is noticed."""
    write_simulations(
        tmp_path / "a.h5",
        spikes=[([3, 0, 3], [1, 1, 1]), ([1277], [2])],  # channel 3 twice in ms 1
        soma_voltage=np.full((2, 3), -70.0),
        output_spikes_ms=[[0.2, 2.6], []],
        source="real",
        provenance={"z": 1, "a": [1]},
    )
    with h5py.File(tmp_path / "a.h5") as f:
        attrs = dict(f.attrs)
        assert f["spikes/indptr"][()].tolist() == [[0, 0, 2, 2], [2, 2, 2, 3]]
        assert f["spikes/channel"][()].tolist() == [0, 3, 1277]
        assert f["output/indptr"][()].tolist() == [0, 2, 2]
        assert f["output/bin"][()].tolist() == [0, 2]
        assert f["soma_voltage"].attrs["units"] == "mV"
        assert f["output/bin"].attrs["units"] == "ms"
        assert [f[k].dtype.str for k in ("spikes/indptr", "spikes/channel", "soma_voltage")] == [
            "<i8",
            "<u2",
            "<f4",
        ]
    assert attrs == {
        "schema": "neuronio",
        "version": 1,
        "source": "real",
        "provenance": '{"a": [1], "z": 1}',
        "n_simulations": 2,
        "duration_ms": 3,
        "dt_ms": 1.0,
    }
    np.testing.assert_array_equal(SimulationSet(tmp_path / "a.h5").dense(0)[1, :4], [1, 0, 0, -1])


def test_silent_simulations_can_be_read(tmp_path):
    write_simulations(
        tmp_path / "a.h5",
        spikes=[([], [])],
        soma_voltage=np.zeros((1, 50)),
        output_spikes_ms=[[]],
        source="real",
        provenance={},
    )
    sims = SimulationSet(tmp_path)
    assert not sims.dense(0).any()
    assert not sims.targets(0)[0].any()
    assert sims.files[0].channel.shape == (0,)
    assert not read_batch(sims, [0, 0], [0, 40], 20).x.dense().any()


def test_same_content_same_bytes(tmp_path):
    make(tmp_path / "a.h5"), make(tmp_path / "b.h5"), make(tmp_path / "c.h5", seed=1)
    a, b, c = ((tmp_path / f"{name}.h5").read_bytes() for name in "abc")
    assert a == b != c


def test_batch_is_the_dense_data_in_sparse_form(folder):
    sims = SimulationSet(folder)
    batch = Windows(sims, window_ms=100, batch_size=5, seed=3).batch(0, 0)
    assert batch.x.shape == (5, 100, 1278)
    assert batch.x.value.dtype == batch.spike.dtype == torch.float32
    for b in range(5):
        n, t0 = int(batch.simulation[b]), int(batch.start_ms[b])
        np.testing.assert_array_equal(batch.x.dense()[b], sims.dense(n, t0, t0 + 100))
        np.testing.assert_array_equal(batch.spike[b], sims.targets(n, t0, t0 + 100)[0])
        np.testing.assert_array_equal(batch.voltage[b], sims.targets(n, t0, t0 + 100)[1])
    assert batch.row_ptr[0] == 0
    assert batch.row_ptr[-1] == len(batch.channel) == len(batch.sign)
    # a window over the end is filled up with silence
    last = read_batch(sims, [0, 1], [D - 30, 500], 100)
    np.testing.assert_array_equal(last.x.dense()[0, :30], sims.dense(0, D - 30, D))
    assert not last.x.dense()[0, 30:].any()
    assert not last.voltage[0, 30:].any()
    np.testing.assert_array_equal(last.x.dense()[1], sims.dense(1, 500, 600))


def test_compiled_reading_gives_the_same_bits(folder):
    sims = SimulationSet(folder)
    table = batches_cpu.table(sims)
    for indices, starts in (([0, 1, 0], [500, D - 30, 0]), ([1], [0]), ([len(sims) - 1] * 2, [D - 1, 3])):
        expected = read_batch(sims, indices, starts, 100)
        ok, *arrays = batches_cpu.read(table, np.array(indices), np.array(starts), 100)
        assert ok
        for name, array in zip(("row_ptr", "channel", "sign", "spike", "voltage"), arrays, strict=True):
            ours, theirs = torch.from_numpy(array), getattr(expected, name)
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), name


def test_compiled_reading_of_more_spikes_than_it_made_room_for(tmp_path):
    everything = np.repeat(np.arange(60), 1278), np.tile(np.arange(1278), 60)
    write_simulations(
        tmp_path / "dense.h5",
        spikes=[everything[::-1]],
        soma_voltage=np.full((1, 60), -60.0),
        output_spikes_ms=[[]],
        source="real",
        provenance={},
    )
    sims = SimulationSet(tmp_path)
    ok, row_ptr, channel, *_ = batches_cpu.read(batches_cpu.table(sims), np.array([0, 0]), np.array([0, 50]), 20)
    assert ok
    expected = read_batch(sims, [0, 0], [0, 50], 20)
    np.testing.assert_array_equal(row_ptr, expected.row_ptr)
    np.testing.assert_array_equal(channel, expected.channel)


def test_batches_depend_on_seed_epoch_and_step_alone(folder):
    windows = Windows(SimulationSet(folder), window_ms=100, batch_size=4, seed=3)
    keys = [(e, s) for e in range(2) for s in range(4)]
    forward = {k: windows.batch(*k) for k in keys}
    again = pickle.loads(pickle.dumps(windows))  # as another worker would hold it
    for k in reversed(keys):
        assert torch.equal(again.batch(*k).channel, forward[k].channel)
    drawn = {tuple(np.concatenate(windows.draw(*k))) for k in keys} | {
        tuple(np.concatenate(Windows(windows.simulations, window_ms=100, batch_size=4, seed=4).draw(*k))) for k in keys
    }
    assert len(drawn) == 16  # all different


def test_windows_cover_all_simulations_and_all_starts_from_500_ms(folder):
    windows = Windows(SimulationSet(folder), window_ms=790, batch_size=64, seed=0)
    indices, starts = (np.concatenate(v) for v in zip(*(windows.draw(0, s) for s in range(20)), strict=True))
    assert set(indices) == set(range(6))
    assert set(starts) == set(range(500, D - 790 + 1))
    with pytest.raises(DataError, match=r"sims_00000.h5: 1300 ms is too short for windows of 801 ms"):
        Windows(windows.simulations, window_ms=801, seed=0)


def test_prefetch_keeps_order_raises_in_place_and_ends_its_thread(folder):
    windows = Windows(SimulationSet(folder), window_ms=50, batch_size=2, seed=0)
    ours = [t for t in threading.enumerate() if t.name.startswith("prefetch")]
    steps = [(0, s) for s in range(9)]
    for key, batch in zip(steps, prefetch(lambda k: windows.batch(*k), steps), strict=True):
        assert torch.equal(batch.channel, windows.batch(*key).channel)

    def read(k):
        if k == 2:
            raise DataError("damaged")
        return k

    seen = []
    with pytest.raises(DataError, match="damaged"):
        seen.extend(prefetch(read, range(100)))
    assert seen == [0, 1]
    endless = prefetch(abs, iter(int, 1))
    assert next(endless) == 0
    endless.close()
    assert [t for t in threading.enumerate() if t.name.startswith("prefetch")] == ours == []


def edit(path, name=None, **attrs):
    with h5py.File(path, "r+") as f:
        for key, value in attrs.items():
            f.attrs[key] = value
        if name:
            del f[name]


def damage(path, how):
    """Bring one file into the state `how`."""
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "not HDF5":
        path.write_bytes(b"<html>404</html>" * 100)
    elif how == "schema":
        edit(path, schema="shd")
    elif how == "version":
        edit(path, version=2)
    elif how == "foreign":
        with h5py.File(path, "w") as f:
            f["x"] = 1
    elif how == "dataset":
        edit(path, "output/bin")
    elif how == "chunked":
        with h5py.File(path, "r+") as f:
            voltage = f["soma_voltage"][()]
            del f["soma_voltage"]
            f.create_dataset("soma_voltage", data=voltage, chunks=(1, 100))
    elif how == "shape":
        edit(path, duration_ms=D + 1)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("truncated", "not a whole HDF5 file"),
        ("empty", "not a whole HDF5 file"),
        ("not HDF5", "not a whole HDF5 file"),
        ("schema", "schema shd version 1, not neuronio version 1"),
        ("version", "schema neuronio version 2"),
        ("foreign", "schema None version None"),
        ("dataset", "output/bin|doesn't exist"),
        ("chunked", "soma_voltage is chunked"),
        ("shape", r"spikes/indptr is int64 \(3, 1301\), not <i8 \(3, 1302\)"),
    ],
)
def test_damaged_file_is_refused_at_open_with_the_remedy(folder, how, says):
    path = folder / "sims_00001.h5"
    damage(path, how)
    with pytest.raises(DataError, match=says) as error:
        SimulationSet(folder)
    assert str(path) in str(error.value)
    assert "delete it and run the stage" in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_to_read_is_refused(tmp_path, folder):
    (tmp_path / "void").mkdir()
    for paths, says in [
        (tmp_path / "nowhere", r"nowhere: no such folder.*dvc repro"),
        (tmp_path / "void", r"void: no \*\.h5 file"),
        ([tmp_path / "a.h5"], r"a\.h5: no such file.*dvc repro"),
        ([], "no NeuronIO file"),
    ]:
        with pytest.raises(DataError, match=says):
            SimulationSet(paths)
    make(folder / "z.h5", source="real")
    with pytest.raises(DataError, match=r"sources \['generated', 'real'\] mixed"):
        _ = SimulationSet(folder).source


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_voltage_that_is_not_finite_is_loud_when_written_and_when_read(folder, value):
    path = folder / "sims_00001.h5"
    with h5py.File(path, "r+") as f:
        f["soma_voltage"][2, 777] = value
    sims = SimulationSet(folder)
    for read in (
        lambda: sims.targets(5),
        lambda: read_batch(sims, [0, 5], [500, 700], 100),
        sims.files[1].verify,
    ):
        with pytest.raises(DataError, match=rf"sims_00001.h5: soma_voltage of simulation 2 at 777 ms is {value}"):
            read()
    with pytest.raises(DataError, match=r"x\.h5: soma_voltage of simulation 0 at 1 ms"):
        write_simulations(
            path.with_name("x.h5"),
            spikes=[([], [])],
            soma_voltage=np.array([[0, value]]),
            output_spikes_ms=[[]],
            source="real",
            provenance={},
        )


@pytest.mark.parametrize("by", ["dense", "batch"])
def test_content_damaged_after_opening_is_loud(folder, by):
    sims = SimulationSet([folder / "sims_00000.h5"])
    windows = Windows(
        sims, window_ms=sims.duration_ms(0) - 500, batch_size=30, seed=0
    )  # a batch holds every simulation
    assert set(windows.draw(0, 0)[0]) == set(range(len(sims)))

    def read(n):
        return sims.dense(n) if by == "dense" else windows.batch(0, 0)

    path = folder / "sims_00000.h5"
    whole = path.read_bytes()
    with h5py.File(path, "r+") as f:
        f["soma_voltage"][0, 600] = np.inf
    with pytest.raises(DataError, match="soma_voltage of simulation 0 at 600 ms is inf"):
        read(0)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as f:
        f["spikes/channel"][:] = 1278
    with pytest.raises(DataError, match="spikes/channel holds 1278"):
        read(0)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as f:
        f["spikes/indptr"][1, 600] = 1 << 40
    with pytest.raises(DataError, match="spikes/indptr of simulation 1 is damaged"):
        read(1)
    path.write_bytes(whole[:4096])
    with pytest.raises(DataError, match="truncated since it was opened"):
        read(2)
    path.unlink()
    with pytest.raises(DataError, match="cannot be opened any more"):
        read(2)


@pytest.mark.parametrize(
    ("spikes", "output", "says"),
    [
        (([1278], [0]), [], "simulation 0: channel 1278 is not a whole number in 0..1277"),
        (([-1], [0]), [], "channel -1"),
        (([0], [100]), [], "spike time in ms 100 is not a whole number in 0..99"),
        (([0], [1.5]), [], "spike time in ms 1.5"),
        (([0], [np.nan]), [], "spike time in ms nan"),
        (([0], [0]), [100.5], "output spike at 100.5 ms, outside 0..100 ms"),
    ],
)
def test_values_out_of_range_are_not_written(tmp_path, spikes, output, says):
    with pytest.raises(DataError, match=says):
        write_simulations(
            tmp_path / "a.h5",
            spikes=[spikes],
            soma_voltage=np.zeros((1, 100)),
            output_spikes_ms=[output],
            source="real",
            provenance={},
        )
    assert list(tmp_path.iterdir()) == []


def test_full_disk_and_kill_leave_the_old_file(tmp_path, monkeypatch):
    make(tmp_path / "a.h5")
    old = (tmp_path / "a.h5").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DataError, match=r"a\.h5: no space left on device: it needs \d+\.\d MB, .* are free"):
        make(tmp_path / "a.h5", seed=1)
    assert (tmp_path / "a.h5").read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.undo()
    (tmp_path / "a.h5.part").write_bytes(b"left by a kill")
    make(tmp_path / "a.h5", seed=1)
    assert (tmp_path / "a.h5").read_bytes() != old
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(DataError, match=r"the test needs 1000000000\.0 GB and \d"):
        files.need_space(tmp_path / "not" / "yet", 1e18, "the test")
