"""The one place where the stand-in waits: file descriptors, children, signals and time, in one thread.

One thread and one poll keep the start quick and the reaction to a signal immediate. While the script sleeps or a shell
command runs, MCP servers are served by the same wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Reactor:
    """Waits for conditions while serving the registered descriptors.

    It owns a pipe that SIGCHLD writes to, so that the end of a child ends a wait at once.

    Args:
        check: Called before each wait; raises if the wait must not begin.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        wake_out, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(wake_out, select.POLLIN)
        self._readers[wake_out] = lambda: _drain(wake_out)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        # Without a handler of Python's own the wake-up pipe stays silent.
        signal.signal(signal.SIGCHLD, _ignore)

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever the descriptor has data or is at its end."""
        self._readers[fd] = on_readable
        self._update(fd)

    def watch_writable(self, fd: int, on_writable: Callable[[], None] | None) -> None:
        """Call `on_writable` whenever the descriptor takes data; None stops that."""
        if on_writable is None:
            self._writers.pop(fd, None)
        else:
            self._writers[fd] = on_writable
        self._update(fd)

    def forget(self, fd: int) -> None:
        """Stop watching; the caller closes the descriptor."""
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)
        self._update(fd)

    def watch_child(self, pid: int, on_end: Callable[[int], None]) -> None:
        """Reap the child when it ends and hand over its wait status."""
        self._children[pid] = on_end

    def run_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Serve until `done()` is true or the time is over; returns whether it was true."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._reap()
        while not done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._serve(left)
        return True

    def sleep(self, seconds: float) -> None:
        """Serve for that long."""
        self.run_until(lambda: False, seconds)

    def _serve(self, seconds: float | None) -> None:
        # poll() takes whole milliseconds, rounded up so that the last one is not spent spinning, and no more than fit
        # into an int; the caller's loop waits again.
        milliseconds = None if seconds is None else min(int(seconds * 1000) + 1, 1 << 30)
        self._check()
        for fd, events in self._poll.poll(milliseconds):
            if events & (select.POLLOUT | select.POLLERR) and fd in self._writers:
                self._writers[fd]()
            if events & ~select.POLLOUT and fd in self._readers:
                self._readers[fd]()
        self._reap()

    def _reap(self) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._children.pop(pid)(status)

    def _update(self, fd: int) -> None:
        events = (select.POLLIN if fd in self._readers else 0) | (select.POLLOUT if fd in self._writers else 0)
        if events:
            self._poll.register(fd, events)
        else:
            with contextlib.suppress(KeyError):  # it was not registered: nothing to undo
                self._poll.unregister(fd)


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; the wake-up pipe does the work."""
