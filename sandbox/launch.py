"""The command line that starts a sandbox, and the launcher in front of it for the `filtered` network; it starts nothing.

For `none` and `host` bubblewrap is the whole command. For `filtered` `netlaunch` stands in front of it: it makes the
network, hands the listeners to the daemon, and becomes bubblewrap, which keeps the network it finds.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from sandbox import bwrap
from sandbox.spec import Network, Spec

AVAILABLE_NETWORKS = (Network.NONE, Network.FILTERED, Network.HOST)

# Imported, not run as a script: then Python keeps its compiled form, which saves several milliseconds a launch.
_NETLAUNCH = "import sys; sys.path.append({!r}); import netlaunch; sys.exit(netlaunch.main(sys.argv[1:]))"


class Start(NamedTuple):
    """How a sandbox is started without its options being seen: bubblewrap's process is visible from inside it.

    Args:
        command: what is executed.
        options: what it reads from `bwrap.OPTIONS_FD`.
    """

    command: tuple[str, ...]
    options: bytes


def start(program: str, spec: Spec, *, by_descriptor: bool = False, tied: bool = False) -> Start:
    """Return what `command` returns, with the options apart and, for `filtered`, `bwrap.NETWORK_FD` as the channel.

    Args:
        program: bubblewrap's path.
        spec: the sandbox.
        by_descriptor: whether it finds what is `bwrap.held` open.
        tied: as in `bwrap.options`.
    """
    held = {mount: bwrap.FIRST_SOURCE_FD + number for number, mount in enumerate(bwrap.held(spec))}
    made = bwrap.options(spec, descriptors=held if by_descriptor else None, tied=tied)
    options = b"".join(os.fsencode(option) + b"\0" for option in made)
    launcher = _launcher(spec, str(bwrap.NETWORK_FD))
    return Start((*launcher, program, "--args", str(bwrap.OPTIONS_FD), "--", *bwrap.program(spec)), options)


def command(program: str, spec: Spec) -> tuple[str, ...]:
    """Return the command that starts a sandbox, for people: whole but for the system call filter, which has no spelling.

    Its `filtered` network has nobody who serves it.

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


def netlaunch() -> tuple[str, ...]:
    """Return the command that runs `netlaunch`: our own interpreter with nothing but its standard library."""
    return (sys.executable, "-I", "-S", "-c", _NETLAUNCH.format(os.path.dirname(os.path.realpath(__file__))))


def _launcher(spec: Spec, channel: str) -> tuple[str, ...]:
    return launcher(channel, spec.ports) if spec.network is Network.FILTERED else ()
