"""A command on a terminal of its own, for what people see and type there."""

from __future__ import annotations

import codecs
import os
import pty
import struct
import termios
import time
from fcntl import ioctl
from typing import TYPE_CHECKING

from tests.support.daemon import PROGRAMS
from tests.support.waiting import PATIENCE, is_readable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon import DaemonFixture


class Screen:
    """A program on a terminal; `shown` is what it has written and nobody has waited for yet."""

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

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> None:
        """Wait for more of what it writes; OSError: it has ended."""
        assert is_readable(self.master, PATIENCE), self.shown
        self.shown += self._decoder.decode(os.read(self.master, 65536))

    def until(self, text: str) -> str:
        """Read until it has written a text, and return what stood before that."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.read()
        before, _, self.shown = self.shown.partition(text)
        return before

    def end(self) -> int:
        """Read to the end; returns the exit status."""
        while True:
            try:
                self.read()
            except OSError:  # EIO: nobody has the other end any more
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)
