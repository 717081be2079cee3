"""The command line that starts a sandbox, and the seam where the `filtered` network enters; it starts nothing.

For `none` and `host` bubblewrap is the whole command. For `filtered` a launcher will stand in front of it: it unshares a
user and a network namespace, brings `lo` up with the AnyIP route, opens the listeners, hands them to the daemon, and
executes bubblewrap inside, which then keeps the network it finds.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sandbox import bwrap
from sandbox.spec import Network, Spec

AVAILABLE_NETWORKS = (Network.NONE, Network.HOST)


class Start(NamedTuple):
    """How a sandbox is started without its options being seen: bubblewrap's process is visible from inside it.

    Args:
        command: what is executed.
        options: what it reads from `bwrap.OPTIONS_FD`.
    """

    command: tuple[str, ...]
    options: bytes


def start(program: str, spec: Spec) -> Start:
    """Return what `command` returns, with the options apart.

    Args:
        program: bubblewrap's path.
        spec: the sandbox; its network must be one of `AVAILABLE_NETWORKS`.

    Raises:
        ValueError: the network isn't available.
    """
    _check(spec)
    options = b"".join(os.fsencode(option) + b"\0" for option in bwrap.options(spec))
    return Start((program, "--args", str(bwrap.OPTIONS_FD), "--", *bwrap.program(spec)), options)


def command(program: str, spec: Spec) -> tuple[str, ...]:
    """Return the command that starts a sandbox, for people: whole but for the system call filter, which has no spelling.

    Args:
        program: bubblewrap's path.
        spec: the sandbox; its network must be one of `AVAILABLE_NETWORKS`.

    Raises:
        ValueError: the network isn't available.
    """
    _check(spec)
    return (program, *bwrap.arguments(spec))


def _check(spec: Spec) -> None:
    if spec.network not in AVAILABLE_NETWORKS:
        raise ValueError(f"the network {spec.network.value!r} has no launcher")
