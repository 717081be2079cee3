"""A command on a terminal of its own, for what people see and type there."""

from __future__ import annotations

import codecs
import os
import pty
import signal
import struct
import termios
import time
from fcntl import ioctl
from typing import TYPE_CHECKING, Self, TypeVar

from tests.support.daemon import PROGRAMS
from tests.support.waiting import PATIENCE, is_readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.daemon import DaemonFixture

T = TypeVar("T")


class Screen:
    """A program on a terminal, killed at the end of its block; `shown` is the text that no test has waited for yet."""

    def __init__(
        self, daemon: DaemonFixture, *arguments: str, program: Path | str = PROGRAMS / "substratctl",
        size: tuple[int, int] = (0, 0), term: str = "xterm",
    ) -> None:  # fmt: skip
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), TERM=term)
            os.execve(program, [str(program), *arguments], environment)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_open = True
        self._status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
        self.hang_up()

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> None:
        """Wait for more of what it writes; OSError: it has ended."""
        assert is_readable(self.master, PATIENCE), self.shown
        self.shown += self._decoder.decode(os.read(self.master, 65536))

    def until(self, text: str) -> str:
        """Read until it has written a text, and return the text before that."""
        self.read_until(lambda: text in self.shown)
        before, _, self.shown = self.shown.partition(text)
        return before

    def read_until(self, condition: Callable[[], T]) -> T:
        """Read until a condition of `shown` is true, and return its value; a failure tells `shown`."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < deadline, self.shown
            self.read()
        return value

    def end(self) -> int:
        """Read to the end, and return the exit status."""
        while True:
            try:
                self.read()
            except OSError:  # EIO: no process has the other end any more
                _, self._status = os.waitpid(self.pid, 0)  # first, for a closed terminal sends SIGHUP to the program
                return self.hang_up()

    def hang_up(self) -> int:
        """Close the terminal, wait for the program's end, and return its exit status."""
        if self._is_open:
            os.close(self.master)
            self._is_open = False
        if self._status is None:
            _, self._status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(self._status)
