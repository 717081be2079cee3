"""Arguments as people write them to a configuration and a request; tolerant in the spelling, strict about misspellings."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from substrat.cursor_api.command import RunRequest
from substrat.cursor_api.model import AgentConfig, OutputFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = frozenset(field.name for field in dataclasses.fields(AgentConfig))


def configuration(base: AgentConfig | None, fields: Mapping[str, Any]) -> AgentConfig:
    """Return a configuration with some fields replaced; the given one isn't changed.

    Args:
        base: the options that are replaced in; None: the defaults.
        fields: the fields to replace.

    Raises:
        TypeError: there is no such field.
    """
    if base is not None and not isinstance(base, AgentConfig):
        raise TypeError(f"the configuration must be an AgentConfig, not {type(base).__name__}")
    if unknown := sorted(set(fields) - FIELDS):
        raise TypeError(f"there is no option {unknown[0]!r}; AgentConfig has {', '.join(sorted(FIELDS))}")
    config = dataclasses.replace(base if base is not None else AgentConfig(), **fields)
    if config.workspace is not None:
        config.workspace = os.fspath(config.workspace)
    config.headers = _headers(config.headers)
    return config


def request(
    prompt: str,
    *,
    output_format: OutputFormat | str = OutputFormat.STREAM_JSON,
    session_id: str | None = None,
    resume: str | None = None,
    timeout: float | None = None,
    mode: str | None = None,
    stream_partial: bool = True,
) -> RunRequest:
    """Return a request; `resume` is another name of `session_id`.

    Raises:
        TypeError: the prompt is no text.
        ValueError: the format or the timeout can't be one, or two chats are named.
    """
    if not isinstance(prompt, str):
        raise TypeError(f"the prompt must be a text, not {type(prompt).__name__}")
    if session_id and resume and session_id != resume:
        raise ValueError(f"session_id and resume name two chats: {session_id!r} and {resume!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"the timeout must be a positive number of seconds, not {timeout!r}")
    return RunRequest(prompt, OutputFormat(output_format), session_id or resume or None, timeout, mode, stream_partial)


def _headers(given: object) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, dict):
        return [f"{name}: {value}" for name, value in given.items()]
    return list(given) if isinstance(given, list | tuple) else []
