"""Draws the list of agents anew each second, in the terminal's second screen, until a person ends it with Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from substrat import errors
from substrat.cli import agent_rows, output
from substrat.cli.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

    from substrat.cli.output import Agent

    Listing = Callable[[Connection], tuple[list[Agent], list[errors.NotFound]]]

_PERIOD_S = 1.0
"""Ages are shown in seconds, and a person who looks sees no change that comes later than that as late."""
# xterm's control sequences, as terminfo names them: smcup and civis, rmcup and cnorm, home, el, ed.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"


def run(listing: Listing) -> int:
    """Draw until Ctrl-C, which is the way to end it, and return the exit status.

    Args:
        listing: asks for the agents.

    Raises:
        UsageError: standard output is no terminal that can be drawn on.
        DaemonNotRunning: there is no daemon at the beginning. One that goes away later is waited for.
    """
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        raise errors.UsageError("ls: --watch draws on a terminal, and standard output is none: leave it out")
    with Connection() as connection:
        agents, unknown = listing(connection)
        if unknown:
            raise unknown[0]
        screen = _Screen()
        try:
            with screen:
                _watch(connection, listing, agents, screen)
        except KeyboardInterrupt:
            return errors.DONE


def _watch(connection: Connection, listing: Listing, agents: list[Agent], screen: _Screen) -> NoReturn:
    trouble = ""
    while True:
        screen.draw(agents, trouble)
        screen.wait(_PERIOD_S)
        try:
            if trouble:
                connection.reopen()
            agents, _ = listing(connection)
            trouble = ""
        except (errors.ConnectionLost, errors.DaemonNotRunning):
            trouble = "the daemon is gone; this is what was last known"


class _Screen:
    """The terminal's second screen, as a context; a stopped job gives it back and takes it again when it goes on."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> None:
        # A signal that comes while `wait` sleeps ends it, so that a new size is drawn at once.
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        signal.signal(signal.SIGTSTP, self._stop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        self._write(_ENTER)

    def __exit__(self, *_: object) -> None:
        self._write(_LEAVE)
        signal.set_wakeup_fd(-1)

    def draw(self, agents: list[Agent], trouble: str) -> None:
        """Draw the agents over what stood there.

        Args:
            agents: agent objects.
            trouble: a sentence for the last line; empty: the hour.
        """
        columns, lines = output.terminal_width(sys.stdout) or 80, output.terminal_height(sys.stdout) or 24
        rows = agent_rows.laid_out(agents, agent_rows.here(columns, lines - 1))[: lines - 1]
        last = trouble or f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"
        frame = [*rows, *[""] * (lines - 1 - len(rows)), output.shortened(last, columns)]
        self._write(_HOME + f"{_TO_LINE_END}\r\n".join(frame) + _TO_LINE_END + _TO_END)

    def wait(self, seconds: float) -> None:
        """Wait for a time, or for a signal."""
        if select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._write(_LEAVE)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._write(_ENTER)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
