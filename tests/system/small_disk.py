"""A daemon on a small file system, and its fixture `disk`, which conftest.py hands on.

The state is a small file system of its own in a mount namespace of its own, so nothing is left on the machine.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
SIZE = 24 * 1024 * 1024  # the daemon keeps 8 MiB of it for stopping turns
OFTEN = """
import functools, sys
from substrat.daemon import main
from substrat.daemon.turns.disk_watch import DiskWatch
DiskWatch.__init__ = functools.partialmethod(DiskWatch.__init__, interval=0.1)
sys.exit(main.main(sys.argv[2:]))
"""


class SmallDisk:
    """A daemon whose state directory is a small file system."""

    def __init__(self, daemon):
        self.daemon = daemon
        daemon.state.mkdir()
        options = f"size={SIZE},nr_inodes=300,mode=0700"
        script = f"mount -t tmpfs -o {options} tmpfs '{daemon.state}' && echo ready && exec sleep 100000"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._holder.stdout.readline() != b"ready\n":
            self.close()
            pytest.skip("no file system can be mounted here")
        self.state = Path(f"/proc/{self._holder.pid}/root{daemon.state}")

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()

    def start(self, config="[disk]\nfree = 0\n", *, often=False, **how):
        """Start a daemon that sees the small file system; `often` where it is to look at the disk all the time."""
        script = self.daemon.directory / "often.py"
        script.write_text(OFTEN)
        words = [sys.executable, script] if often else []
        self.daemon.start(config=config, prefix=(*self.prefix, *words), **how)

    @property
    def prefix(self):
        return ("nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt")

    def fill(self, leave=0):
        """Use up all the room but some bytes."""
        with (self.state / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while self.free() > leave:
                        file.write(b"x" * min(size, max(1, self.free() - leave)))
                except OSError:
                    continue

    def free(self):
        found = os.statvfs(self.state)
        return found.f_bavail * found.f_frsize

    def make_room(self):
        (self.state / "ballast").unlink()

    def make_room_in_caches(self):
        for cache in self.state.glob("agents/*/cache"):
            shutil.rmtree(cache)

    def use_up_files(self, leave):
        (self.state / "files").mkdir()
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (self.state / "files" / str(number)).touch()
        for number in range(leave):
            (self.state / "files" / str(number)).unlink()

    def give_back_files(self):
        shutil.rmtree(self.state / "files")

    def count(self, kind):
        with self.daemon.wire() as wire:
            events, cursor = [], 0
            while page := wire.call("events.read", since=cursor)["events"]:
                events += page
                cursor = page[-1]["cursor"]
        return [event for event in events if event["kind"] == kind]


@pytest.fixture
def disk(daemon):
    small = SmallDisk(daemon)
    yield small
    small.close()
