"""One run of the agent program as a child of this process: its pipes, its end, and that nothing of it stays behind.

It has no thread and never blocks by itself. One epoll descriptor stands for both pipes and the process's end, so that a
caller can wait on it in its own way: `turn` waits with epoll, a Trio caller waits until `fileno()` is readable.
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

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes: more than the daemon keeps of a line, because a caller may want a large file's edit whole."""
RESULT_GRACE = 5.0
"""Seconds a program may go on after its result or after closing its output; some builds never exit by themselves."""
STOP_GRACE = 2.0
"""Seconds between the signal of a cancellation and SIGKILL; cursor-agent needs 15 ms."""
_CHUNK = 1 << 18
"""Bytes: four times a pipe's usual size (pipe(7))."""
_LONGEST_WAIT = 3600.0
"""epoll counts milliseconds in 32 bits."""
_PIPE_READS = 16
"""More than a full pipe takes, so that a child that goes on printing after its parent's end doesn't hold us up."""
_KEPT_ERRORS = 64 * 1024
"""Bytes: a failure's words stand at the end of standard error."""


class Run:
    """A running program and its output that was not taken yet.

    Owns the process, three pipes' ends and two descriptors; `close` gives up all of them and may be called again.

    Args:
        command: the program and its arguments.
        environment: its whole environment.
        prompt: its standard input.
        timeout: after how many seconds it is stopped; None: never.

    Raises:
        OSError: it couldn't be started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], prompt: str, timeout: float | None = None
    ) -> None:
        started = time.monotonic()
        self._deadline = math.inf if timeout is None else started + timeout
        self._due = math.inf
        self._splitter = Splitter(limit=LONGEST_LINE)
        self._lines: deque[Line] = deque()
        self._errors = bytearray()
        self._reading = threading.Lock()
        self._open = True
        self.timed_out = False
        self.over = False
        self.anything = False
        self.process = _start(command, environment, prompt)
        try:
            self._watch()
        except BaseException:
            self._abandon()
            raise

    def _watch(self) -> None:
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._end = os.pidfd_open(process.pid)
        self._poll = select.epoll()
        for descriptor in (self._out, self._err, self._end):
            self._poll.register(descriptor, select.EPOLLIN)
        self._live = {self._out, self._err, self._end}

    def _abandon(self) -> None:
        """Give up a process that can't be watched."""
        self.process.kill()
        self.process.wait()
        _close_pipes(self.process)
        for descriptor in ("_end", "_poll"):
            if (found := getattr(self, descriptor, None)) is not None:
                os.close(found) if isinstance(found, int) else found.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `turn(0)` has something to do."""
        return self._poll.fileno()

    def end_fileno(self) -> int:
        """Return the descriptor that is readable when the process has ended."""
        return self._end

    def patience(self) -> float:
        """Return for how many seconds `turn` has nothing to do but to wait; infinite when nothing has a limit."""
        return max(0.0, min(self._deadline, self._due) - time.monotonic())

    def take(self) -> Line | None:
        """Return the next line that is at hand."""
        return self._lines.popleft() if self._lines else None

    def expect_end(self) -> None:
        """Note that the program has said all it had to say."""
        self._due = min(self._due, time.monotonic() + RESULT_GRACE)

    def turn(self, wait: float) -> None:
        """Wait for output or the end, and take it in.

        Args:
            wait: for how many seconds at most.
        """
        with self._reading:
            if not self.over:
                self._take_in(None if math.isinf(wait) else wait)

    def errors(self) -> str:
        """Return the end of the program's standard error, without terminal codes."""
        return without_codes(bytes(self._errors).decode("utf-8", "replace"))

    @property
    def exited(self) -> bool:
        """Whether the process has ended; it is waited for then."""
        return self.process.poll() is not None

    def begin_stop(self, number: int = signal.SIGTERM) -> list[tree.Member]:
        """Send a signal to the process and everything under it.

        Returns:
            The processes under it, for `kill`.
        """
        if self.exited:
            return []
        members = tree.below(self.process.pid)
        self.process.send_signal(number)
        tree.signal_all(members, number)
        return members

    def kill(self, members: list[tree.Member]) -> None:
        """Kill the process, if it is still there, and the processes that were or are under it."""
        if not self.exited:
            members = [*members, *tree.below(self.process.pid)]
            tree.kill_group(self.process.pid)
            self.process.kill()
        tree.signal_all(members, signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the process and everything under it; returns when it is waited for.

        Another thread may be waiting in `turn`; it finds the process ended.

        Args:
            number: the signal to begin with; SIGKILL follows after `STOP_GRACE`.
        """
        members = self.begin_stop(number)
        if self._reading.acquire(blocking=False):
            try:
                self._drain(STOP_GRACE)
                self.kill(members)
                self._drain(STOP_GRACE)
            finally:
                self._reading.release()
            return
        self._wait(STOP_GRACE)
        self.kill(members)
        self._wait(STOP_GRACE)

    def close(self, number: int = signal.SIGTERM) -> None:
        """Close all descriptors, and stop the program if it goes on.

        Args:
            number: the signal to begin with.
        """
        if not self._open:
            return
        if not self.exited:
            self.stop(number)
        with self._reading:
            self._give_up()

    def close_if_idle(self) -> None:
        """Give up all descriptors of a process that has ended, unless somebody is waiting in `turn` right now."""
        if self._reading.acquire(blocking=False):
            try:
                self._give_up()
            finally:
                self._reading.release()

    def _give_up(self) -> None:
        self.over = True
        if self._open:
            self._open = False
            self._poll.close()
            os.close(self._end)
            _close_pipes(self.process)

    def drain(self) -> None:
        """Take in output without waiting, and drop it."""
        with self._reading:
            if self._open and self._end in self._live:
                self._take_in(0, bounded=False)
            self._lines.clear()

    def _drain(self, grace: float) -> None:
        """Wait for the process's end and drop its output: with a full pipe it could not end."""
        until = time.monotonic() + grace
        while not self.exited and (left := until - time.monotonic()) > 0:
            if self._open and self._end in self._live:
                self._take_in(left, bounded=False)
                self._lines.clear()
            else:
                self._wait(left)

    def _wait(self, left: float) -> None:
        try:
            self.process.wait(left)
        except subprocess.TimeoutExpired:
            return

    def _take_in(self, wait: float | None, *, bounded: bool = True) -> None:
        ready = {descriptor for descriptor, _ in self._poll.poll(wait if wait is None else min(wait, _LONGEST_WAIT))}
        if self._err in ready:
            self._read_errors()
        if self._out in ready:
            self._read_output()
        if self._end in ready and self.process.poll() is not None:
            self._ended()
        elif bounded:
            self._check_limits()

    def _read_output(self) -> None:
        data = os.read(self._out, _CHUNK)
        if data:
            self.anything = True
            self._lines.extend(self._splitter.feed(data))
            return
        self._unwatch(self._out)
        self._lines.extend(self._splitter.finish())
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
            self._lines.extend(self._splitter.finish())
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
