"""Handles the caller's side of `agent.exec`: its request, its connection, and the descriptors that it hands over."""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from sandbox.bwrap import SETSID
from substrat.core.agents.lifecycle import Phase
from substrat.core.workspaces.clone_life import CloneEvent, step
from substrat.daemon.kernel import descriptors as kernel_descriptors
from substrat.daemon.kernel import sockets
from substrat.errors import InvalidParams, Refused, SandboxFailed
from substrat.paths import short_socket_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.records import Agent

_STANDARD = 3
"""How many descriptors a caller hands over: standard input, output and error."""
_REACH_SECONDS = 10.0
"""A caller listens before it asks, so it hands its descriptors over at once, unless it has gone."""
_TERMINAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
"""Names of terminals, for example `xterm-256color`: one word, because it becomes an environment variable."""


_SOCKET = re.compile(r"exec-(\d+)-[0-9a-f]+\.sock")
"""Names of callers' sockets, with the caller's process: for example `exec-4711-9f3c.sock`, as `substratctl` makes them."""


class ExecRequest(NamedTuple):
    """A command that a caller asks for.

    Args:
        command: the program and its arguments, as seen from inside.
        descriptors: where the caller hands over its standard input, output and error.
        terminal: `TERM`, if they are a terminal of the command's own.
    """

    command: tuple[str, ...]
    descriptors: str
    terminal: str | None = None


def check(agent: Agent, request: ExecRequest) -> None:
    """Check that a request can be carried out.

    Raises:
        Refused: the agent has ended, or its clone isn't made yet.
        InvalidParams: there is no command, or no such terminal.
        SandboxFailed: there is no way to give it a terminal.
    """
    if not request.command or any("\0" in word for word in request.command):
        raise InvalidParams("agent.exec: 'command' must name a program, and no word may have a null character")
    if request.terminal is not None and not _TERMINAL.fullmatch(request.terminal):
        raise InvalidParams(f"agent.exec: {request.terminal!r} is no kind of terminal: set TERM, for example to xterm")
    if not os.path.isabs(request.descriptors) or "\0" in request.descriptors:
        raise InvalidParams(f"agent.exec: 'descriptors' must be an absolute path, not {request.descriptors!r}")
    if request.terminal is not None and not os.access(SETSID, os.X_OK):
        raise SandboxFailed(f"the command can't have a terminal: there is no {SETSID}: apt install util-linux")
    if agent.phase == Phase.ENDED:
        raise Refused(f"{agent.name} has ended and has no sandbox any more: spawn another agent in {agent.workspace}")
    if agent.clone is not None:
        step(agent.clone, CloneEvent.EXEC)  # it may refuse


class Caller(NamedTuple):
    """A caller: the connection it is heard on, and the descriptors it has handed over."""

    stream: trio.SocketStream
    descriptors: list[int]


async def reach(path: str) -> Caller:
    """Fetch the caller's descriptors.

    Raises:
        InvalidParams: no process of this user, or of root, hands any over there.
        DescriptorsUsedUp: there are no descriptors left for them.
    """
    spelling, directory = short_socket_path(path)
    connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller = Caller(trio.SocketStream(connection), [])
    with ExitStack() as undo:
        undo.callback(connection.close)
        undo.callback(close, caller.descriptors)
        try:
            with trio.fail_after(_REACH_SECONDS):
                await connection.connect(spelling)
                caller.descriptors.extend(await sockets.receive_descriptors(connection, _STANDARD))
        except (OSError, trio.TooSlowError) as problem:
            if isinstance(problem, OSError):
                kernel_descriptors.refuse_shortage(problem)
            reason = getattr(problem, "strerror", None) or "nothing came"
            raise InvalidParams(f"agent.exec: no descriptors can be had from {path}: {reason}; try it again") from None
        finally:
            if directory is not None:
                os.close(directory)
        _check_caller(caller.stream, caller.descriptors, path)
        undo.pop_all()
    return caller


def remove_sockets(directory: str, caller: int | None = None) -> None:
    """Remove the sockets that a caller's process has left, or those of all processes that are gone.

    Args:
        directory: the runtime directory, where `substratctl` makes them.
        caller: the process; it makes no new one.
    """
    with suppress(OSError):
        for found in filter(None, map(_SOCKET.fullmatch, os.listdir(directory))):
            pid = int(found[1])
            if pid == caller or (caller is None and not os.path.exists(f"/proc/{pid}")):
                os.unlink(os.path.join(directory, found[0]))


def _check_caller(stream: trio.SocketStream, descriptors: list[int], path: str) -> None:
    if sockets.peer_uid(stream) not in {os.geteuid(), 0} or len(descriptors) != _STANDARD:
        raise InvalidParams(f"agent.exec: no standard input, output and error of yours came from {path}: try it again")


@contextmanager
def closing(descriptors: list[int]) -> Iterator[None]:
    """Close descriptors in the end, those that are not closed by then."""
    try:
        yield
    finally:
        close(descriptors)


def close(descriptors: list[int]) -> None:
    """Close descriptors and forget them."""
    while descriptors:
        os.close(descriptors.pop())
