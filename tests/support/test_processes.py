"""What is killed leaves no orphan."""

import os
import socket
import subprocess
import sys

import psutil
import pytest

from elm_lib.support import processes
from elm_lib.support.errors import DataError


class Ends:
    """A process that ends between two looks."""

    def __init__(self, error: Exception):
        self.error = error

    def is_running(self):
        return True

    def status(self):
        raise self.error


def test_a_parent_that_ends_between_two_looks_takes_its_child_along(monkeypatch):
    def ended(code):
        raise SystemExit(code)

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    gone = psutil.Process(child.pid)
    monkeypatch.setattr(processes, "_children", lambda: [gone])
    monkeypatch.setattr(processes.os, "_exit", ended)
    with pytest.raises(SystemExit):
        processes._watch(Ends(psutil.NoSuchProcess(1)))
    assert child.wait() == -9
    with pytest.raises(SystemExit):  # nor does a child that has ended already stop it
        processes._watch(Ends(psutil.NoSuchProcess(1)))
    assert processes._is_alive(Ends(psutil.AccessDenied(1)))


def test_what_a_process_makes_is_for_its_owner_whatever_the_umask(tmp_path):
    code = (
        "import sys; from elm_lib.support import files, processes; processes.for_owner_alone(); "
        "files.write_text(sys.argv[1] + '/folder/file', '')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, umask=0, env=os.environ)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "folder/file").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_is_held_says_who_holds_it(tmp_path):
    holding = "import sys; from pathlib import Path; from elm_lib.support.processes import locked\n"
    holding += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(DataError, match=rf"is held by process {holder.pid} on {socket.gethostname()}, since \d+-"),
            processes.locked(tmp_path, 0.1),
        ):
            pass
        holder.communicate()
    with processes.locked(tmp_path, 0.1):
        pass
