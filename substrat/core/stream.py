"""One line of cursor-agent's stream-json to one typed event; it pairs tool calls and keeps no other state.

Nothing a program prints can make this raise: a line that isn't JSON becomes kind `raw`, a shape nobody knows `unknown`.
The shapes are those of builds up to 2026.10; the field names are cursor-agent's own.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from substrat.core.ndjson import Line

Object = dict[str, object]

MAX_TEXT = 64 * 1024
"""The longest `text` of an event that has its own words (`raw` lines); the rest is in the turn's stdout file."""
_MAX_SUMMARY = 200
_MAX_OPEN_CALLS = 1000

_NAMED = {
    "interaction_query": ("request", "response"),
    "connection": ("reconnecting", "reconnected"),
    "retry": ("starting", "resuming"),
    "system": ("init", "task_notification", "background_shell_timeout"),
}
"""Types whose events have no meaning for the daemon, but a name."""


class Event(NamedTuple):
    """What one line says.

    Args:
        kind: one of the contract's kinds.
        text: its readable form, if it has one.
        body: the line's JSON object, None when it isn't one.
        verbatim: whether the line itself is valid JSON, so that it can be passed on as it is.
    """

    kind: str
    text: str | None
    body: Object | None
    verbatim: bool


class Result(NamedTuple):
    """What a `result` event says about its turn."""

    text: str
    is_error: bool
    usage: dict[str, int] | None


class ToolCalls:
    """Remembers the tool calls under way, so that a completed one can be told with its arguments and its time."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int | None]] = {}

    def started(self, call_id: str, summary: str, at_ms: int | None) -> None:
        """Note a call; the oldest is forgotten when a program opens calls without end."""
        if len(self._open) >= _MAX_OPEN_CALLS:
            self._open.pop(next(iter(self._open)))
        self._open[call_id] = (summary, at_ms)

    def completed(self, call_id: str) -> tuple[str | None, int | None]:
        """Return a call's summary and start, or None for each if nobody saw it start."""
        return self._open.pop(call_id, (None, None))


def decode(line: Line, calls: ToolCalls | None = None) -> Event:
    """Say what a line of output is.

    Args:
        line: the line.
        calls: the turn's open tool calls; without it a completed call is told from its own line alone.
    """
    body, verbatim = _parse(line)
    if line.cut and (head := _head(line.data)).get("type") == "result":
        # However long its text is, this is the end of the turn.
        return Event(_kind(head), _plain(line), head, verbatim=False)
    if body is None:
        return Event("raw", _plain(line), None, verbatim=False)
    kind = _kind(body)
    return Event(kind, _text(kind, body, calls if calls is not None else ToolCalls()), body, verbatim)


def as_json(body: Object) -> bytes:
    """Write an object that came in a line no strict reader takes as one that every reader takes."""
    return json.dumps(_tame(body), separators=(",", ":"), allow_nan=False).encode()


def session_of(event: Event) -> str | None:
    """Return the session's UUID that a `system:init` names, if it names one."""
    if event.kind != "system:init" or event.body is None:
        return None
    session = event.body.get("session_id")
    return session if isinstance(session, str) and session else None


def result_of(event: Event) -> Result | None:
    """Return what a `result:*` event says, or None for any other event."""
    if event.body is None or not event.kind.startswith("result:"):
        return None
    usage = event.body.get("usage")
    counts = {key: value for key, value in usage.items() if isinstance(value, int)} if isinstance(usage, dict) else None
    text = _first_string(event.body, "result", "error", "message") or event.text or ""
    return Result(text, event.kind == "result:error", counts)


_HEAD = re.compile(rb'\s*[{,]\s*"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|true|false|null|-?[0-9]+)(?=\s*[,}])')


def _head(data: bytes) -> Object:
    """Read the simple members at the beginning of an object that was cut off somewhere behind them."""
    head: Object = {}
    at = 0
    while found := _HEAD.match(data, at):
        value = _parse_leniently(b'{"v":' + found[2] + b"}")
        head[found[1].decode()] = value["v"] if value is not None else None
        at = found.end()
    return head


