"""Runs a command of the user's outside any sandbox: its input is a text, its errors are kept, its time is limited."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.daemon.kernel import descriptors, process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.core.agents.records import Process

_PIPE = 64 * 1024
"""Bytes of a pipe (pipe(7)): a command that floods it gets no more of the loop's time than one reading at a time."""
_MOST_ERRORS = 4096
"""Bytes of a command's standard error that are kept: its last words."""


class Ended(NamedTuple):
    """How a command ended.

    Args:
        code: its exit status; negative: the signal that ended it; None: it took too long and was killed.
        errors: the end of what it wrote to standard error.
    """

    code: int | None
    errors: str


async def run(
    command: Sequence[str], environment: Mapping[str, str], given: bytes, seconds: float, reapers: trio.Nursery
) -> Ended:
    """Run a command, in a session of its own.

    When it takes too long, or the caller is cancelled, the processes of its session's first group are killed. What it has
    put into a session of its own goes on, as it does when it ends by itself.

    Args:
        command: the program, looked up on the environment's PATH unless it is a path, and its arguments.
        environment: the whole environment.
        given: its standard input.
        seconds: the longest it may take.
        reapers: waits for the end of a command that was killed, which this function doesn't: the kernel may hold it, on a
            dead mount for example.

    Raises:
        OSError: it can't be executed.
        SubstratError: it can't be watched, for want of descriptors for example.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise FileNotFoundError(f"there is no program {command[0]!r} on {environment.get('PATH')}")
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    nowhere, source = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), descriptors.readable(given)
    try:
        child = process.start([program, *command[1:]], environment, [source, nowhere, writing])
    except BaseException:
        os.close(reading)
        raise
    finally:
        for descriptor in (writing, nowhere, source):
            os.close(descriptor)
    try:
        return await _wait(child, reading, seconds, reapers)
    finally:
        os.close(reading)


async def _wait(child: Process, reading: int, seconds: float, reapers: trio.Nursery) -> Ended:
    """Wait for a child's end, and read its errors meanwhile, so that it isn't held up."""
    pidfd = process.open_own(child)
    words, ended, code = bytearray(), False, None

    async def read() -> None:
        while _drain(reading, words):
            await trio.lowlevel.wait_readable(reading)

    try:
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await trio.lowlevel.wait_readable(pidfd)
                ended = True
                nursery.cancel_scope.cancel()
    finally:
        if ended:
            os.close(pidfd)
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        else:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            reapers.start_soon(_reap, child, pidfd)
    _drain(reading, words)
    return Ended(code, words.decode("utf-8", "replace").strip())


async def _reap(child: Process, pidfd: int) -> None:
    try:
        await process.wait_exit(child, pidfd)
    finally:
        os.close(pidfd)


def _drain(reading: int, words: bytearray) -> bool:
    """Read what a pipe holds, keep the end of all of it, and say whether more may come."""
    try:
        data = os.read(reading, _PIPE)
    except BlockingIOError:
        return True
    words += data
    del words[:-_MOST_ERRORS]
    return bool(data)
