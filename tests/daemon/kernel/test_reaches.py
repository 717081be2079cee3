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
    "its directory": ("os.chdir(os.path.dirname(path))", True),
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
    before = f"import ctypes, mmap, os, sys, threading, time\npath = {str(path)!r}\n"
    after = "" if "thread" in source else "\nprint(flush=True)\ntime.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", before + source + after], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        inodes = {(one.st_dev, one.st_ino) for one in (os.stat(path), os.stat(path.parent))}
        try:
            assert procfs.reaches(running.pid, inodes) is expected
        finally:
            running.kill()
