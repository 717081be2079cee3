"""Says how a sandbox is started: its command line, its environment and the descriptors it inherits."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sandbox.bwrap import FIRST_SOURCE_FD, NETWORK_FD
from substrat.daemon.kernel.descriptors import call_filter, readable
from substrat.daemon.state import reserve

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from substrat.daemon.state.layout import TurnDir

_ROOM_FOR_STATUS = 4096
"""Bytes on disk for bubblewrap's reports: a block, of which it needs some 300 bytes. Without them a turn that ended
on a full disk would have no exit code, and one that is to be stopped no first process."""


class LaunchPlan(NamedTuple):
    """The command line, environment and descriptors that start a sandbox.

    Args:
        command: the program and its arguments, for example `("/usr/bin/bwrap", "--args", "4", …)`.
        environment: its environment.
        options: bubblewrap's, which it reads from a descriptor.
        version: the agent program's, None when its path doesn't tell.
        channel: the socket at `bwrap.NETWORK_FD`, if it has one.
        sources: the descriptors from `bwrap.FIRST_SOURCE_FD` on.
        without: the agent program's dispensable options that aren't in its command.
        directory: which directory the agent's workspace is, if that is compared in the next turn.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    options: bytes
    version: str | None = None
    channel: socket.socket | None = None
    sources: tuple[int, ...] = ()
    without: frozenset[str] = frozenset()
    directory: str | None = None

    def close(self) -> None:
        """Close the descriptors that only the sandbox needs; to be called once, after the start or instead of it."""
        for descriptor in self.sources:
            os.close(descriptor)
        if self.channel is not None:
            self.channel.close()


@contextmanager
def descriptors(plan: LaunchPlan, standard: Sequence[int], turn_dir: TurnDir) -> Iterator[Sequence[int | None]]:
    """Open the descriptors that a sandbox inherits, in the order of `bwrap`'s numbers, and close them afterwards.

    Args:
        plan: the sandbox's command and descriptors.
        standard: its standard input, output and error.
        turn_dir: has the file that bubblewrap reports to and the sandbox's lock.

    Raises:
        OSError: something can't be opened, or there is a sandbox already.
        SandboxFailed: there is no system call filter for this machine.
    """
    channel = plan.channel.fileno() if plan.channel is not None else None
    with ExitStack() as stack:
        opened = (
            closed_by(stack, append_to(turn_dir.status)),
            closed_by(stack, readable(plan.options)),
            closed_by(stack, turn_dir.take_lock()),
            closed_by(stack, call_filter()),
        )
        reserve.allocate_beforehand(opened[0], _ROOM_FOR_STATUS)
        files = [*standard, *opened]
        before = [*files, *[None] * (NETWORK_FD - len(files)), channel, None]  # `remount` opens `bwrap.GATE_FD`
        assert len(before) == FIRST_SOURCE_FD
        yield [*before, *plan.sources]


def append_to(path: str) -> int:
    """Open a file so that several writers and a truncation never make holes in it; the caller closes it."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def closed_by(stack: ExitStack, descriptor: int) -> int:
    """Let a stack close a descriptor, and return it."""
    stack.callback(os.close, descriptor)
    return descriptor
