"""Finds the documented fields of an event in any dialect's spelling; the line's own object is never changed."""

from __future__ import annotations

from typing import Any

from substrat.core.programs.cursor import dialects, stream, tool_calls

Object = dict[str, object]

DOCUMENTED = frozenset({
    "tool_name", "tool_call_id", "parameters", "result", "duration_ms", "duration_api_ms", "error", "is_error", "workspace",
    "model", "text", "message", "session_id", "request_id", "timestamp_ms",
})  # fmt: skip
"""The fields that are looked for in other spellings; any other field is the line's own or absent."""

_TOOL_NAMES = {
    "ls": "LS",
    "updateTodos": "TodoWrite",
    "semSearch": "SemanticSearch",
    "readMcpResource": "FetchMcpResource",
}
_WHOLE_FILE = ("streamContent", "fileText", "contents", "content")


class EventData(dict[str, Any]):
    """A line's object.

    It holds the line's members alone. `get` and indexing also answer for documented fields that the line has under
    another name or in another place; `in`, iteration, comparison, copies and JSON know only the line's own.

    Args:
        body: the line's object.
        call: the tool call the line is about, when it is known better than from the line alone.
    """

    __slots__ = ("_call",)

    def __init__(self, body: dict[str, Any], call: tool_calls.Call | None = None) -> None:
        super().__init__(body)
        self._call = call

    def get(self, key: str, default: Any = None) -> Any:
        """Return the line's own field, else the documented field of that name, else the default."""
        if key in self:
            return dict.__getitem__(self, key)
        found = documented(self, key, self._call)
        return default if found is None else found

    def __missing__(self, key: str) -> Any:
        found = documented(self, key, self._call)
        if found is None:
            raise KeyError(key)
        return found


def documented(body: dict[str, Any], name: str, call: tool_calls.Call | None = None) -> object:
    """Find a documented field that the line doesn't have under its documented name.

    Args:
        body: the line's object.
        name: the field.
        call: the tool call the line is about, when it is known already.

    Returns:
        Its value, None when the line has nothing to say about it.
    """
    if name not in DOCUMENTED:
        return None
    shape = dialects.normalise(dict(body))
    if shape.get("type") == "tool_call":
        return _of_call(shape, name, call if call is not None else tool_calls.read(shape))
    if name in shape:
        return shape[name]
    if name == "workspace" and shape.get("type") == "system":
        return shape.get("cwd")
    kind = stream.kind_of(shape)
    if name == "error" and kind == "result:error":
        return error_words(shape)
    return stream.own_words(shape) if name == "text" and kind == "assistant:delta" else None


def error_words(shape: Object) -> str:
    """Return the sentence of a failed `result` event."""
    return stream.error_words(shape) or "the agent reported an error without a text"


def _joined(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "".join(texts) if texts else None


def _of_call(shape: Object, name: str, call: tool_calls.Call) -> object:
    completed = shape.get("subtype") == "completed"
    if name == "tool_name":
        return _tool_name(call)
    if name == "tool_call_id":
        return call.id or None
    if name == "parameters":
        return call.args
    if name == "result":
        return _outcome(call) if completed else None
    if name == "duration_ms":
        return call.took_ms if completed else None
    return shape.get(name)


def _tool_name(call: tool_calls.Call) -> str | None:
    """Say a tool's name as the document does: `Shell`, `Read`, `Write`, `StrReplace`, … and an MCP tool's own."""
    args = call.args or {}
    kind = call.kind
    if not kind:
        return None
    if kind == "mcp":
        own = args.get("name") or args.get("toolName")
        return own if isinstance(own, str) else "Mcp"
    if kind == "edit":
        return "Write" if any(key in args for key in _WHOLE_FILE) else "StrReplace"
    return _TOOL_NAMES.get(kind) or (kind if "_" in kind else kind[:1].upper() + kind[1:])


def _outcome(call: tool_calls.Call) -> Object:
    """Say a call's result as the document does: `success`, `output`, for commands `exit_code`, and `error`."""
    found: Object = {"success": call.succeeded}
    output = _output(call.outcome)
    if output is not None:
        found["output"] = output
    if call.exit_code is not None:
        found["exit_code"] = call.exit_code
    if not call.succeeded:
        found["error"] = tool_calls.verdict(call)
    return found


def _output(outcome: Object) -> str | None:
    streams = [outcome.get("interleavedOutput"), outcome.get("output")]
    for words in streams:
        if isinstance(words, str) and words:
            return words
    spoken = [words for words in (outcome.get("stdout"), outcome.get("stderr")) if isinstance(words, str)]
    if spoken:
        return "".join(spoken)
    content = outcome.get("content")
    if isinstance(content, list):
        inner = [block.get("text") for block in content if isinstance(block, dict)]
        return _joined([{"text": text.get("text") if isinstance(text, dict) else text} for text in inner])
    for words in (content, outcome.get("diffString"), *streams):
        if isinstance(words, str):
            return words
    return None
