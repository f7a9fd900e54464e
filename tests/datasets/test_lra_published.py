"""The published archives, in small and of the same formats, fetched from a loopback server and converted."""

import gzip
import hashlib
import json
import re
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import lra_archives
import numpy as np
import pytest

from elm_lib.datasets.lra import archives as lra_download
from elm_lib.datasets.lra import prepare as lra_prepare
from elm_lib.datasets.lra.published import listops_symbols
from elm_lib.datasets.lra.schema import open_split
from elm_lib.datasets.lra.text import PRINTABLE, decode
from elm_lib.experiments.config import Lra
from elm_lib.simulate.symbols import listops
from elm_lib.support import tar
from elm_lib.support.errors import DataError

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "pathfinder_x")


def real(*tasks, **changes):
    whole = {"source": "real", "train": None, "valid": None, "test": None}
    longest = {"text": {"max_length": 40}, "retrieval": {"max_length": 40}}
    return Lra(seed=1, **{t: whole | longest.get(t, {}) | changes if t in tasks else None for t in TASKS})


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    return lra_archives.write_archives(tmp_path_factory.mktemp("archives"))


@pytest.fixture
def served(archives, monkeypatch):
    """The module's archives point to a loopback server; what has a published md5 gets that of the small one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(archives)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    _point(monkeypatch, archives, f"http://127.0.0.1:{server.server_port}/")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _point(monkeypatch, archives, base):
    small = {}
    for archive in (lra_download.RELEASE, lra_download.IMDB, lra_download.CIFAR):
        path = archives / archive.name
        md5 = hashlib.md5(path.read_bytes()).hexdigest()
        small[archive.name] = archive._replace(
            url=base + archive.name,
            checksum=archive.checksum and f"md5:{md5}",
            n_bytes=(archives / archive.name).stat().st_size,
        )
    monkeypatch.setattr(lra_download, "RELEASE", small["lra_release.gz"])
    monkeypatch.setattr(lra_prepare, "RELEASE", small["lra_release.gz"])
    for task, archive in list(lra_download.ARCHIVES.items()):
        monkeypatch.setitem(lra_download.ARCHIVES, task, small[archive.name])


def test_all_six_tasks_from_download_to_files(tmp_path, served):
    raw, out = tmp_path / "raw", tmp_path / "out"
    wanted = real(*TASKS)
    found = lra_download.fetch(raw, wanted)
    assert set(found) == {"lra_release.gz", "aclImdb_v1.tar.gz", "cifar-10-python.tar.gz"}
    assert json.loads((raw / "manifest.json").read_text())["lra_release.gz"]["sha256"] == found["lra_release.gz"]
    manifests = lra_prepare.prepare(wanted, found, raw=raw, out=out)
    assert {m["source"] for m in manifests.values()} == {"real"}
    assert {t: tuple(m["samples"].values()) for t, m in manifests.items()} == {
        "listops": (3, 1, 1),
        "text": (18, 2, 20),
        "retrieval": (2, 1, 1),
        "image": (45, 5, 10),
        "pathfinder": (16, 2, 2),
        "pathfinder_x": (16, 2, 2),
    }
    assert {t: m["n_tokens"] for t, m in manifests.items()} == {
        "listops": 25,
        "text": 169,
        "retrieval": 105,
        "image": 16,
        "pathfinder": 16,
        "pathfinder_x": 8,
    }
    assert {t: m["n_classes"] for t, m in manifests.items()} == dict.fromkeys(TASKS, 2) | {"listops": 10, "image": 10}

    lists = open_split(out / "listops/train.h5")
    assert [s.tolist() for (s,) in map(lists.sequences, range(3))] == [
        [15, 8, 14, 6, 7, 18, 18],
        [17, 11, 12, 18],
        [16, 11, 12, 18],
    ]
    assert lists.label.tolist() == [4, 5, 7]

    pairs = open_split(out / "retrieval/train.h5")
    assert pairs.label.tolist() == [1, 0]
    assert [decode(s, PRINTABLE) for s in pairs.sequences(0)] == ['We "show"  that.', "See [1]~!"]
    assert [decode(s, PRINTABLE) for s in pairs.sequences(1)] == ["caf??", "x" * 40]

    texts = open_split(out / "text/train.h5")
    whole = {text[:40]: "/pos/" in name for name, text in lra_archives.imdb_content().items() if "unsup" not in name}
    for i in range(len(texts)):
        text = decode(texts.sequences(i)[0], texts.provenance["byte_values"])
        assert text.startswith("train ")
        assert whole[text.encode()] == bool(texts.label[i])

    # grey by BT.601, a sixteenth of the range a level; each picture in one split
    seen = []
    for split in ("train", "valid", "test"):
        image = open_split(out / f"image/{split}.h5")
        for i in range(len(image)):
            (picture,) = image.sequences(i)
            assert picture.shape == (1024,)
            assert len(set(picture.tolist())) == 1
            seen.append((split == "test", int(image.label[i]), int(picture[0])))
    expected = [
        (k == 5, i, int(0.299 * 10 * k + 0.587 * i + 0.114 * 200 + 0.5) // 16) for k in range(6) for i in range(10)
    ]
    assert sorted(seen) == sorted(expected)

    for task, size, levels in (("pathfinder", 32, 16), ("pathfinder_x", 128, 8)):
        seen = []
        for split in ("train", "valid", "test"):
            data = open_split(out / f"{task}/{split}.h5")
            assert (data.lengths == size * size).all()
            seen += [(int(data.sequences(i)[0][0]), int(data.label[i])) for i in range(len(data))]
        assert sorted(seen) == sorted(((8 * i + 1) * levels // 256, i % 2) for i in range(20))


def test_what_is_there_is_used_and_not_made_again(tmp_path, archives, monkeypatch):
    """No server: archives put there by hand, one of them unpacked."""
    _point(monkeypatch, archives, "http://127.0.0.1:1/")
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    (raw / "aclImdb_v1.tar.gz").write_bytes((archives / "aclImdb_v1.tar.gz").read_bytes())
    with tarfile.open(archives / "lra_release.gz") as archive:
        archive.extractall(raw, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    wanted = real("text", "listops", "pathfinder", train=1)
    found = lra_download.fetch(raw, wanted)
    first = lra_prepare.prepare(wanted, found, raw=raw, out=out)
    assert [m["samples"]["train"] for m in first.values()] == [1, 1, 1]
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.h5")}
    assert lra_prepare.prepare(wanted, found, raw=raw, out=out) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.h5")} == times
    assert not list(out.rglob("*part")) + list(out.rglob("*.tokens"))
    lra_prepare.prepare(real("listops", "pathfinder", train=2), found, raw=raw, out=out)  # other settings: made again
    assert len(open_split(out / "listops/train.h5")) == 2
    (raw / "aclImdb_v1.tar.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz: 14 bytes, not \d+ as in manifest\.json"):
        lra_download.fetch(raw, wanted)


@pytest.mark.parametrize(
    ("member", "content", "words"),
    [
        ("listops-1000/basic_train.tsv", b"Source\tTarget\n( [AVG 3 ) ]\t3\n", r"basic_train\.tsv, line 2: holds"),
        ("listops-1000/basic_train.tsv", b"Source\tTarget\n( [MAX 3 ) ]\tx\n", r"line 2: target b'x' is no digit"),
        ("listops-1000/basic_train.tsv", b"a\tb\n", r"first line is not Source, Target"),
        ("tsv_data/new_aan_pairs.test.tsv", b"1.0\ta\tb\ttext\n", r"pairs\.test\.tsv, line 1: 4 columns"),
        (
            "pathfinder32/curv_contour_length_14/imgs/0/sample_3.png",
            b"\x89PNG broken",
            r"sample_3\.png: not a whole picture",
        ),
        (
            "pathfinder32/curv_contour_length_14/imgs/0/sample_3.png",
            None,
            r"imgs/0/sample_3\.png .* is not in the archive",
        ),
        ("pathfinder32/curv_contour_length_14/metadata/0.npy", b"imgs/0 sample_0.png 0 7\n", r"0\.npy: line 'imgs/0"),
    ],
)
def test_another_content_than_published_is_refused_by_name(tmp_path, member, content, words):
    members = lra_archives.release_content()
    name = f"lra_release/lra_release/{member}"
    if content is None:
        del members[name]
    else:
        members[name] = content
    lra_archives.write_release(tmp_path / "lra_release.gz", members)
    wanted = real("listops", "retrieval", "pathfinder")
    with pytest.raises(DataError, match=words) as error:
        lra_prepare.prepare(wanted, {"lra_release.gz": "0"}, raw=tmp_path, out=tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "out").rglob("*part"))


def test_an_empty_picture_is_left_out_and_a_cut_archive_refused(tmp_path):
    members = lra_archives.release_content()
    members["lra_release/lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_3.png"] = b""
    path = lra_archives.write_release(tmp_path / "lra_release.gz", members)
    lra_prepare.prepare(real("pathfinder"), {}, raw=tmp_path, out=tmp_path / "out")
    train = open_split(tmp_path / "out/pathfinder/train.h5")
    assert train.provenance["left_out_empty"] == ["imgs/0/sample_3.png"]
    assert sum(len(open_split(p)) for p in (tmp_path / "out").rglob("*.h5")) == 19
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"lra_release\.gz: not a whole archive: .* at byte \d+ of \d+: delete it"):
        lra_prepare.prepare(real("listops"), {}, raw=tmp_path, out=tmp_path / "cut")


TWICE = "lra_release/pathfinder128/curv_contour_length_14/"  # as in the published archive: at the top level too


def pictures(out):
    """(grey level, label) of each picture of pathfinder_x."""
    splits = [open_split(path) for path in sorted(out.rglob("*.h5"))]
    return sorted((int(s.sequences(i)[0][0]), int(s.label[i])) for s in splits for i in range(len(s)))


def test_what_the_archive_holds_twice_is_read_once_or_refused(tmp_path):
    members = lra_archives.release_content()
    for name, content in list(members.items()):
        if "pathfinder128/curv_contour" in name and "sample_1" in name:
            members[TWICE + name.split("length_14/")[1]] = content
    lra_archives.write_release(tmp_path / "lra_release.gz", dict(sorted(members.items(), reverse=True)))
    lra_prepare.prepare(real("pathfinder_x"), {}, raw=tmp_path, out=tmp_path / "out")
    assert pictures(tmp_path / "out") == sorted(((8 * i + 1) * 8 // 256, i % 2) for i in range(20))
    for name, other in (("imgs/0/sample_1.png", "imgs/0/sample_2.png"), ("metadata/0.npy", "metadata/1.npy")):
        nested = f"lra_release/{TWICE}"
        members[TWICE + name] = members[nested + other]
        lra_archives.write_release(tmp_path / "lra_release.gz", members)
        with pytest.raises(DataError, match=rf"lra_release\.gz: pathfinder128/\S+{name} is in it twice, .* another"):
            lra_prepare.prepare(real("pathfinder_x"), {}, raw=tmp_path, out=tmp_path / "other")
        del members[TWICE + name]


@pytest.mark.parametrize("packed", [True, False])
def test_an_archive_cut_anywhere_or_with_a_flipped_bit_is_one_line(tmp_path, packed):
    path = lra_archives.write_release(tmp_path / "lra_release.gz", lra_archives.release_content(4))
    whole = path.read_bytes() if packed else gzip.decompress(path.read_bytes())
    path.unlink()
    path = tmp_path / ("lra_release.gz" if packed else "lra_release")
    rng, seen = np.random.default_rng(0), 0
    end = len(whole) if packed else len(whole.rstrip(b"\0"))  # what pads a tar archive can go
    cuts = [whole[:n] for n in [0, 1, 2, 10, 511, 512, end - 1, *rng.integers(end, size=12)]]
    flips = []
    for at in rng.integers(32, len(whole), size=40):  # after gzip's header: time, system, former name
        image = bytearray(whole)
        image[at] ^= 1 << int(rng.integers(8))
        flips.append(bytes(image))
    for image in cuts + (flips if packed else []):  # a tar archive alone has no checksum of its content
        path.write_bytes(image)
        try:
            for _, content in tar.members(path, "get it again"):
                content.digest()
        except DataError as error:
            seen += 1
            line = rf"{path}: not a whole archive: .+, at byte \d+ of {len(image)}: get it again"
            assert re.fullmatch(line, str(error))
    assert seen == len(cuts) + (len(flips) if packed else 0)


@pytest.mark.parametrize("name", ["lra_release", "lra_release.tar", "lra_release.tar.gz"])
def test_an_archive_as_users_have_it_is_read_as_it_is(tmp_path, archives, name, monkeypatch):
    _point(monkeypatch, archives, "http://127.0.0.1:1/")
    packed = (archives / "lra_release.gz").read_bytes()
    (tmp_path / name).write_bytes(packed if name.endswith(".gz") else gzip.decompress(packed))
    wanted = real("listops")
    found = lra_download.fetch(tmp_path, wanted)
    assert lra_prepare.prepare(wanted, found, raw=tmp_path, out=tmp_path / "out")["listops"]["samples"]["train"] == 3


def test_a_failed_download_is_not_taken_for_the_archive(tmp_path, archives, served, monkeypatch):
    page = b"<html><body>Quota exceeded</body></html>"
    small = {archive.name: archive for archive in lra_download.ARCHIVES.values()}["lra_release.gz"]
    good = (archives / "lra_release.gz").read_bytes()
    try:
        another = lra_archives.write_release(tmp_path / "a.gz", {"x/y.txt": np.random.default_rng(0).bytes(len(good))})
        for content, line in (
            (page, r"40 bytes, where .* error page"),
            (good[:-9], "not a whole archive"),
            (another.read_bytes(), r"another archive, its first file is x/y\.txt, and none lies in lra_release/"),
        ):
            (archives / "lra_release.gz").write_bytes(content)
            with pytest.raises(DataError, match=rf"lra_release\.gz: {line}.*look into lra_release\.gz\.rejected"):
                lra_download.fetch(tmp_path, real("listops"))
            assert (tmp_path / "lra_release.gz.rejected").read_bytes() == content
            assert not (tmp_path / "manifest.json").exists()
        other = lra_archives.write_release(archives / "lra_release.gz", lra_archives.release_content(19)).read_bytes()
        assert lra_download.fetch(tmp_path, real("listops"))  # entered
        (tmp_path / "lra_release.gz").unlink()
        (archives / "lra_release.gz").write_bytes(good)
        sums = [hashlib.sha256(content).hexdigest() for content in (good, other)]
        line = (
            rf"lra_release\.gz: sha256 is {sums[0]}, not {sums[1]} of 'lra_release\.gz' in \S+manifest\.json: look into"
        )
        with pytest.raises(DataError, match=line):
            lra_download.fetch(tmp_path, real("listops"))
        assert (tmp_path / "lra_release.gz.rejected").read_bytes() == good
        (tmp_path / "lra_release.gz").write_bytes(page)  # put there by hand: it stays
        (tmp_path / "manifest.json").unlink()
        with pytest.raises(DataError, match=r"error page"):
            lra_download.fetch(tmp_path, real("listops"))
        assert (tmp_path / "lra_release.gz").read_bytes() == page
        assert small.n_bytes == len(good)
    finally:
        (archives / "lra_release.gz").write_bytes(good)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda batch: batch["labels"].pop(), "10 pictures and 9 labels"),
        (lambda batch: batch["labels"].__setitem__(3, 0.5), "labels: 0.5 is not a whole number from 0 to 9"),
        (lambda batch: batch["labels"].__setitem__(3, 10), "labels: 10"),
        (lambda batch: batch.update(data=batch["data"] - 2.0), "pixels: -1.0 is not a whole number from 0 to 255"),
        (lambda batch: batch.update(data=batch["data"] * 1e9), "pixels: "),
        (lambda batch: batch.update(data=batch["data"] / 0), "pixels: "),
    ],
)
def test_pictures_and_labels_that_cannot_be_are_refused(tmp_path, change, words):
    members = lra_archives.cifar_content()
    data = np.ones((10, 3072), np.uint8)
    batch = {"labels": list(range(10)), "data": data}
    with np.errstate(all="ignore"):
        change(batch)
    members["cifar-10-batches-py/data_batch_2"] = lra_archives.python2_dumps(batch)
    lra_archives.write_release(tmp_path / "cifar-10-python.tar.gz", members)
    with pytest.raises(DataError, match=words) as error:
        lra_prepare.prepare(real("image"), {}, raw=tmp_path, out=tmp_path / "out")
    assert "cifar-10-python.tar.gz: data_batch_2 does not hold" in str(error.value)


def test_listops_of_the_published_form_is_what_our_generator_writes():
    """Our symbols, written as the published files write them and read back, are the same symbols."""
    symbols, row_ptr, _ = listops.generate(3, seed=1)
    for a, b in zip(row_ptr, row_ptr[1:]):
        source = "( " + " ) ".join(listops.text(symbols[a:b]).split()) + " )"
        assert np.array_equal(listops_symbols(source.encode(), "x") - 4, symbols[a:b])
