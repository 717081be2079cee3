"""Builds the command line that starts a sandbox, with the launcher of the `filtered` network in front of it.

For `none` and `host` bubblewrap is the whole command. For `filtered` in its transparent form `netlaunch` stands in front
of it: it makes the network, hands the listeners to the daemon, and becomes bubblewrap, which keeps the network it finds.
In its proxy form bubblewrap makes an empty network, and `netrelay` stands in front of the program, inside.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple

from sandbox import bwrap, netrelay, remount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.spec import Bind, Spec

# Imported, not run as a script: then Python keeps its compiled form, which saves several milliseconds a launch.
_NETLAUNCH = "import sys; sys.path.append({!r}); import netlaunch; sys.exit(netlaunch.main(sys.argv[1:]))"


INSTALLED = "/usr/local/libexec/substrat-netlaunch"
"""Where root may put the launcher: a path that only root can write to, so that a profile can be given to it alone."""
SHEBANG = "#!/usr/bin/python3 -IS"
SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "netlaunch.py")
_MOST = 1 << 20
"""Bytes; the launcher has some thousand, and a larger file isn't ours."""


class Start(NamedTuple):
    """How a sandbox is started without its options being seen: bubblewrap's process is visible from inside it.

    Args:
        command: the command to execute.
        options: bubblewrap's options, which it reads from `bwrap.OPTIONS_FD`.
        held: mounts whose source an agent could replace, in the order of its descriptors (`bwrap.held`).
    """

    command: tuple[str, ...]
    options: bytes
    held: tuple[Bind, ...] = ()


def start(program: str, spec: Spec, *, by_descriptor: bool = False, tied: bool = False) -> Start:
    """Return the same as `command`, with the options apart and, for `filtered`, `bwrap.NETWORK_FD` as the channel.

    Args:
        program: bubblewrap's path.
        spec: the sandbox.
        by_descriptor: whether bubblewrap finds the mounts of `bwrap.held` open.
        tied: as in `bwrap.options`.
    """
    held = bwrap.held(spec)
    numbers = {mount: bwrap.FIRST_SOURCE_FD + number for number, mount in enumerate(held)}
    made = bwrap.options(spec, descriptors=numbers if by_descriptor else None, tied=tied)
    # Not in `command`, which people see: the values may be secret.
    given = (word for name, value in spec.variables for word in ("--setenv", name, value))
    options = os.fsencode("\0".join((*given, *made, "")))
    late = bwrap.late(spec)
    mover = _mover(late) if late else ()
    words = (*(bwrap.GATE if late else ()), *bwrap.program(spec))
    launcher = _launcher(spec, str(bwrap.NETWORK_FD))
    return Start((*mover, *launcher, program, "--args", str(bwrap.OPTIONS_FD), "--", *words), options, held)


def command(program: str, spec: Spec) -> tuple[str, ...]:
    """Return the command that starts a sandbox, for people: whole but for the system call filter, which has no spelling.

    Its environment and variables are left out. Its `filtered` network isn't served.

    Args:
        program: bubblewrap's path.
        spec: the sandbox.
    """
    return (*_launcher(spec, "-"), program, *bwrap.arguments(spec))


def launcher(channel: str, ports: tuple[int, ...]) -> tuple[str, ...]:
    """Return the command that stands in front of a program to run it in a `filtered` network.

    Args:
        channel: the descriptor to hand the listeners over on, or `-`.
        ports: which TCP ports are listened at.
    """
    return (*netlaunch(), "launch", channel, ",".join(map(str, ports)))


def reentry(channel: str, ports: tuple[int, ...], pid: int) -> tuple[str, ...]:
    """Return the command that opens the listeners again in the namespaces of a process, and hands them over."""
    return (*netlaunch(), "enter", channel, ",".join(map(str, ports)), str(pid))


def more_ports(channel: str, ports: tuple[int, ...], pid: int) -> tuple[str, ...]:
    """Return the command that opens listeners at further ports in the namespaces of a process, and hands them over."""
    return (*netlaunch(), "more", channel, ",".join(map(str, ports)), str(pid))


def relayed(python: str, socket_path: str) -> tuple[str, ...]:
    """Return the command that stands in front of a program where `netrelay` lies: outside of a sandbox, to try it.

    Args:
        python: the interpreter that runs it.
        socket_path: where the daemon would be.
    """
    return (python, "-I", "-S", os.path.realpath(netrelay.__file__), str(netrelay.PORT), socket_path)


def installed() -> bytes:
    """Return the content of `INSTALLED`: the launcher as a program with an interpreter that is root's."""
    with open(SOURCE, "rb") as file:
        return SHEBANG.encode() + b"\n" + file.read()


def is_installed(path: str = INSTALLED) -> bool:
    """Say whether our launcher is there as root has put it there; another version's isn't ours."""
    try:
        with open(path, "rb", opener=_open_itself) as file:
            found = os.fstat(file.fileno())
            is_roots = found.st_uid == 0 and stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022
            return is_roots and os.access(path, os.X_OK) and file.read(_MOST) == installed()
    except OSError:
        return False


def _open_itself(path: str, _flags: int) -> int:
    """Open a file for reading, without following a link or waiting for a FIFO's writer."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def netlaunch() -> tuple[str, ...]:
    """Return the command that runs `netlaunch`.

    That is the one which root has installed, so that AppArmor can tell it from other programs, or else our own interpreter
    with nothing but its standard library.
    """
    if is_installed():
        return (INSTALLED,)
    return (sys.executable, "-I", "-S", "-c", _NETLAUNCH.format(os.path.dirname(SOURCE)))


def _mover(late: Mapping[Bind, str]) -> tuple[str, ...]:
    """Return the command that stands in front of the others to make late mounts when bubblewrap's own stand."""
    paths = (path for mount, stage in late.items() for path in (stage, mount.target))
    return (*remounter(), "launch", str(bwrap.GATE_FD), str(bwrap.STATUS_FD), *paths, "--")


def remounter() -> tuple[str, ...]:
    """Return the command that runs `remount`."""
    return (sys.executable, "-I", "-S", os.path.realpath(remount.__file__))


def _launcher(spec: Spec, channel: str) -> tuple[str, ...]:
    return launcher(channel, spec.ports) if spec.is_launched else ()
