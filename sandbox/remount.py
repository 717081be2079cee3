"""Mounts paths over themselves inside a running sandbox: a program of its own, run with `python -I -S`.

`remount.py PID MODE PATH…` enters the mount namespace of process PID and binds each PATH over itself. MODE is a word of one
letter for each path: `r` read-only, `w` writable. It prints nothing; the exit status is 0 when every path was mounted, and
125 with one line on stderr when one wasn't.

The caller needs no privilege that it hadn't when it made the sandbox: it owns the user namespace that the mount namespace
belongs to (ioctl_ns(2), NS_GET_USERNS), and entering that gives the capabilities to mount (user_namespaces(7)). Paths are
opened once, following no link, and mounted by descriptor, so nothing can be swapped between the look and the mount
(open_tree(2), move_mount(2), and mount_setattr(2) since Linux 5.12).
"""

import ctypes
import fcntl
import os
import sys

FAILED = 125
"""The exit status when something can't be mounted; 126 and 127 are the shell's."""

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701  # linux/nsfs.h
# The numbers are the same on every architecture that has the calls (asm-generic/unistd.h).
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_MOUNT_SETATTR = 442
AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4


def main(arguments: list[str]) -> int:
    """Carry the arguments out; on failure print one line to stderr and return `FAILED`."""
    try:
        pid, modes, paths = int(arguments[0]), arguments[1], arguments[2:]
        enter(pid)
        for mode, path in zip(modes, paths, strict=True):
            cover(path, is_writable=mode == "w")
    except OSError as problem:
        where = os.fsencode(problem.filename or "").decode("utf-8", "replace")
        os.write(2, f"substrat: can't mount {where}: {problem.strerror}\n".encode())
        return FAILED
    return 0


def enter(pid: int) -> None:
    """Enter a process's mount namespace, and the user namespace that owns it first.

    Raises:
        OSError: it is gone, or the kernel doesn't allow it.
    """
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    ours, theirs = os.stat("/proc/self/ns/user"), os.fstat(owner)
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        _call("setns", owner, CLONE_NEWUSER)
    _call("setns", namespace, CLONE_NEWNS)


def cover(path: str, *, is_writable: bool) -> None:
    """Bind a file or directory over itself.

    Raises:
        OSError: it isn't there, is a link, or can't be mounted.
    """
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = OPEN_TREE_CLONE | AT_EMPTY_PATH | os.O_CLOEXEC
        tree = _system_call(SYS_OPEN_TREE, path, found, b"", flags)
        try:
            attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (0 if is_writable else MOUNT_ATTR_RDONLY)
            wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
            _system_call(SYS_MOUNT_SETATTR, path, tree, b"", AT_EMPTY_PATH, wanted, ctypes.sizeof(wanted))
            how = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
            _system_call(SYS_MOVE_MOUNT, path, tree, b"", found, b"", how)
        finally:
            os.close(tree)
    finally:
        os.close(found)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _system_call(number: int, path: str, *arguments: object) -> int:
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return result


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
