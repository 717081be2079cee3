"""Makes sockets in a sandbox's network namespace: a program of its own, run by path; imports nothing of ours.

`netjoiner.py NAMESPACE CHANNEL COUNT` enters the network namespace that the descriptor NAMESPACE stands for, makes COUNT
sockets of IPv4 and as many of IPv6 where there is IPv6, none of them connected, and sends them over the Unix socket CHANNEL
in one message (unix(7), SCM_RIGHTS). A socket stays in the namespace that it was made in, so whoever gets it can connect
to what listens there and to nothing else. On failure it prints one line to stderr and exits with `FAILED`.

It is a process of its own because only a process with one thread can enter a user namespace (setns(2)), and because it
can't return from there. The caller needs no more privilege than for making the sandbox: it owns the user namespace that
the network namespace belongs to (ioctl_ns(2), NS_GET_USERNS). Nothing of the sandbox can see this process or get a
descriptor of it: it stays in the host's pid namespace.
"""

import ctypes
import fcntl
import os
import socket
import sys

FAILED = 125
"""The exit status when a namespace can't be joined; 126 and 127 are the shell's."""

CLONE_NEWNET = 0x40000000  # linux/sched.h, as CLONE_NEWUSER
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701  # linux/nsfs.h


def main(arguments: list[str]) -> int:
    """Make the sockets and hand them over."""
    namespace, channel, count = map(int, arguments)
    try:
        enter(namespace)
        made = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
        made += six(count)
        with socket.socket(fileno=channel) as end:
            socket.send_fds(end, [b"\0"], [one.fileno() for one in made])
    except OSError as problem:
        os.write(2, f"{problem.filename or 'netjoiner'}: {problem.strerror or problem}\n".encode())
        return FAILED
    return 0


def six(count: int) -> list[socket.socket]:
    """Return sockets of IPv6, none where the kernel has no IPv6."""
    try:
        return [socket.socket(socket.AF_INET6, socket.SOCK_STREAM) for _ in range(count)]
    except OSError:
        return []


def enter(namespace: int) -> None:
    """Enter a network namespace, and the user namespace that owns it first.

    Raises:
        OSError: it is this process's own, or the kernel doesn't allow it.
    """
    here, there = os.stat("/proc/self/ns/net"), os.fstat(namespace)
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        raise OSError(0, "this command has the same network", "setns")
    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    ours, theirs = os.stat("/proc/self/ns/user"), os.fstat(owner)
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        set_namespace(owner, CLONE_NEWUSER)
    set_namespace(namespace, CLONE_NEWNET)


def set_namespace(descriptor: int, kind: int) -> None:
    """Call setns(2), which Python has from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
