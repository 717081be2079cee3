"""Sets structlog up for the daemon: JSON lines under systemd, readable lines on a terminal, secrets in neither.

The daemon never waits for its log: a line that can't be written at once is lost, and counted.
"""

from __future__ import annotations

import logging
import os
import re
import select
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from substrat.visible import visible

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

_SECRET_NAME = re.compile(r"key|token|secret|password|authorization|cookie", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(?i)\b(bearer\s+|key[_-]|sk-|crsr_)[A-Za-z0-9._~+/=-]{8,}")
HIDDEN = "[hidden]"
_STANDARD_ERROR = 2


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace values that look like secrets, by name or form, such as `sk-…` (a structlog processor)."""
    for name, value in event.items():
        event[name] = HIDDEN if name != "event" and _SECRET_NAME.search(name) else _hidden(value)
    return event


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return _SECRET_TEXT.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if _SECRET_NAME.search(str(key)) else _hidden(item) for key, item in value.items()}
    return [_hidden(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def escape_hidden(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape characters that could act on the terminal or pager that shows the log (a structlog processor)."""
    return {name: _visible(value) for name, value in event.items()}


def _visible(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


class Lines:
    """Writes lines to a descriptor that others may share; never waits and never fails, but loses lines when it would.

    Lines stay whole and in order: one of which only a part could be written is finished before the next.

    Args:
        descriptor: where to.
        told: makes the line that tells how many were lost.
    """

    def __init__(self, descriptor: int, told: Callable[[int], str]) -> None:
        self._descriptor = _opened_anew(descriptor)
        self._told = told
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._lost = 0
        self._rest = b""
        # Worker threads log too. No thread holds it for long, because nothing below waits.
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write a line, or count it as lost."""
        with self._lock:
            if self._lost and self._take(self._told(self._lost)):
                self._lost = 0
            if self._lost or not self._take(line):
                self._lost += 1

    # structlog calls one name for each level.
    debug = info = warning = error = critical = exception = msg = log = write

    def _take(self, line: str) -> bool:
        """Write a line or the beginning of it; says whether any of it was written."""
        if not self._finish():
            return False
        data = line.encode(errors="backslashreplace") + b"\n"
        self._rest = data
        self._finish()
        if len(self._rest) < len(data):
            return True
        self._rest = b""
        return False

    def _finish(self) -> bool:
        """Write the rest of a line as far as that takes no waiting; says whether all of it was written."""
        try:
            # A pipe, a socket or a terminal that takes anything takes a piece of this size at once (pipe(7)).
            while self._rest and self._poll.poll(0):
                self._rest = self._rest[os.write(self._descriptor, self._rest[: select.PIPE_BUF]) :]
        except OSError:
            return False  # the disk is full, or the reader has gone
        return not self._rest


def _opened_anew(descriptor: int) -> int:
    """Open a pipe or a terminal once more, so that it can be made not to wait without a change for those who share it.

    Where that isn't possible, and for files and sockets, which take a piece at once, it is the descriptor itself.
    """
    with suppress(OSError):
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return descriptor


def say(text: str) -> None:
    """Write a sentence to standard error, if that takes no waiting."""
    Lines(_STANDARD_ERROR, str).write(text)


def let_go() -> None:
    """Keep the interpreter from failing at its end for a buffer that can't be written (exit status 120)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            # The interpreter tries again to write the buffer: now to here.
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, stream.fileno())
            os.close(null)


def configure(level: str, form: str, *, under_systemd: bool) -> None:
    """Set logging up for the process.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `json`, `text`, or `auto`: readable on a terminal that isn't systemd's, else JSON.
        under_systemd: whether the service manager reads our lines.
    """
    descriptor = sys.stderr.fileno() if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    readable = form == "text" or (form == "auto" and is_terminal and not under_systemd)
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if readable:
        # Formatted before secrets are hidden, because an exception's message may hold one.
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=plain)
        processors += [structlog.processors.format_exc_info, hide_secrets, escape_hidden, console]
    else:
        processors += [
            # Without the frames' variables: environments are among them.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            hide_secrets,
            escape_hidden,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    lines = Lines(descriptor, partial(_lost, processors))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


def _lost(processors: list[Processor], count: int) -> str:
    """Return the line that tells of lost ones, in the log's form."""
    text = "1 line of the log was lost" if count == 1 else f"{count} lines of the log were lost"
    event: EventDict = {"event": text, "lines": count}
    for process in processors:
        event = process(None, "warning", event)  # type: ignore[assignment]  # the last one returns the line
    return str(event)