def _parse(line: Line) -> tuple[Object | None, bool]:
    if line.cut:
        return None, False
    try:
        body = msgspec.json.decode(line.data)
        return (body, True) if isinstance(body, dict) else (None, False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(line.data), False


def _parse_leniently(data: bytes) -> Object | None:
    """Read what the standard library still takes for JSON: NaN, lone surrogates, wrong UTF-8."""
    try:
        body = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _tame(value: object) -> object:
    """Replace what JSON can't say: NaN and infinities by null, lone surrogates by the replacement character."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_tame(key): _tame(item) for key, item in value.items()}
    return [_tame(item) for item in value] if isinstance(value, list) else value


def _kind(body: Object) -> str:
    raw_type, subtype = body.get("type"), body.get("subtype")
    match raw_type, subtype:
        case "user", _:
            return "user"
        case "thinking", ("delta" | "completed"):
            return f"thinking:{subtype}"
        case "assistant", _:
            # A mid-turn flush has both fields, the final one neither: both repeat a whole segment.
            return "assistant:delta" if "timestamp_ms" in body and "model_call_id" not in body else "assistant"
        case "tool_call", ("started" | "completed"):
            return f"tool-call-{subtype}"
        case "result", _:
            failed = subtype == "error" or body.get("is_error") is True
            return "result:error" if failed else "result:success"
    if isinstance(raw_type, str) and isinstance(subtype, str) and subtype in _NAMED.get(raw_type, ()):
        return f"{raw_type}:{subtype}"
    return "unknown"


def _text(kind: str, body: Object, calls: ToolCalls) -> str | None:
    if kind == "tool-call-started":
        summary = _call_summary(body) or "tool call"
        calls.started(_call_id(body), summary, _milliseconds(body))
        return summary
    if kind == "tool-call-completed":
        return _completed_text(body, calls)
    if kind == "system:init":
        return f"session {body.get('session_id')}, model {body.get('model')}"
    return _own_text(body)


def _own_text(body: Object) -> str | None:
    if (text := _first_string(body, "text", "result", "error")) is not None:
        return text
    message = body.get("message")
    if isinstance(message, str):
        return message
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    blocks = [block.get("text") for block in content if isinstance(block, dict)]
    return "".join(text for text in blocks if isinstance(text, str))


def _completed_text(body: Object, calls: ToolCalls) -> str:
    summary, started_ms = calls.completed(_call_id(body))
    summary = _call_summary(body) or summary or "tool call"
    ended_ms = _milliseconds(body)
    took = f" ({(ended_ms - started_ms) / 1000:.1f} s)" if ended_ms is not None and started_ms is not None else ""
    return f"{summary} → {_verdict(_arm(body))}{took}"


def _call_id(body: Object) -> str:
    return str(body.get("call_id", ""))


def _milliseconds(body: Object) -> int | None:
    value = body.get("timestamp_ms")
    return value if isinstance(value, int) else None


def _call(body: Object) -> tuple[str, Object]:
    """Find the tool's kind and its object: the one key that ends in `ToolCall`, among siblings that don't."""
    call = body.get("tool_call")
    if isinstance(call, dict):
        for key, value in call.items():
            if key.endswith("ToolCall") and isinstance(value, dict):
                return key.removesuffix("ToolCall"), value
    return "", {}


def _call_summary(body: Object) -> str | None:
    """Say a call in one line: the tool and what it is applied to; None when the line holds no arguments."""
    kind, call = _call(body)
    args = call.get("args")
    if not isinstance(args, dict):
        return None
    if kind == "mcp":
        name = _first_string(args, "toolName", "name") or "?"
        kind, subject = f"mcp {name}", json.dumps(args.get("args", {}), ensure_ascii=False)
    else:
        subject = _first_string(
            args, "command", "path", "globPattern", "pattern", "query", "url", "searchTerm", "toolName", "title",
            "description",
        ) or ""  # fmt: skip
    return _one_line(f"{kind}: {subject}" if subject else kind)


def _arm(body: Object) -> tuple[str, Object]:
    """Return which of the result's alternatives there is, and its object."""
    result = _call(body)[1].get("result")
    if isinstance(result, dict):
        for arm, value in result.items():
            return arm, value if isinstance(value, dict) else {}
    return "", {}


def _verdict(arm: tuple[str, Object]) -> str:
    name, value = arm
    if name == "success":
        if value.get("isError") is True:
            return "failed"
        code = value.get("exitCode")
        return f"exit {code}" if isinstance(code, int) else "done"
    if name == "failure" and isinstance(code := value.get("exitCode"), int):
        return f"exit {code}"
    reason = _first_string(value, "reason", "error", "errorMessage", "abortReason")
    words = {"": "done", "permissionDenied": "denied", "error": "failed", "failure": "failed"}.get(name, name)
    return _one_line(f"{words}: {reason}" if reason else words)


def _first_string(body: Object, *keys: str) -> str | None:
    for key in keys:
        value = body.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_SUMMARY else flat[: _MAX_SUMMARY - 1] + "…"


def _plain(line: Line) -> str:
    text = line.data[:MAX_TEXT].decode("utf-8", "replace")
    return f"{text}… [cut: {line.length} bytes]" if line.length > MAX_TEXT else text
