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


async def run(command: Sequence[str], environment: Mapping[str, str], given: bytes, seconds: float) -> Ended:
    """Run a command, in a session of its own.

    When it takes too long, or the caller is cancelled, the processes of its session's first group are killed. What it has
    put into a session of its own goes on, as it does when it ends by itself.

    Args:
        command: the program, looked up on the environment's PATH unless it is a path, and its arguments.
        environment: the whole environment.
        given: its standard input.
        seconds: the longest it may take.

    Raises:
        OSError: it can't be executed.
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
        return await _wait(child, reading, seconds)
    finally:
        os.close(reading)


async def _wait(child: Process, reading: int, seconds: float) -> Ended:
    """Wait for a child's end, and read its errors meanwhile, so that it isn't held up."""
    pidfd = process.open_own(child)
    words, ended = bytearray(), False

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
        os.close(pidfd)
        if not ended:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        # A killed process ends within a moment: nothing in it can wait.
        status = os.waitpid(child.pid, 0)[1]
    _drain(reading, words)
    return Ended(os.waitstatus_to_exitcode(status) if ended else None, words.decode("utf-8", "replace").strip())


def _drain(reading: int, words: bytearray) -> bool:
    """Read what is there, keep the end of all of it, and say whether more may come."""
    try:
        while data := os.read(reading, 65536):
            words += data
            del words[:-_MOST_ERRORS]
    except BlockingIOError:
        return True
    return False
