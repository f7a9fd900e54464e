"""Data that were changed after they were made, that lie in other files, or that cannot be: never taken for true."""

import json
import resource

import h5py
import numpy as np
import pytest

from elm_lib.datasets.lra import prepare as lra
from elm_lib.datasets.lra.schema import SplitWriter, open_split
from elm_lib.datasets.neuronio import prepare as neuronio
from elm_lib.datasets.neuronio.schema import open_simulations
from elm_lib.datasets.neuronio.writer import write_simulations
from elm_lib.datasets.shd import prepare as shd
from elm_lib.datasets.shd.batches import bin_spikes
from elm_lib.datasets.shd.schema import open_recordings, write_recordings
from elm_lib.experiments.config import Lra
from elm_lib.support import manifest, python2_pickle
from elm_lib.support.errors import DataError


def flip(path, offset=-1):
    image = bytearray(path.read_bytes())
    image[offset] ^= 1
    path.write_bytes(image)


def test_a_bit_that_flips_in_generated_data_is_seen_and_the_file_made_again(tmp_path):
    asked = {"source": "generated", "train": 20, "valid": 5, "test": 5}
    others = ("listops", "text", "retrieval", "pathfinder", "pathfinder_x")
    wanted = Lra(seed=1, image=asked, **dict.fromkeys(others))
    first = lra.prepare(wanted, {}, raw=tmp_path, out=tmp_path / "out")
    path = tmp_path / "out/image/test.h5"
    good = path.read_bytes()
    flip(path, open_split(path).offset + 7)  # another grey value: a whole file, of the right form
    open_split(path).verify()
    with pytest.warns(UserWarning, match=r"test\.h5 is not as it was made .*: renamed to test\.h5\.changed"):
        again = lra.prepare(wanted, {}, raw=tmp_path, out=tmp_path / "out")
    assert again == first
    assert path.read_bytes() == good
    assert (tmp_path / "out/image/test.h5.changed").read_bytes() != good


@pytest.mark.parametrize("module", [neuronio, shd])
def test_every_data_set_looks_for_changes_before_it_makes_anything(tmp_path, module, monkeypatch):
    (tmp_path / "test").mkdir()
    path = tmp_path / "test/data.h5"
    path.write_bytes(b"abc")
    manifest.describe(tmp_path, {"test": [path]}, source="generated")
    assert json.loads((tmp_path / "manifest.json").read_text())["sha256"].keys() == {"test"}
    flip(path)

    class Made(Exception):
        pass

    def make(*arguments, **options):
        raise Made

    monkeypatch.setattr(neuronio, "generate_split", make)
    monkeypatch.setattr(shd.generated, "generate", make)
    sources = {"source": "generated", "morphology": "x"}
    with pytest.raises((Made, AttributeError)), pytest.warns(UserWarning, match="renamed to data.h5.changed"):
        module.prepare(_Settings(), sources, raw=tmp_path, out=tmp_path, splits=("test",))
    assert not path.exists()
    assert manifest.entered(tmp_path)["files"] == {}  # until it is made and described


class _Settings:
    def __getattr__(self, name):
        return self if name not in ("seed", "valid_pairs", "test_pairs") else 1

    def __call__(self):
        return {}


# ---- HDF5 that is not what it says -----------------------------------------------------------------------------------


def simulations(path):
    spikes = [(np.array([1, 2]), np.array([0, 5]))]
    write_simulations(
        path, spikes=spikes, soma_voltage=np.full((1, 10), -70.0), output_spikes_ms=[[3.0]], source="generated",
        provenance={},
    )  # fmt: skip


def recordings(path):
    spikes = [(np.array([0.1, 0.2]), np.array([3, 5]))] * 2
    write_recordings(path, spikes, [1, 2], [0, 1], words=["w"] * 20, genders=["male"] * 12, source=None)


def split(path):
    with SplitWriter(path, "image", source="generated", provenance={}) as writer:
        writer.add(np.zeros((1, 1024), np.uint8), [1024], [3])


KINDS = [
    pytest.param(simulations, open_simulations, "soma_voltage", id="neuronio"),
    pytest.param(recordings, open_recordings, "labels", id="shd"),
    pytest.param(split, open_split, "label", id="lra"),
]


@pytest.mark.parametrize(("write", "read", "key"), KINDS)
@pytest.mark.parametrize("how", ["link", "soft link", "external", "virtual"])
def test_data_in_other_files_are_refused(tmp_path, write, read, key, how):
    path, other = tmp_path / "a.h5", tmp_path / "secret"
    write(path)
    write(other)
    read(path)
    with h5py.File(path, "r+") as file:
        shape, dtype = file[key].shape, file[key].dtype
        del file[key]
        if how == "link":
            file[key] = h5py.ExternalLink(str(other), key)
        elif how == "soft link":
            file[key] = h5py.SoftLink("/elsewhere")
        elif how == "external":
            file.create_dataset(key, shape, dtype, external=[(str(other), 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout(shape, dtype)
            layout[...] = h5py.VirtualSource(str(other), key, shape)
            file.create_virtual_dataset(key, layout)
    with pytest.raises(DataError, match=rf"a\.h5: {key} (is a link to|lies in other files)") as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("token", [16, -2, 0, 255])
def test_a_class_token_that_the_task_does_not_have_is_refused_at_opening(tmp_path, token):
    split(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["class_token"] = token
    with pytest.raises(DataError, match=rf"a\.h5: class_token {token} is not that of image"):
        open_split(tmp_path / "a.h5")


def test_times_in_any_unit_and_bins_of_whole_milliseconds(tmp_path):
    recordings(tmp_path / "a.h5")
    found = open_recordings(tmp_path / "a.h5")
    np.testing.assert_allclose(found.spikes(0)[0] * 1e6, [1e5, 2e5], rtol=1e-3)
    for wrong in (10.0, True, "10", 0, 1001):
        with pytest.raises((ValueError, TypeError), match=r"bin_ms = .*whole number of ms"):
            bin_spikes(found, wrong)


def test_a_split_that_finds_no_room_is_one_line_and_is_made_when_there_is_room(tmp_path):
    """No file may be larger than 100 kB meanwhile: neither the spool nor the file itself."""
    before, said = resource.getrlimit(resource.RLIMIT_FSIZE), []

    def write(n):
        with SplitWriter(tmp_path / "a.h5", "image", source="generated", provenance={}) as writer:
            writer.add(np.zeros((n, 1024), np.uint8), np.full(n, 1024), np.zeros(n, int))

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        for n in (200, 97):  # the spool alone; what is written besides it
            with pytest.raises(DataError, match=r"a\.h5: file too large: \d.* are free; make room, then run") as error:
                write(n)
            said.append(str(error.value))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any("\n" in line for line in said)
    assert list(tmp_path.iterdir()) == []
    write(200)
    assert len(open_split(tmp_path / "a.h5")) == 200


# ---- pickles ---------------------------------------------------------------------------------------------------------


def test_a_few_bytes_that_ask_for_gigabytes_are_refused(tmp_path):
    """The memo's number decides how long C Python makes its table: 2^28 entries of 8 bytes, doubled."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    (tmp_path / "a.p").write_bytes(b"\x80\x02Nr" + (1 << 28).to_bytes(4, "little") + b".")
    with pytest.raises(DataError, match=r"a\.p: asks for far more memory than it has content: delete it") as error:
        python2_pickle.load(tmp_path / "a.p")
    assert "\n" not in str(error.value)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
