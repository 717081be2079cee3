"""Decodes a line of cursor-agent's stream-json, in any dialect, to an event; its only state is open tool calls.

No line makes this raise: a line that isn't JSON becomes kind `raw`, an unknown shape `unknown`.
The shapes are those of builds up to 2026.10; the field names are cursor-agent's own.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from substrat.core.programs import lenient
from substrat.core.programs.claude import dialect as claude
from substrat.core.programs.codex import dialect as codex
from substrat.core.programs.cursor import dialects, tool_calls
from substrat.core.programs.cursor.tool_calls import Call, Pairing
from substrat.core.programs.ndjson import Line
from substrat.core.programs.program import LineEvent, TurnResult

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, object]

MAX_TEXT = 64 * 1024
"""The longest `text` of an event that has its own words (`raw` lines); the rest is in the turn's stdout file."""
_MAX_HEAD = 64 * 1024
"""Bytes of a line that is too long that are searched for its type: cursor-agent writes it first."""
MAX_VALUES = 250_000
"""How many values a line may hold to be read as JSON: some 30 ms of a processor's time, in Python's own reader 100. A
search result of 60,000 lines of code has as many. A line with more is treated like one that is too long."""
_MOST_COUNTS, _LONGEST_COUNT_NAME = 64, 64
"""How many counts of a `usage` are kept, and how long their names are: cursor-agent has some ten, such as `inputTokens`."""
_SPEECH = ("assistant", "thinking", "user", "system")
"""The types of lines that tell of no act; a `result` is the end of a turn and is judged as that."""

NAMED = {
    "interaction_query": ("request", "response"),
    "connection": ("reconnecting", "reconnected"),
    "retry": ("starting", "resuming"),
    "system": ("init", "task_notification", "background_shell_timeout", "notice"),
}
"""Types whose events have no meaning for the daemon, but a name."""
_MODEL_ID = re.compile(r"[a-z0-9][a-z0-9._:/@-]{0,199}")
"""`claude-opus-5-5`, and not `Auto` or `Composer 2.5 Fast`."""
_INIT = (("session", "session_id"), ("model", "model"))


def decode(line: Line, pairing: Pairing | None = None) -> LineEvent:
    """Decode a line of output.

    Args:
        line: the line.
        pairing: the turn's open tool calls; without it a completed call is told from its own line alone.
    """
    return decode_with_call(line, pairing)[0]


def decode_with_call(line: Line, pairing: Pairing | None = None) -> tuple[LineEvent, Call | None]:
    """Decode a line like `decode`, and return the tool call that it is about; an end is completed from its start."""
    is_readable = not line.cut and not lenient.has_more_values(line.data, MAX_VALUES)
    body, verbatim = _parse(line) if is_readable else (None, False)
    if not is_readable and (head := _head(line)).get("type") == "result":
        # However long its text is, this is the end of the turn.
        return LineEvent(kind_of(head), own_words(head), head, verbatim=False), None
    if body is None:
        return LineEvent("raw", _plain(line), None, verbatim=False), None
    return read(body, pairing, line.length, verbatim=verbatim)


def read(
    body: Object, pairing: Pairing | None = None, size: int = 0, *, verbatim: bool = False
) -> tuple[LineEvent, Call | None]:
    """Return the event of a line's object, and the tool call that it is about.

    Args:
        body: the object, in any dialect of cursor-agent's, claude's or codex's.
        pairing: the turn's open tool calls; without it a completed call is told from its own line alone.
        size: the line's length in bytes.
        verbatim: whether the line itself is valid JSON.
    """
    if (brought := codex.normalise(claude.normalise(body))) is not body:
        # Readers of events know one shape. The line as it came stays in the turn's output.
        body, verbatim = brought, False
    shape = dialects.normalise(body)
    kind = kind_of(shape)
    call = _call(kind, shape, pairing if pairing is not None else Pairing(), size)
    if call is None:
        return LineEvent(kind, _named_text(kind, shape) or own_words(shape), body, verbatim), None
    text = tool_calls.summary(call) if kind == "tool-call-started" else tool_calls.ended_line(call)
    return LineEvent(kind, text, body, verbatim), call


