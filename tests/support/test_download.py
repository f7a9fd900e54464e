"""The HTTP download against a loopback server that misbehaves."""

import errno
import hashlib
import os
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from elm_lib.support import download as module
from elm_lib.support.download import download
from elm_lib.support.errors import DataError

DATA = bytes(range(256)) * 4000  # 1 MB
SHA = "sha256:" + hashlib.sha256(DATA).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves server.data; server.plan holds, request by request, how to misbehave."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        server, data = self.server, self.server.data
        how = server.plan.pop(0) if server.plan else "well"
        server.requests.append((self.headers.get("Range"), how))
        start = int(self.headers["Range"][6:-1]) if "Range" in self.headers else 0
        if how in ("no range", "no range, drops") or self.headers.get("If-Range", server.etag) != server.etag:
            start = 0
        if how.startswith("to "):
            self.send_response(302)
            self.send_header("Location", how.removeprefix("to "))
            self.end_headers()
            return
        if how.isdigit():
            self.send_response(int(how))
            self.end_headers()
            return
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            at = start - 1 if how == "another byte" else start
            self.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
        if how != "no length":
            length = how.removeprefix("length ") if how.startswith("length ") else str(len(data) - start)
            self.send_header("Content-Length", length)
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        if how in ("drips", "stalls"):  # a little, and the connection ends; or a little now and then
            for k in range(3000 if how == "drips" else 10**6):
                self.wfile.write(data[start + k : start + k + 1])
                self.wfile.flush()
                if how == "stalls":
                    server.hurry.wait(0.05)
                    if server.hurry.is_set():
                        return
            return
        half = (start + len(data)) // 2
        with suppress(BrokenPipeError):  # who asks has enough
            self.wfile.write(data[start:half] if "drops" in how else data[start:])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(module, "CHUNK", 10_000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.hurry = threading.Event()
    server.data, server.plan, server.requests, server.etag = DATA, [], [], '"v1"'
    server.url = f"http://127.0.0.1:{server.server_port}/data.bin"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.hurry.set()
    server.shutdown()
    server.server_close()
    thread.join()


def get(server, folder, **options):
    options = {"checksum": SHA, "wait_s": 0, **options}
    return download(server.url, folder / "sub" / "data.bin", **options)


def test_a_broken_connection_is_resumed_within_a_call_and_across_calls(tmp_path, server):
    server.plan = ["drops", "drops", "500", "500"]  # a connection that brought something begins the count anew
    with pytest.raises(DataError, match=r"data\.bin: download failed 2 times at byte 7\d{5} .*run again to go on"):
        get(server, tmp_path, attempts=2)
    assert sorted(os.listdir(tmp_path / "sub")) == ["data.bin.part", "data.bin.part.etag"]
    server.plan = ["drops", "500"]
    path = get(server, tmp_path)
    assert path.read_bytes() == DATA
    assert os.listdir(tmp_path / "sub") == ["data.bin"]
    starts = [int(r[6:-1]) if r else 0 for r, _ in server.requests]
    assert starts[0] == 0
    assert starts[1] >= 500_000
    assert starts[2] >= 750_000
    assert starts == sorted(starts)
    get(server, tmp_path)  # there already: no request
    assert len(server.requests) == len(starts)


@pytest.mark.parametrize(
    "plan", [["drops", "no range"], ["drops", "another byte"], ["no length"], ["drops", "no range, drops"]]
)
def test_a_server_that_cannot_resume_is_asked_for_all_again(tmp_path, server, plan):
    server.plan = plan
    assert get(server, tmp_path, checksum=None).read_bytes() == DATA


def test_a_file_that_changed_meanwhile_is_not_mixed(tmp_path, server):
    """No checksum to notice it by: the ETag does."""
    server.plan = ["drops"]
    with pytest.raises(DataError):
        get(server, tmp_path, checksum=None, attempts=1)
    server.data, server.etag = DATA[::-1] + b"x", '"v2"'
    assert get(server, tmp_path, checksum=None).read_bytes() == server.data


@pytest.mark.parametrize("left", [DATA, DATA + b"more than there is"])
def test_what_a_kill_before_the_renaming_left_is_used_or_thrown_away(tmp_path, server, left):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.bin.part").write_bytes(left)
    assert get(server, tmp_path).read_bytes() == DATA
    assert len(server.requests) == (1 if left == DATA else 2)


def test_what_has_another_checksum_is_set_aside_with_the_reason(tmp_path, server):
    entry = "'data.bin' in manifest.json"
    line = r"data\.bin: md5 is [0-9a-f]{32}, not 0{32} of 'data\.bin' in manifest\.json: look into data\.bin\.rejected"
    with pytest.raises(DataError, match=line) as error:
        get(server, tmp_path, checksum="md5:" + 32 * "0", checksum_of=entry)
    assert "\n" not in str(error.value)
    assert sorted(os.listdir(tmp_path / "sub")) == ["data.bin.rejected", "data.bin.rejected.txt"]
    assert (tmp_path / "sub/data.bin.rejected").read_bytes() == DATA
    assert (tmp_path / "sub/data.bin.rejected.txt").read_text() == f"{error.value}\n"
    (tmp_path / "sub" / "data.bin").write_bytes(b"put by hand")
    with pytest.raises(DataError, match=r"data\.bin: sha256 is .*: delete it to fetch it again from http"):
        get(server, tmp_path)
    assert (tmp_path / "sub" / "data.bin").read_bytes() == b"put by hand"


def test_a_connection_that_breaks_at_once_advances(tmp_path, server, monkeypatch):
    """3 kB each time, of pieces of 10 kB: 334 times until the whole megabyte is there."""
    server.data = DATA[:30_000]
    server.plan = ["drips"] * 9
    assert get(server, tmp_path, checksum=None, attempts=2).read_bytes() == server.data
    assert [r for r, _ in server.requests][:4] == [None, "bytes=3000-", "bytes=6000-", "bytes=9000-"]


def test_a_connection_that_brings_next_to_nothing_is_given_up(tmp_path, server, monkeypatch):
    server.plan = ["stalls"]
    monkeypatch.setattr(module, "STALL_S", 0.2)
    assert get(server, tmp_path).read_bytes() == DATA
    assert server.requests[1][0] is not None  # what came was kept
    server.plan = ["stalls", "stalls"]
    monkeypatch.setattr(module, "LIMIT_S", 0.3)
    monkeypatch.setattr(module, "STALL_S", 60)
    with pytest.raises(DataError, match=r"other: download took 8\.33e-05 h, to byte \d+: run again to go on"):
        download(server.url, tmp_path / "other", wait_s=0)


def refuse(part):
    raise DataError(f"{part}: a page")


@pytest.mark.parametrize(
    ("plan", "options", "line"),
    [
        (["length 12x"], {}, r"data\.bin: .* says Content-Length: '12x', which is no size"),
        (["length -5"], {}, r"data\.bin: .* says Content-Length: '-5', which is no size"),
        (["well"], {"most_bytes": 9e5}, r"data\.bin: .* sends 1\.0 MB or more, and 0\.9 MB is the most that is taken"),
        (["no length"], {"most_bytes": 9e5}, r"data\.bin: .* sends 0\.9 MB or more, and 0\.9 MB is the most"),
        ([], {"checksum": "crc:12"}, r"data\.bin: its checksum is given as 'crc:12': write sha256:<hex>"),
        ([], {"checksum": "5f"}, r"data\.bin: its checksum is given as '5f'"),
        (
            ["well"],
            {"check": refuse},
            r"data\.bin: a page; look into data\.bin\.rejected",
        ),
    ],
)
def test_what_cannot_be_the_file_is_refused_in_one_line(tmp_path, server, plan, options, line):
    server.plan = plan
    with pytest.raises(DataError, match=line) as error:
        get(server, tmp_path, **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "sub/data.bin").exists()


def test_an_address_that_ends_in_plain_http_is_refused(tmp_path, server, monkeypatch):
    """The redirect goes to this server by another name, which is none of the loopback's."""
    monkeypatch.setattr(module, "LOOPBACK", ("127.0.0.1",))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    server.plan = [f"to http://localhost:{server.server_port}/data.bin"]
    with pytest.raises(DataError, match=r"data\.bin: http://127\S+ leads to http://localhost\S+, which anybody"):
        get(server, tmp_path)
    assert not list(tmp_path.rglob("data.bin*"))


def test_a_full_disk_is_said_before_and_during(tmp_path, server, monkeypatch):
    monkeypatch.setattr(module, "need_space", lambda folder, n, what: (_ for _ in ()).throw(DataError(f"{what}: {n}")))
    with pytest.raises(DataError, match=rf"the rest of data\.bin: {len(DATA)}"):
        get(server, tmp_path)
    monkeypatch.setattr(module, "need_space", lambda *args: None)

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *args):
            self.file.close()

        def write(self, piece):
            if self.file.tell() >= 100_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(piece)

    monkeypatch.setattr(module, "open", lambda *args: Full(open(*args)), raising=False)  # noqa: SIM115
    with pytest.raises(DataError, match=r"data\.bin: no space left on device: \d.* free; make room, then run again"):
        get(server, tmp_path)
    size = (tmp_path / "sub" / "data.bin.part").stat().st_size
    assert 100_000 <= size < len(DATA)
    monkeypatch.undo()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    get(server, tmp_path)
    assert server.requests[-1][0] == f"bytes={size}-"


def test_refusals_are_final_and_outages_are_retried(tmp_path, server):
    server.plan = ["404"]
    with pytest.raises(DataError, match=r"answers HTTP 404: check the address or put the file there"):
        get(server, tmp_path)
    assert len(server.requests) == 1
    server.plan = ["503", "429"]
    assert get(server, tmp_path).read_bytes() == DATA
    server.server_close()
    with pytest.raises(DataError, match=r"failed 2 times at byte 0 \(ConnectionError\)"):
        download("http://127.0.0.1:1/x", tmp_path / "x", attempts=2, wait_s=0)
