"""What is kept is whole or absent; what cannot be read is set aside; a manifest says what is there."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from elm_lib.support import files, manifest
from elm_lib.support.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
    import os, signal
    from pathlib import Path
    from elm_lib.support import files

    def killed(*arguments):
        os.kill(os.getpid(), signal.SIGKILL)

    files.os.replace = killed
    files.write_text({path!r}, "new")
"""


def test_a_kill_before_the_rename_leaves_the_former_file(tmp_path):
    path = tmp_path / "kept.json"
    files.write_text(path, "former")
    script = textwrap.dedent(KILLED.format(path=str(path)))
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == -9
    assert path.read_text() == "former"
    assert files.part_of(path).read_text() == "new"
    files.write_text(path, "newer")  # over what the kill left
    assert path.read_text() == "newer"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]


def test_content_and_name_reach_the_disk_in_this_order(tmp_path, monkeypatch):
    calls, path = [], tmp_path / "kept"
    monkeypatch.setattr(files.os, "fsync", lambda fd, of=os.fstat: calls.append(of(fd).st_ino))
    monkeypatch.setattr(files.os, "replace", lambda a, b, replace=os.replace: calls.append("renamed") or replace(a, b))
    files.write_npz(path, {"a": np.arange(3)}, compressed=True)
    assert calls == [path.stat().st_ino, "renamed", tmp_path.stat().st_ino]
    with np.load(path) as kept:
        assert kept["a"].tolist() == [0, 1, 2]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    line = r"kept: no space left on device: it needs 2\.0 MB, \d+\.\d [MG]B are free; make room, then run again"
    with pytest.raises(DataError, match=line) as error:
        files.write_text(tmp_path / "kept", "n" * 2_000_000)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"^a: disk quota exceeded: \d"), files.room_for("a"):
        raise RuntimeError("Can't decrement id ref count (file write failed: errno = 122, error message = 'Disk q'")
    with pytest.raises(PermissionError), files.room_for("a"):  # of another kind: as it is
        raise PermissionError(13, "Permission denied")


def test_what_cannot_be_read_is_set_aside_with_a_warning(tmp_path):
    def read(path):
        return files.read_npz(path)["a"].tolist()

    path = tmp_path / "kept.npz"
    assert files.read_or_set_aside(path, read) is None  # missing: no word
    files.write_npz(path, {"a": np.arange(3)})
    assert files.read_or_set_aside(path, read) == [0, 1, 2]
    for damaged in (path.read_bytes()[:80], b"", b"not an archive"):
        path.write_bytes(damaged)
        with pytest.warns(
            UserWarning, match=r"kept\.npz cannot be read \(.+\): renamed to kept\.npz\.unreadable"
        ) as told:
            assert files.read_or_set_aside(path, read) is None
        assert len(told) == 1
        assert "\n" not in str(told[0].message)
        assert not path.exists()
        assert (tmp_path / "kept.npz.unreadable").read_bytes() == damaged


def test_arrays_that_were_cut_off_are_one_line(tmp_path):
    path = tmp_path / "kept.npz"
    files.write_npz(path, {"a": np.arange(300)}, compressed=True)
    whole = path.read_bytes()
    for content in (b"", whole[:80], whole[:-30], whole[:60] + b"\0\0\0" + whole[63:], b"nothing of the kind"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"^{path}: not a whole file of arrays \(.+\): take it") as error:
            files.read_npz(path)
        assert "\n" not in str(error.value)


def test_a_manifest_says_what_is_there_split_by_split(tmp_path):
    paths = {split: tmp_path / f"{split}.h5" for split in ("train", "valid", "test")}
    for split, path in paths.items():
        path.write_text(split)

    def describe(*splits, source="generated"):
        return manifest.describe(tmp_path, {split: [paths[split]] for split in splits}, source=source)

    first = describe("valid", "test")
    assert set(first["files"]) == {"valid", "test"}
    assert describe("train")["sha256"].items() > first["sha256"].items()
    whole = describe("train", "valid", "test")
    assert manifest.checksums(tmp_path, ("test", "train"), "x") == {k: whole["sha256"][k] for k in ("test", "train")}
    paths["valid"].unlink()
    assert set(describe("test")["files"]) == {"train", "test"}  # what is gone is not described
    assert set(describe("test", source="real")["files"]) == {"test"}  # nor what is of other data
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json: not JSON"):
        manifest.checksums(tmp_path, ("test",), "x")
    with pytest.warns(UserWarning, match=r"manifest\.json cannot be read"):
        describe("test")


def test_published_files_are_entered_by_name(tmp_path):
    (tmp_path / "a").write_text("content")
    assert manifest.entered(tmp_path) == {}
    manifest.enter(tmp_path, "one", manifest.seen(tmp_path / "a"))
    manifest.enter(tmp_path, "two", {})
    assert manifest.entered(tmp_path)["one"] == {"bytes": 7, "sha256": files.file_digest(tmp_path / "a")}
    assert set(manifest.entered(tmp_path)) == {"one", "two"}


# who writes in place, and why nothing is lost by it
IN_PLACE = {
    "files.py": "the one way",
    "download.py": "the part of a file, and its ETag; renamed when whole",
    "processes.py": "a lock, and a terminal",
    "notebook.py": "what a kernel writes to stderr",
    "published.py": "parts of files; renamed when whole",
    "schema.py": "a spool, read within the same call",
    "repro.py": "a lock",
}


def test_every_writer_goes_the_one_way():
    """fsync, then rename: `write_atomically`, `put_in_place`."""
    of_pandas = r"\.(write_text|write_bytes|to_csv|to_json)\((?!index|float|$)"
    of_others = r"savefig\((?!image)|open\([^)]*\"[wax]b?\"|np\.save\((?!image)"
    write = re.compile(f"{of_pandas}|{of_others}")
    found = {}
    for path in (ROOT / "elm_lib").rglob("*.py"):
        for line in path.read_text().splitlines():
            if write.search(line) and path.name not in IN_PLACE:
                found[path.name] = line.strip()
    assert not found