def decoder() -> Callable[[Line], LineEvent]:
    """Return a function that decodes one turn's lines in order, so that a call's end is told with its start."""
    return partial(decode, pairing=Pairing())


def session_of(event: LineEvent) -> str | None:
    """Return the session's UUID that a `system:init` names, if it names one."""
    if event.kind != "system:init" or event.body is None:
        return None
    session = dialects.normalise(event.body).get("session_id")
    return session if isinstance(session, str) and session else None


def model_of(event: LineEvent) -> str | None:
    """Return the id of the model that a `system:init` names; None: it names none, or by a name for people."""
    model = event.body.get("model") if event.kind == "system:init" and event.body is not None else None
    return model if isinstance(model, str) and _MODEL_ID.fullmatch(model) else None


def result_of(event: LineEvent) -> TurnResult | None:
    """Return the result that a `result:*` event holds, None for any other event."""
    if event.body is None or not event.kind.startswith("result:"):
        return None
    body = dialects.normalise(event.body)
    usage = body.get("usage")
    counts = _counts(usage) if isinstance(usage, dict) else None
    is_error = event.kind == "result:error"
    words = _first_string(body, "result") or (error_words(body) if is_error else event.text)
    return TurnResult(words or "", is_error, counts, lenient.whole(body.get("api_error_status")))


def error_words(body: Object) -> str:
    """Return the sentence of a failed result, which builds put in different places; empty when it has none.

    `{"error": {"message": "no"}}`, `{"error": "no"}` and `{"is_error": true, "result": "no"}` say `no`.

    Args:
        body: the line's object in the one shape (`dialects.normalise`).
    """
    for key in ("error", "result", "message"):
        found = body.get(key)
        words = _first_string(found, "message", "text") if isinstance(found, dict) else found
        if isinstance(words, str) and words:
            return words
    return own_words(body) or ""


def _counts(usage: Object) -> dict[str, int]:
    named = islice((item for item in usage.items() if len(item[0]) <= _LONGEST_COUNT_NAME), _MOST_COUNTS)
    counts = {key: lenient.whole(value) for key, value in named}
    return {key: count for key, count in counts.items() if count is not None and count >= 0}


_HEAD = re.compile(rb'\s*[{,]\s*"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*+"|true|false|null|-?[0-9][-+.0-9eE]*+)(?=\s*[,}])')
_LONG_TEXT = re.compile(rb'\s*,\s*"(\w+)"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+)')


def _head(line: Line) -> Object:
    """Read the simple members at the start of an object that was cut off, and the start of the long text after them."""
    data = line.data[:_MAX_HEAD]
    head: Object = {}
    at = 0
    while found := _HEAD.match(data, at):
        value = lenient.parse(b'{"v":' + found[2] + b"}")
        head[found[1].decode()] = value["v"] if value is not None else None
        at = found.end()
    if text := _LONG_TEXT.match(data, at):
        value = lenient.parse(b'{"v":"' + text[2] + b'"}')
        if value is not None:
            head[text[1].decode()] = f"{value['v']}… [cut: {line.length} bytes]"
    return head


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that the line is speech, without its end.

    `{"type":"assistant","message":{"role":"assist` is; a line that doesn't begin with a type that only speaks may be a tool
    call's.

    Args:
        line: the line as far as it was written.
    """
    return _head(Line(0, len(line), line, ended=False)).get("type") in _SPEECH


def _parse(line: Line) -> tuple[Object | None, bool]:
    try:
        body = msgspec.json.decode(line.data)
        return (body, True) if isinstance(body, dict) and not _too_deep(line.data, body) else (None, False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return lenient.parse(line.data), False


def _too_deep(data: bytes, body: Object) -> bool:
    """Say whether a line is nested too deeply; one with few brackets isn't, which is found out ten times as quickly."""
    return data.count(b"{") + data.count(b"[") > lenient.MAX_DEPTH and lenient.too_deep(body)


