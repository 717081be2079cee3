"""Runs a helper program to its end, started in the loop's own thread.

`trio.run_process` starts its process in a worker thread. One that did so while `process.start` has raised the daemon's
`oom_score_adj` for a sandbox would have its helper inherit the value, and the kernel kill the helper like an agent.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL, as in Trio: git removes its lock files meanwhile."""


class Waiting(NamedTuple):
    """A program that was started, and waits for its standard input."""

    command: Sequence[str]
    child: subprocess.Popen[bytes]
    pidfd: int


async def run(
    command: Sequence[str], environment: Mapping[str, str], files: Sequence[int] = (), *, gently: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Run a program with an empty standard input, and return its exit status, output and errors.

    Where the caller is cancelled the program is ended before this comes back, and all that it has started with it, except
    what has made a process group of its own.

    Args:
        command: the program, looked up on the environment's PATH unless it is a path, and its arguments.
        environment: the whole environment.
        files: descriptors that it has under the same numbers.
        gently: whether it is asked to end first, and killed some seconds later; else it is killed at once.

    Raises:
        OSError: it can't be started.
    """
    started = Waiting(command, *_start(command, environment, files, subprocess.DEVNULL))
    with _closing(started):
        try:
            return await _ended(started)
        except BaseException:
            with trio.move_on_after(2 * _GRACE_S, shield=True):
                await _end(started.child, started.pidfd, gently=gently)
            raise


def start(command: Sequence[str], environment: Mapping[str, str], files: Sequence[int] = ()) -> Waiting:
    """Start a program that waits for its standard input, for `finish` or `drop`; the arguments are those of `run`."""
    return Waiting(command, *_start(command, environment, files, subprocess.PIPE))


async def finish(started: Waiting, given: bytes) -> subprocess.CompletedProcess[bytes]:
    """Give a program its standard input, and return what has come of it; it goes on where the caller is cancelled."""
    with _closing(started):
        assert started.child.stdin is not None
        async with trio.lowlevel.FdStream(os.dup(started.child.stdin.fileno())) as writing:
            started.child.stdin.close()
            with suppress(trio.BrokenResourceError):  # it has ended; its exit status says more
                await writing.send_all(given)
        return await _ended(started)


async def drop(started: Waiting) -> None:
    """Kill a program that nothing was given to."""
    with _closing(started):
        await _end(started.child, started.pidfd, gently=False)


@contextmanager
def _closing(started: Waiting) -> Iterator[None]:
    child = started.child
    with ExitStack() as stack:
        stack.callback(os.close, started.pidfd)
        for stream in filter(None, (child.stdin, child.stdout, child.stderr)):
            stack.callback(stream.close)
        yield


async def _ended(started: Waiting) -> subprocess.CompletedProcess[bytes]:
    output, errors = bytearray(), bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, started.child.stdout, output)
        nursery.start_soon(_read, started.child.stderr, errors)
        await trio.lowlevel.wait_readable(started.pidfd)
    return subprocess.CompletedProcess(started.command, started.child.wait(), bytes(output), bytes(errors))


def _start(
    command: Sequence[str], environment: Mapping[str, str], files: Sequence[int], given: int
) -> tuple[subprocess.Popen[bytes], int]:
    """Start it, and open a pidfd for it; this comes back when it is executing, after about a millisecond (vfork)."""
    child = subprocess.Popen(
        command, env=environment, pass_fds=files, process_group=0,
        stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        return child, os.pidfd_open(child.pid)
    except OSError:
        # It isn't waited for, because the kernel may hold it; `subprocess` reaps it at a later start.
        os.killpg(child.pid, signal.SIGKILL)
        for stream in filter(None, (child.stdin, child.stdout, child.stderr)):
            stream.close()
        raise


async def _read(stream: IO[bytes] | None, into: bytearray) -> None:
    if stream is not None:
        async with trio.lowlevel.FdStream(os.dup(stream.fileno())) as reading:
            async for data in reading:
                into += data


async def _end(child: subprocess.Popen[bytes], pidfd: int, *, gently: bool) -> None:
    """End a program whose caller was cancelled; one that hangs in the kernel is waited for no longer.

    All of its group is killed: the child of a bubblewrap that dies early waits for ever for its user map, even with
    `--die-with-parent` (`child_wait_fd` in bubblewrap.c).
    """
    if gently:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        with trio.move_on_after(_GRACE_S):
            await trio.lowlevel.wait_readable(pidfd)
    # It hasn't been waited for, so no other group can have its number.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with trio.move_on_after(_GRACE_S):
        await trio.lowlevel.wait_readable(pidfd)
    child.poll()
