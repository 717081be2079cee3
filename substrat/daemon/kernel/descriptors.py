"""File descriptors: close-on-exec marks, a reserve for the operator, files in memory, errors for a shortage."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
from contextlib import suppress

from sandbox import seccomp
from substrat.errors import DescriptorsUsedUp, SandboxFailed

FIRST_PRIVATE = 3
"""The first descriptor that isn't standard input, output or error."""
_CLOSE_RANGE = 436  # the call's number on every architecture (scripts/syscall.tbl)
_CLOSE_RANGE_CLOEXEC = 4  # linux/close_range.h, since Linux 5.11
_LAST = 0xFFFFFFFF
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_SHORT = frozenset({errno.EMFILE, errno.ENFILE})
_MOST_RESERVED = 256
"""Kept free for the operator: some connections, and the files that stopping a turn opens for an instant (/proc, pidfds)."""
_SHARE_RESERVED = 4
"""At most one in four: with a limit of 256 or less, turns still have most of it."""


def keep_private() -> None:
    """Mark every descriptor but the standard ones close-on-exec, to be called before a child is started.

    A child then gets only those that it is given by name, also where a library forgot the mark: CPython's
    `socket.recv_fds` drops its `flags` argument (3.11 to 3.13).
    """
    if not _close_on_exec_by_range():
        _close_on_exec_one_by_one()


def _close_on_exec_by_range() -> bool:
    libc = ctypes.CDLL(None)
    first, last, flags = ctypes.c_ulong(FIRST_PRIVATE), ctypes.c_ulong(_LAST), ctypes.c_ulong(_CLOSE_RANGE_CLOEXEC)
    return bool(libc.syscall(ctypes.c_long(_CLOSE_RANGE), first, last, flags) == 0)


def _close_on_exec_one_by_one() -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= FIRST_PRIVATE:
            with suppress(OSError):  # the listing's own descriptor is in the list and gone by now
                os.set_inheritable(int(name), False)


def sealed(data: bytes) -> int:
    """Return a descriptor for reading bytes that no process can change any more; the caller closes it.

    They lie in memory (memfd_create(2)), and the seals hold for processes that open the file again through `/proc/PID/fd`.
    """
    made = os.memfd_create("substrat", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(made, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
        # Opened anew: for reading only, and at the beginning.
        return os.open(f"/proc/self/fd/{made}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made)


def readable(data: bytes) -> int:
    """Return a descriptor that gives out some bytes; the caller closes it."""
    descriptor = os.memfd_create("substrat", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def call_filter() -> int:
    """Return a descriptor that gives out the system call filter of a sandbox; the caller closes it.

    Raises:
        SandboxFailed: there is none for this kind of machine.
    """
    try:
        return readable(seccomp.program(os.uname().machine))
    except seccomp.UnknownArchitecture as problem:
        raise SandboxFailed(f"the system call filter can't be made: {problem}; run substratd on one of those") from None


def is_reserved(descriptor: int) -> bool:
    """Say whether a descriptor that was just opened is one of those that are kept for the operator.

    The kernel gives out the lowest free number (open(2)), so all lower ones are in use.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit != resource.RLIM_INFINITY and descriptor >= limit - min(_MOST_RESERVED, limit // _SHARE_RESERVED)


def shortage() -> str | None:
    """Say in a sentence that nothing should be begun which needs more descriptors; None when there are enough."""
    try:
        probe = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError as problem:
        return sentence(problem) if is_short(problem) else None
    os.close(probe)
    return sentence(OSError(errno.EMFILE, "")) if is_reserved(probe) else None


def is_short(problem: OSError) -> bool:
    """Say whether something failed because there are no descriptors left, in this process or on the machine."""
    return problem.errno in _SHORT


def sentence(problem: OSError) -> str:
    """Say which limit of open files is used up, and how it is raised."""
    if problem.errno == errno.ENFILE:
        return "the machine's limit of open files is used up: raise fs.file-max (sysctl(8))"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"substratd's limit of open files ({limit}) is used up: raise the limit of open files "
        f"(LimitNOFILE= of its unit, or `ulimit -n` before it is started)"
    )


def refuse_shortage(problem: OSError) -> None:
    """Raise `DescriptorsUsedUp` for an error that means a shortage, so that it isn't taken for another obstacle."""
    if is_short(problem):
        raise DescriptorsUsedUp(sentence(problem)) from None