def kind_of(body: Object) -> str:
    """Return the contract's kind of a line's object, such as `result:error`.

    Args:
        body: the object in the one shape (`dialects.normalise`).
    """
    raw_type, subtype = body.get("type"), body.get("subtype")
    match raw_type, subtype:
        case (("user" | "error" | "raw" | "text"), _):
            return str(raw_type)
        case "thinking", ("delta" | "completed"):
            return f"thinking:{subtype}"
        case "assistant", _:
            # A mid-turn flush has both fields, the final one neither: both repeat a whole segment.
            piece = body.get("timestamp_ms") is not None and body.get("model_call_id") is None
            return "assistant:delta" if piece else "assistant"
        case "tool_call", ("started" | "completed"):
            return f"tool-call-{subtype}"
        case "result", _:
            failed = subtype == "error" or body.get("is_error") is True
            return "result:error" if failed else "result:success"
    if isinstance(raw_type, str) and isinstance(subtype, str) and subtype in NAMED.get(raw_type, ()):
        return f"{raw_type}:{subtype}"
    return "unknown"


def _call(kind: str, body: Object, pairing: Pairing, size: int) -> Call | None:
    """Read a line's tool call, pairing its start and its end; None for lines of other kinds."""
    if kind == "tool-call-started":
        call = tool_calls.read(body)
        pairing.start(call, size)
        return call
    return pairing.end(tool_calls.read(body)) if kind == "tool-call-completed" else None


def _named_text(kind: str, body: Object) -> str | None:
    """Return a sentence for an event that has no words of its own."""
    match kind:
        case "system:init":
            named = (f"{word} {value}" for word, key in _INIT if isinstance(value := body.get(key), str) and value)
            return ", ".join(named) or None
        case "raw":
            return _first_string(body, "data")
        case "interaction_query:request" | "interaction_query:response":
            asked, answered = body.get("query_type"), kind.endswith("response")
            return f"{asked} {'answered' if answered else 'asked'}{_answer(body) if answered else ''}"
        case "system:task_notification":
            return f"{body.get('title') or body.get('task_id')}: {body.get('status')}"
        case "connection:reconnecting" | "retry:starting" | "retry:resuming" if "message" not in body:
            attempt = body.get("attempt")
            return f"{kind.replace(':', ' ')}{f', attempt {attempt}' if attempt is not None else ''}"
        case "connection:reconnected" | "system:background_shell_timeout":
            return kind.partition(":")[2].replace("_", " ")
    return None


def _answer(body: Object) -> str:
    """Say which alternative an interaction's response holds; some builds put it under `result`."""
    response = body.get("response")
    for found in response.values() if isinstance(response, dict) else ():
        if isinstance(found, dict):
            inside = found.get("result")
            value = inside if isinstance(inside, dict) and inside else found
            arm = next(iter(value), "")
            inner = value.get(arm)
            reason = inner.get("reason") if isinstance(inner, dict) else None
            return f": {arm}" + (f", {reason}" if isinstance(reason, str) and reason else "")
    return ""


def own_words(body: Object) -> str | None:
    """Return the words that a line holds: a message's text, a result, an error's sentence; None when it has none.

    `{"type": "assistant", "message": {"content": [{"text": "hel"}, {"text": "lo"}]}}` says `hello`.

    Args:
        body: the line's object in the one shape (`dialects.normalise`).
    """
    if (text := _first_string(body, "text", "result", "error")) is not None:
        return text
    problem = body.get("error")
    if isinstance(problem, dict) and (text := _first_string(problem, "message", "text")) is not None:
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


def _first_string(body: Object, *keys: str) -> str | None:
    for key in keys:
        value = body.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _plain(line: Line) -> str:
    text = line.data[:MAX_TEXT].decode("utf-8", "replace")
    return f"{text}… [cut: {line.length} bytes]" if line.length > MAX_TEXT else text
