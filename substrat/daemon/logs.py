"""structlog for the daemon: JSON lines under systemd, readable lines on a terminal, secrets never; it logs nothing."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

_SECRET_NAME = re.compile(r"key|token|secret|password|authorization|cookie", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(?i)\b(bearer\s+|key[_-]|sk-|crsr_)[A-Za-z0-9._~+/=-]{8,}")
HIDDEN = "[hidden]"


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace what looks like a secret, by its name or by its form (a structlog processor)."""
    for name, value in event.items():
        event[name] = HIDDEN if name != "event" and _SECRET_NAME.search(name) else _hidden(value)
    return event


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return _SECRET_TEXT.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if _SECRET_NAME.search(str(key)) else _hidden(item) for key, item in value.items()}
    return [_hidden(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def configure(level: str, form: str, *, under_systemd: bool) -> None:
    """Set logging up for the process.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `json`, `text`, or `auto`: readable on a terminal that isn't systemd's, else JSON.
        under_systemd: whether the service manager reads our lines.
    """
    readable = form == "text" or (form == "auto" and sys.stderr.isatty() and not under_systemd)
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if readable:
        # Formatted before secrets are hidden, because an exception's message may hold one.
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        processors += [structlog.processors.format_exc_info, hide_secrets, console]
    else:
        processors += [
            # Without the frames' variables: environments are among them.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            hide_secrets,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
