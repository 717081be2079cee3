"""Reads /proc: the state, parents, children, start times, descriptors and mounts of processes (proc(5)).

Each function answers for a process that may end at any moment: one that is gone gives None or an empty list, no error.
Only `mounts` raises then, because a process may also be there and have no mounts that it can see.
"""

from __future__ import annotations

import errno
import os
import re
import stat as modes
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_PID = 4 * 1024 * 1024
"""The largest pid that a kernel of 64 bits gives out (proc(5), kernel/pid_max)."""
_ESCAPED = re.compile(r"\\([0-7]{3})")
_LISTENS, _DATAGRAMS = b"00010000", b"0002"
"""In `/proc/net/unix`: the flag of a socket that takes connections, and the type of one that needs none."""
_ENDED = frozenset({"Z", "X"})
_HIDDEN_LOOKS, _HIDDEN_PAUSE_S = 50, 0.002
"""How often a process is looked at that hides its descriptors: 0.1 s is a hundred times as long as one takes to end."""
_GONE = (FileNotFoundError, ProcessLookupError)
"""The kernel's errors for a process that has ended, before the file is opened or while it is read."""


class Stat(NamedTuple):
    """The fields of `/proc/PID/stat` that the daemon needs.

    Args:
        state: one letter, such as "S" for sleeping.
        parent: the parent's pid.
        start_time: ticks since the machine was booted.
    """

    state: str
    parent: int
    start_time: int


class Mount(NamedTuple):
    """A line of `/proc/PID/mountinfo`.

    Args:
        point: the mount point.
        device: the number of the file system, such as "8:1".
        kind: the type of the file system, such as "ext4".
        root: the directory of the file system that is mounted, such as "/srv/a" of one that another mount shows whole.
    """

    point: str
    device: str
    kind: str
    root: str = "/"


def boot_id() -> str:
    """Return the id of this boot of the machine: pids and start times mean nothing in another (random(4))."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat(pid: int) -> Stat | None:
    """Return a process's state, parent and start time; None when it is gone."""
    return _stat(f"/proc/{pid}")


def _stat(directory: str) -> Stat | None:
    try:
        with open(f"{directory}/stat", "rb") as file:
            line = file.read()
    except _GONE:
        return None
    # The name in field 2 may hold anything, also ")": the fields after it are counted from the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


def progress(pid: int) -> tuple[int, ...] | None:
    """Return numbers that stay the same only while a process waits for one thing; None where it runs, or is gone.

    They are its time on a processor, in ticks, and how often it has waited, both of its first thread.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except _GONE:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    waits = status(pid, "voluntary_ctxt_switches")
    return None if fields[0] == b"R" or not waits else (int(fields[11]), int(fields[12]), int(waits[0]))


def start_time(pid: int) -> int | None:
    """Return when a process was started, in ticks since the machine was booted; None when it is gone."""
    found = stat(pid)
    return found.start_time if found is not None else None


def parent(pid: int) -> int | None:
    """Return the pid of a process's parent; None when the process is gone."""
    found = stat(pid)
    return found.parent if found is not None else None


def status(pid: int, name: str) -> list[str]:
    """Return the words of one line of `/proc/PID/status`: for "NSpid" of a sandbox's process ["4711", "1"]."""
    with suppress(*_GONE), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return line.split()[1:]
    return []


def tasks(pid: int) -> list[str]:
    """Return the directory of each thread of a process, such as `/proc/4711/task/4712`."""
    try:
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    except _GONE:
        return []


def thread_states(pid: int) -> list[tuple[str, str]]:
    """Return the directory and the state of each thread of a process."""
    return [(task, found.state) for task in tasks(pid) if (found := _stat(task)) is not None]


