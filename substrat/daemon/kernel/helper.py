"""Runs a helper program to its end, started in the loop's own thread.

`trio.run_process` starts its process in a worker thread. One that did so while `process.start` has raised the daemon's
`oom_score_adj` for a sandbox would have its helper inherit the value, and the kernel kill the helper like an agent.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.daemon.kernel import descriptors
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL, as in Trio: git removes its lock files meanwhile."""
_PIPE = 64 * 1024
"""Bytes of a pipe (pipe(7)): a program that floods it gets no more of the loop's time than one reading at a time."""
MOST = 32 << 20
"""Bytes of output, and of errors: the daemon holds all of it in memory."""


class Waiting(NamedTuple):
    """A program that was started, and waits for its standard input."""

    command: Sequence[str]
    child: subprocess.Popen[bytes]
    pidfd: int
    printed: tuple[tuple[int, bytearray], ...]


class TookTooLong(trio.TooSlowError):
    """A program took too long, and was ended.

    Args:
        errors: its standard error.
    """

    def __init__(self, errors: bytes) -> None:
        super().__init__()
        self.errors = errors


async def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int] = (),
    *,
    given: bytes = b"",
    seconds: float = math.inf,
    gently: bool = True,
    quiet: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program, and return its exit status and its output.

    Where it takes too long or the caller is cancelled, it is ended before this comes back, and all that it has started with
    it, except what has made a process group of its own.

    Args:
        command: the program, looked up on the environment's PATH unless it is a path, and its arguments.
        environment: the whole environment.
        files: descriptors that it has under the same numbers.
        given: its standard input.
        seconds: the longest that it may take.
        gently: whether it is asked to end first, and killed some seconds later; else it is killed at once.
        quiet: whether its output goes nowhere, so that what it leaves behind can go on printing; its errors are read.

    Raises:
        OSError: it can't be started.
        SandboxFailed: it printed too much, and was ended.
        TookTooLong: it took too long.
    """
    source = descriptors.readable(given)
    try:
        started = _start(command, environment, files, source, subprocess.DEVNULL if quiet else subprocess.PIPE)
    finally:
        os.close(source)
    done = None
    with _closing(started):
        try:
            with trio.move_on_after(seconds):
                done = await _ended(started)
        finally:
            if done is None:
                with trio.move_on_after(2 * _GRACE_S, shield=True):
                    await _end(started.child, started.pidfd, gently=gently)
    if done is None:
        raise TookTooLong(bytes(started.printed[-1][1]))
    return done


def start(command: Sequence[str], environment: Mapping[str, str], files: Sequence[int] = ()) -> Waiting:
    """Start a program that waits for its standard input, for `finish` or `drop`; the arguments are those of `run`."""
    return _start(command, environment, files, subprocess.PIPE)


async def finish(started: Waiting, given: bytes) -> subprocess.CompletedProcess[bytes]:
    """Give a program its standard input, and return its outcome; it goes on where the caller is cancelled."""
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
    if not await collect(started.printed, started.pidfd):
        raise SandboxFailed(f"{started.command[0]} printed more than {MOST >> 20} MiB")
    output, errors = b"", bytes(started.printed[-1][1])
    if len(started.printed) > 1:
        output = bytes(started.printed[0][1])
    return subprocess.CompletedProcess(started.command, started.child.wait(), output, errors)


async def collect(pipes: Sequence[tuple[int, bytearray]], ended: int | None = None, *, tail: int | None = None) -> bool:
    """Read a program's output; return whether it was no more than `MOST` bytes on each pipe, of which no more is read.

    Args:
        pipes: the descriptors, which don't block, and the buffers of their bytes.
        ended: the program's pidfd, at whose end the reading ends; None: at the end of all to which it has left its pipes.
        tail: how many of the last bytes are wanted, of any number; None: all of them.
    """
    async with trio.open_nursery() as nursery:

        async def follow(pipe: int, into: bytearray) -> None:
            while len(into) <= MOST and _read(pipe, into) != 0:
                if tail is not None and len(into) > 2 * tail:
                    del into[:-tail]
                await trio.lowlevel.wait_readable(pipe)
            if len(into) > MOST:
                nursery.cancel_scope.cancel()

        for pipe, into in pipes:
            nursery.start_soon(follow, pipe, into)
        if ended is not None:
            await trio.lowlevel.wait_readable(ended)
            nursery.cancel_scope.cancel()
    for pipe, into in pipes if ended is not None else ():
        while len(into) <= MOST and _read(pipe, into):
            pass
    return all(len(into) <= MOST for _, into in pipes)


def _start(
    command: Sequence[str], environment: Mapping[str, str], files: Sequence[int], given: int, output: int = subprocess.PIPE
) -> Waiting:
    """Start it, and open a pidfd for it; this comes back when it is executing, after about a millisecond (vfork)."""
    child = subprocess.Popen(
        command, env=environment, pass_fds=files, process_group=0,
        stdin=given, stdout=output, stderr=subprocess.PIPE,
    )  # fmt: skip
    pipes = tuple(stream.fileno() for stream in (child.stdout, child.stderr) if stream is not None)
    for pipe in pipes:
        os.set_blocking(pipe, False)
    try:
        return Waiting(command, child, os.pidfd_open(child.pid), tuple((pipe, bytearray()) for pipe in pipes))
    except OSError:
        # It isn't waited for, because the kernel may hold it; `subprocess` reaps it at a later start.
        os.killpg(child.pid, signal.SIGKILL)
        for stream in filter(None, (child.stdin, child.stdout, child.stderr)):
            stream.close()
        raise


def _read(pipe: int, into: bytearray) -> int | None:
    """Read the bytes that a pipe holds, and return how many they were; 0: it is at its end; None: it is empty."""
    try:
        data = os.read(pipe, _PIPE)
    except BlockingIOError:
        return None
    into += data
    return len(data)


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
