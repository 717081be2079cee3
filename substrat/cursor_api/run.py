"""One run of the agent program as a child of this process: its pipes, its end, and that nothing of it stays behind.

It has no thread; a shell does the waiting. One epoll descriptor stands for both pipes and the process's end.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from substrat.core.programs.failures import without_codes
from substrat.core.programs.ndjson import Line, Splitter
from substrat.cursor_api import tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.cursor_api.shell import Shell

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes: more than the daemon keeps of a line, because a caller may want a large file's edit whole."""
RESULT_GRACE = 5.0
"""Seconds a program may go on after its result or after closing its output; some builds never exit by themselves."""
STOP_GRACE = 2.0
"""Seconds between the signal of a cancellation and SIGKILL; cursor-agent needs 15 ms."""
_CHUNK = 1 << 18
"""Bytes: four times a pipe's usual size (pipe(7))."""
_PIPE_READS = 16
"""More than a full pipe takes, so that a child that goes on printing after its parent's end doesn't hold us up."""
_KEPT_ERRORS = 64 * 1024
"""Bytes: a failure's words stand at the end of standard error."""


class Run:
    """A running program and its output that was not taken yet.

    Owns the process, three pipes' ends and two descriptors; `close` gives up all of them and may be called again.

    Args:
        shell: how it waits.
        command: the program and its arguments.
        environment: its whole environment.
        prompt: its standard input.
        timeout: after how many seconds it is stopped; None: never.

    Raises:
        OSError: it couldn't be started.
    """

    def __init__(
        self,
        shell: Shell,
        command: Sequence[str],
        environment: Mapping[str, str],
        prompt: str,
        timeout: float | None = None,
    ) -> None:
        self.shell = shell
        started = time.monotonic()
        self._deadline = math.inf if timeout is None else started + timeout
        self._due = math.inf
        self._splitter = Splitter(limit=LONGEST_LINE)
        self.lines: deque[Line] = deque()
        self._errors = bytearray()
        self._reading = threading.Lock()
        self._open = True
        self._closing = False
        self._stopping = False
        self.timed_out = False
        self.over = False
        self.anything = False
        self._poll = select.epoll()
        self.process = _start(command, environment, prompt)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._out, self._err = self.process.stdout.fileno(), self.process.stderr.fileno()
        try:
            self._end = os.pidfd_open(self.process.pid)
        except OSError:
            self.process.kill()
            self.process.wait()
            _close_pipes(self.process)
            raise
        self._live = {self._out, self._err, self._end}
        for descriptor in self._live:
            self._poll.register(descriptor, select.EPOLLIN)

    def expect_end(self) -> None:
        """Note that the program has said all it had to say."""
        self._due = min(self._due, time.monotonic() + RESULT_GRACE)

    async def turn(self) -> None:
        """Wait for output, the end or a limit, and take it in; while the run is being stopped, wait for that."""
        if not self._reading.acquire(blocking=False):
            await self._wait_for_end(math.inf)
            self.over |= self.exited  # the rest of its output is dropped
            return
        try:
            if not self.over:
                limit = min(self._deadline, self._due)
                await self.shell.readable(self._poll.fileno(), max(0.0, limit - time.monotonic()))
                self._take_in()
        finally:
            self._reading.release()
            if self._closing:
                self._give_up()

    def errors(self) -> str:
        """Return the end of the program's standard error, without terminal codes."""
        return without_codes(bytes(self._errors).decode("utf-8", "replace"))

    @property
    def exited(self) -> bool:
        """Whether the process has ended; it is waited for then."""
        return self.process.poll() is not None

    async def close(self, number: int = signal.SIGTERM) -> None:
        """Stop the program and everything under it if it goes on, wait for its end, and close all descriptors.

        Another thread or task may be waiting in `turn`; it finds the process ended, and closes them then.

        Args:
            number: the signal to begin with; SIGKILL follows after `STOP_GRACE`.
        """
        self._closing = True
        if not self.exited:
            members = tree.below(self.process.pid)
            if not self._stopping:
                self._stopping = True
                self.process.send_signal(number)
                tree.signal_all(members, number)
            await self._gone()
            if not self.exited:
                members += tree.below(self.process.pid)
                tree.kill_group(self.process.pid)
                self.process.kill()
            tree.signal_all(members, signal.SIGKILL)
            await self._gone()
        self._give_up()

    def _give_up(self) -> None:
        """Close all descriptors, unless another thread or task waits for them right now."""
        if self._reading.acquire(blocking=False):
            self.over = True
            if self._open:
                self._open = False
                self._poll.close()
                os.close(self._end)
                _close_pipes(self.process)
            self._reading.release()

    async def _gone(self) -> None:
        """Wait for the process's end, for a while, and drop its output: with a full pipe it could not end."""
        until = time.monotonic() + STOP_GRACE
        while not self.exited and (left := until - time.monotonic()) > 0:
            if not self._reading.acquire(blocking=False):
                await self._wait_for_end(left)
                continue
            try:
                if not self._open:  # another thread has stopped it
                    return
                await self.shell.readable(self._poll.fileno(), left)
                self._take_in()
                self.lines.clear()
            finally:
                self._reading.release()

    async def _wait_for_end(self, seconds: float) -> None:
        """Wait for the process's end over a descriptor of its own, while another thread or task has the others."""
        try:
            end = os.pidfd_open(self.process.pid)
        except ProcessLookupError:
            return
        try:
            await self.shell.readable(end, seconds)
        finally:
            os.close(end)

    def _take_in(self) -> None:
        ready = {descriptor for descriptor, _ in self._poll.poll(0)}
        if self._err in ready:
            self._read_errors()
        if self._out in ready:
            self._read_output()
        if self._end in ready and self.process.poll() is not None:
            self._ended()
        elif not self.over:
            self._check_limits()

    def _read_output(self) -> None:
        data = os.read(self._out, _CHUNK)
        if data:
            self.anything = True
            self.lines.extend(self._splitter.feed(data))
            return
        self._unwatch(self._out)
        self.lines.extend(self._splitter.finish())
        # Without an output there is nothing more to come; the end of the process follows, or is brought about.
        self.expect_end()

    def _read_errors(self) -> None:
        data = os.read(self._err, _CHUNK)
        if not data:
            self._unwatch(self._err)
        self._errors += data
        del self._errors[:-_KEPT_ERRORS]

    def _unwatch(self, descriptor: int) -> None:
        self._live.discard(descriptor)
        self._poll.unregister(descriptor)

    def _ended(self) -> None:
        """Take in the rest of the process's pipes. A child of it may hold them open, so their end isn't awaited."""
        self._unwatch(self._end)
        for _ in range(_PIPE_READS):
            ready = {descriptor for descriptor, _ in self._poll.poll(0)}
            if self._err in ready:
                self._read_errors()
            if self._out in ready:
                self._read_output()
            if not ready:
                break
        if self._out in self._live:
            self.lines.extend(self._splitter.finish())
        self.over = True

    def _check_limits(self) -> None:
        now = time.monotonic()
        if now >= self._deadline and self._deadline <= self._due:
            self.timed_out = True
        if now >= min(self._deadline, self._due):
            self.over = True


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _start(command: Sequence[str], environment: Mapping[str, str], prompt: str) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own, its standard input a file that ends after the prompt."""
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(prompt.encode("utf-8", "replace"))
        standard_input.seek(0)
        return subprocess.Popen(
            command, env=dict(environment), stdin=standard_input, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0, start_new_session=True,
        )  # fmt: skip
