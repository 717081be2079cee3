"""What a process has within its reach: each way to keep a file, and none."""

import os
import subprocess
import sys

import pytest

from substrat.daemon.kernel import procfs

REACHES = {
    "nothing": ("pass", False),
    "to read": ("kept = open(path)", True),
    "as a path": ("kept = os.open(path, os.O_PATH)", True),
    "mapped, and closed": (
        "opened = open(path, 'r+b'); kept = mmap.mmap(opened.fileno(), 1); opened.close()", True,
    ),
    "mapped, by a process whose first thread has ended": (
        """
opened = os.open(path, os.O_RDWR)
kept = mmap.mmap(opened, 1)
os.closerange(3, 99)
def other():
    while "Z" not in open("/proc/self/stat").read():
        pass
    print(flush=True)
    time.sleep(99)
threading.Thread(target=other).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)""", True,
    ),
    "its directory": ("os.chdir(os.path.dirname(path))", True),
    "run": (
        """
os.unlink(path)
shutil.copy("/bin/sh", path)
os.execv(path, ["sh", "-c", "echo; kill -STOP $$; true"])""", True,
    ),
    "sent to itself, and closed": (
        """
ends = socket.socketpair()
opened = os.open(path, os.O_RDWR)
socket.send_fds(ends[0], [b"x"], [opened])
os.close(opened)""", True,
    ),
    "sent to itself through a connection that it hasn't accepted yet": (
        """
listening, connected = (socket.socket(socket.AF_UNIX) for _ in range(2))
listening.bind("")
listening.listen()
connected.connect(listening.getsockname())
opened = os.open(path, os.O_RDWR)
socket.send_fds(connected, [b"x"], [opened])
connected.close()
os.close(opened)""", True,
    ),
    "sockets without descriptors in them": (
        "ends = [*socket.socketpair(), socket.socket(socket.AF_INET)]; ends[0].send(b'x')", False,
    ),
    "in a thread's own table": (
        """
def own():
    ctypes.CDLL(None).unshare(0x400)
    os.open(path, os.O_RDONLY)
    print(flush=True)
    time.sleep(99)
threading.Thread(target=own).start()""", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), REACHES.values(), ids=REACHES)
def test_each_way_to_keep_a_file_within_reach_is_seen(tmp_path, source, expected):
    path = tmp_path / "d" / "file"
    path.parent.mkdir()
    path.write_text("x")
    before = f"import ctypes, mmap, os, shutil, socket, sys, threading, time\npath = {str(path)!r}\n"
    after = "" if "thread" in source else "\nprint(flush=True)\ntime.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", before + source + after], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        inodes = {(one.st_dev, one.st_ino) for one in (os.stat(path), os.stat(path.parent))}
        try:
            assert procfs.reaches(running.pid, inodes) is expected
        finally:
            running.kill()


def test_a_process_that_has_ended_reaches_nothing_though_it_hides_that_from_an_ordinary_user():
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not procfs.reaches(ended.pid, {(1, 1)})


@pytest.mark.parametrize("looks", [1, 50])
def test_a_process_that_hides_its_descriptors_is_looked_at_again_and_in_the_end_not_believed(monkeypatch, looks):
    hidden = [None] * looks
    look = os.listdir

    def listed(path):
        if str(path).endswith("/fd") and hidden:
            hidden.pop()
            raise PermissionError
        return look(path)

    monkeypatch.setattr(procfs, "_HIDDEN_PAUSE_S", 0)
    monkeypatch.setattr(os, "listdir", listed)
    with subprocess.Popen(["sleep", "99"]) as running:
        assert procfs.reaches(running.pid, {(1, 1)}) is (looks > 1)
        running.kill()
