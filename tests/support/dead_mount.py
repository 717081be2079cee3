"""A file system with an empty directory, whose server can stand still: what a network's share is when its server is gone.

    with mounted(directory) as mount:     # as root; FUSE's own protocol, linux/fuse.h
        mount.stand_still()               # from now on whoever touches it waits, and can't be killed
        mount.pids()                      # who has touched it so far

The server is a process of its own. When it ends, whoever waits gets an error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN, _OUT = struct.Struct("=IIQQIIII"), struct.Struct("=IiQ")
_LOOKUP, _FORGET, _GETATTR, _STATFS, _RELEASE, _INIT, _OPENDIR, _READDIR = 1, 2, 3, 17, 18, 26, 27, 28
_RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 29, 36, 42
_UNANSWERED = frozenset({_FORGET, _INTERRUPT, _BATCH_FORGET})
_ATTR = struct.pack("=6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o755, 2, os.getuid(), os.getgid(), 0, 4096, 0)
_ANSWERS = {
    _GETATTR: struct.pack("=QII", 0, 0, 0) + _ATTR,
    _STATFS: struct.pack("=5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 1000, 900, 4096, 255, 4096, *[0] * 7),
    _INIT: struct.pack("=4I2HIIHH8I", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 1, 0, *[0] * 8),
    _OPENDIR: struct.pack("=QII", 0, 0, 0),
    _READDIR: b"",
    _RELEASE: b"",
    _RELEASEDIR: b"",
}
_DETACH = 2
"""MNT_DETACH of umount2(2)."""


class DeadMount:
    """A mounted file system.

    Args:
        server: its server's process.
        touched: the file in which the server notes who touches it.
    """

    def __init__(self, server: subprocess.Popen[bytes], touched: Path) -> None:
        self._server = server
        self._touched = touched

    def stand_still(self) -> None:
        """Answer nothing any more."""
        self._server.send_signal(signal.SIGUSR1)

    def pids(self) -> set[int]:
        """Return the processes that have touched it."""
        return {int(line) for line in self._touched.read_text().split()}


@contextmanager
def mounted(directory: Path) -> Iterator[DeadMount]:
    """Mount it, and unmount it afterwards, so that nobody waits any more."""
    touched = directory.with_name(f"{directory.name}.touched")
    touched.touch()
    server = subprocess.Popen([sys.executable, __file__, directory, touched], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"mounted\n"
        yield DeadMount(server, touched)
    finally:
        server.kill()  # the connection ends with it: whoever waits gets ENOTCONN
        server.communicate()
        _libc().umount2(os.fsencode(directory), _DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _process_of(thread: int) -> int:
    """Return the process of a thread; 0 where the kernel asks for itself."""
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except FileNotFoundError:
        return 0
    return int(status.partition("\nTgid:")[2].split()[0])


def _serve(directory: str, touched: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other".encode()
    if _libc().mount(b"dead", os.fsencode(directory), b"fuse.dead", 0, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    stands_still = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: stands_still.set())
    is_told = False
    with open(touched, "a", buffering=1) as notes:
        while True:
            request = os.read(device, 1 << 17)
            _, kind, unique, _, _, _, pid, _ = _IN.unpack_from(request)
            notes.write(f"{_process_of(pid)}\n")
            if kind in _UNANSWERED or stands_still.is_set():  # read, so that not even SIGKILL ends the wait
                continue
            answer = _ANSWERS.get(kind)
            problem = -errno.ENOENT if kind == _LOOKUP else -errno.ENOSYS
            data = b"" if answer is None else answer
            os.write(device, _OUT.pack(_OUT.size + len(data), 0 if answer is not None else problem, unique) + data)
            if not is_told:
                is_told = True
                print("mounted", flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