def children(pid: int) -> list[int]:
    """Return the children of a process; the orphans of a pid namespace are children of its first process."""
    found: list[int] = []
    for task in tasks(pid):
        with suppress(*_GONE), open(f"{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def first_child(pid: int) -> int | None:
    """Return the child of a process that was started first; None when it has none."""
    started = {child: time for child in children(pid) if (time := start_time(child)) is not None}
    return min(started, key=lambda child: started[child], default=None)


def tree(root: int) -> list[int]:
    """Return a process and all its descendants, parents before their children."""
    found = [root]
    for pid in found:  # it grows while it is walked
        found += children(pid)
    return found


def holders(path: str, descriptor: int) -> Iterator[int]:
    """Find the processes of this user that have a file open under a certain descriptor, such as 1 for standard output."""
    path = os.path.realpath(path)
    for entry in os.listdir("/proc"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if entry.isdigit() and os.readlink(f"/proc/{entry}/fd/{descriptor}") == path:
                yield int(entry)


def all_with(path: str) -> set[int]:
    """Return the processes of this user's that have a file open, under whichever number."""
    path, found = os.path.realpath(path), set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if any(os.readlink(f"/proc/{entry}/fd/{number}") == path for number in os.listdir(f"/proc/{entry}/fd")):
                found.add(int(entry))
    return found


def reaches(pid: int, inodes: Collection[tuple[int, int]]) -> bool:
    """Say whether a process may have one of some files open, mapped, or as its directory; one that hides that may.

    A descriptor that waits in a socket of the process's may be any file's: nothing tells which.

    Args:
        pid: the process; stopped, or it may change that meanwhile.
        inodes: the device and the inode of each file.
    """
    # Each thread may have a table of its own (clone(2), CLONE_FILES), and the first one may have ended before the others.
    return any(_thread_reaches(task, inodes) for task in tasks(pid))


def _thread_reaches(task: str, inodes: Collection[tuple[int, int]]) -> bool:
    """Say whether a thread reaches one of some files; one that ends just now, or has ended, hides that for no reason."""
    for _ in range(_HIDDEN_LOOKS):
        try:
            return _is_in_reach(task, inodes)
        except _GONE:
            return False
        except OSError:
            if (found := _stat(task)) is None or found.state in _ENDED:
                return False
        time.sleep(_HIDDEN_PAUSE_S)
    return True


def _is_in_reach(task: str, inodes: Collection[tuple[int, int]]) -> bool:
    for name in ("cwd", "root", "exe", *(f"fd/{number}" for number in os.listdir(f"{task}/fd"))):
        with suppress(*_GONE):
            found = os.stat(f"{task}/{name}")
            if (found.st_dev, found.st_ino) in inodes:
                return True
            if modes.S_ISSOCK(found.st_mode) and _holds_descriptors(f"{task}/fdinfo/{name[3:]}"):
                return True
    numbers = {str(number) for _, number in inodes}
    with open(f"{task}/maps", encoding="utf-8", errors="replace") as file:
        fields = (line.split(maxsplit=5) for line in file)
        return any(words[1].endswith("s") and words[4] in numbers for words in fields)


def _holds_descriptors(socket: str) -> bool:
    """Say whether descriptors wait in a unix socket to be received (unix(7), SCM_RIGHTS); Linux before 5.6 tells none."""
    with open(socket, "rb") as file:
        return any(name == b"scm_fds" and int(number) > 0 for name, _, number in (line.partition(b":") for line in file))


def io_counts(pid: int) -> dict[str, int]:
    """Return the counts of `/proc/PID/io`, such as "write_bytes"; none when the process is gone or unreadable."""
    with suppress(OSError), open(f"/proc/{pid}/io", encoding="ascii") as file:
        return {name: int(number) for name, _, number in (line.partition(": ") for line in file)}
    return {}


def unix_sockets() -> list[str]:
    """Return the paths at which processes of this network namespace can be reached, as they have bound them."""
    found = []
    with suppress(OSError), open("/proc/net/unix", "rb") as file:
        for line in file:
            # The number, the uses, the protocol, flags, type, state, inode and path (net/unix/af_unix.c, unix_seq_show).
            fields = line.rstrip(b"\n").split(b" ", 7)
            is_path = len(fields) == 8 and not fields[7].lstrip(b" ").startswith(b"@")
            if is_path and (fields[3] == _LISTENS or fields[4] == _DATAGRAMS):
                found.append(os.fsdecode(fields[7].lstrip(b" ")))
    return found


def mounts(pid: int) -> list[Mount]:
    """Return the mounts that a process sees: those of its mount namespace in its root, perhaps none after a chroot(2).

    Raises:
        ProcessLookupError: the process has ended, or is a zombie.
        OSError: the mounts can't be read.
    """
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as file:
            return [read_mount(os.fsdecode(line)) for line in file]
    except OSError as problem:
        # A process that has ended has no mount namespace any more (fs/proc_namespace.c, mounts_open_common).
        if isinstance(problem, _GONE) or problem.errno == errno.EINVAL:
            raise ProcessLookupError(errno.ESRCH, "it has ended", f"/proc/{pid}") from problem
        raise


def read_mount(line: str) -> Mount:
    r"""Read a line such as `36 35 8:1 / /mnt/a\040b rw,noatime master:1 - ext4 /dev/sda1 rw`."""
    fields, _, after = line.partition(" - ")
    _, _, device, *paths = fields.split(" ")
    root, point = (_ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), path) for path in paths[:2])
    return Mount(point, device, after.split(" ")[0], root)
