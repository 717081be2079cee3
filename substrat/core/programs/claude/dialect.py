"""Brings the lines of `claude --output-format stream-json` to the one shape, that of cursor-agent. Pure.

A line is known by its form, and a line of cursor-agent stays as it is. The lines of versions 2.1.197 and 2.1.332 hold one
block of a message each: `assistant` with `text`, `thinking` or `tool_use`, `user` with `tool_result`. Examples, shortened:

- `{"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {…}}]}}` is
  the start of a `shell` call;
- `{"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content":
  "Exit code 3"}]}}` is its end: a failed command's status stands only in these words;
- `{"type": "system", "subtype": "api_retry", "attempt": 1, "error": "rate_limit"}` is a `retry:starting`;
- `{"type": "rate_limit_event", …}` and most `system` lines are a `system:notice`: an `unknown` line may tell of an act,
  which would keep the turn from being tried again.
"""

from __future__ import annotations

import re
from datetime import datetime

Object = dict[str, object]

_KINDS = {"Bash": "shell", "Write": "edit"}
"""The tools that the one shape names otherwise; `WebFetch` becomes `webFetch`, for example."""
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cacheReadTokens",
    "cache_creation_input_tokens": "cacheWriteTokens",
}
_SHARED = ("init", "task_notification")
"""The `system` lines that have the one shape already."""
_EXIT = re.compile(r"Exit code (\d{1,3})(?:\n|\Z)")
_REFUSED = re.compile(r"</?tool_use_error>")
_SYSTEM = re.compile(rb'\s*\{\s*"type"\s*:\s*"system"')


def normalise(body: Object) -> Object:
    """Return a line's object in the one shape.

    Args:
        body: the object as it came, of any program; it is not changed.

    Returns:
        The same object when it isn't a line of claude's, or has that shape already; else a new one.
    """
    match body.get("type"), body.get("subtype"):
        case "system", "api_retry":
            return {**body, "type": "retry", "subtype": "starting"}
        case "system", "thinking_tokens":
            return {**body, "type": "thinking", "subtype": "completed"}
        case "system", str(subtype) if "uuid" in body and subtype not in _SHARED:
            return _notice(body, subtype)
        case "rate_limit_event", _:
            limit = _object(body.get("rate_limit_info"))
            return _notice(body, f"usage limit: {limit.get('status')} ({limit.get('rateLimitType')})")
        case "assistant", _ if "parent_tool_use_id" in body:
            return _from_model(body)
        case "user", _ if "parent_tool_use_id" in body:
            return _to_model(body)
        case "result", _ if "input_tokens" in _object(body.get("usage")):
            return _from_end(body)
    return body


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that the line reports no act.

    Only `{"type":"system"` does: an `assistant` line may be a tool call, and a `user` line the end of one.

    Args:
        line: the line as far as it was written.
    """
    return _SYSTEM.match(line) is not None


def _from_model(body: Object) -> Object:
    message = _object(body.get("message"))
    blocks = _blocks(message.get("content"))
    if isinstance(problem := body.get("error"), str):
        # claude writes its own failures as if the model had said them; the result repeats the words.
        return {**_bare(body), "type": "error", "error": problem, "text": _text(blocks)}
    # A call comes first: should a line ever hold more than one block, an act must not be missed.
    if (call := _first(blocks, "tool_use")) is not None:
        kind, args = _call(str(call.get("name")), _object(call.get("input")))
        inner = {f"{kind}ToolCall": {"args": args}}
        return {**_started(body, "started", call.get("id")), "model_call_id": message.get("id"), "tool_call": inner}
    if (thought := _first(blocks, "thinking")) is not None:
        return {**_bare(body), "type": "thinking", "subtype": "delta", "text": thought.get("thinking")}
    return body


def _to_model(body: Object) -> Object:
    found = _first(_blocks(_object(body.get("message")).get("content")), "tool_result")
    if found is None:
        # The prompt isn't printed. These are notes to the model, such as "[Request interrupted by user]".
        return _notice(body, _text(_blocks(_object(body.get("message")).get("content"))))
    told = _object(body.get("tool_use_result"))
    content = found.get("content")
    text = content if isinstance(content, str) else _text(_blocks(content))
    result = _failed(text) if found.get("is_error") is True else {"success": _succeeded(text, told)}
    # An end names no tool: the kind stays empty, and its start's counts.
    return {**_started(body, "completed", found.get("tool_use_id")), "tool_call": {"ToolCall": {"result": result}}}


def _from_end(body: Object) -> Object:
    """Give a result the counts and the words of the one shape; one that was broken off by a signal is none."""
    usage, errors = _object(body.get("usage")), body.get("errors")
    words = "; ".join(error for error in errors if isinstance(error, str)) if isinstance(errors, list) else None
    found = {**body, "usage": {name: usage[own] for own, name in _COUNTS.items() if own in usage}}
    if words and not body.get("result"):
        found["result"] = words
    if body.get("is_error") is True and str(body.get("terminal_reason")).startswith("aborted_"):
        return {**found, "type": "error", "text": f"broken off ({body['terminal_reason']})"}
    return found


def _notice(body: Object, text: str) -> Object:
    return {**_bare(body), "type": "system", "subtype": "notice", "text": text.replace("_", " ")}


def _started(body: Object, subtype: str, call_id: object) -> Object:
    return {**_bare(body), "type": "tool_call", "subtype": subtype, "call_id": call_id, "timestamp_ms": _moment(body)}


def _bare(body: Object) -> Object:
    """Return a line without the members that hold its content, which the one shape has elsewhere."""
    return {key: value for key, value in body.items() if key not in {"message", "tool_use_result"}}


def _moment(body: Object) -> int | None:
    try:
        return round(datetime.fromisoformat(str(body.get("timestamp"))).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _call(name: str, given: Object) -> tuple[str, Object]:
    """Return the kind and the arguments of a call; `mcp__substrat__whoami` is a call of the server `substrat`."""
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return "mcp", {"toolName": tool, "providerIdentifier": server, "args": given}
    args = {"path" if key in {"file_path", "notebook_path"} else key: value for key, value in given.items()}
    return _KINDS.get(name, name[:1].lower() + name[1:]), args


def _failed(text: str) -> Object:
    if (exited := _EXIT.match(text)) is not None:
        return {"failure": {"exitCode": int(exited[1]), "stdout": text[exited.end() :]}}
    return {"error": {"error": _REFUSED.sub("", text)}}


def _succeeded(text: str, told: Object) -> Object:
    """Return a call's outcome from what the model is told and what claude tells its own interface about it."""
    if "stdout" in told:
        task = told.get("backgroundTaskId")
        background = {"isBackground": True, "shellId": task} if task is not None else {}
        return {"exitCode": 0, "stdout": told["stdout"], "stderr": told.get("stderr"), **background}
    if diff := "\n".join(_hunk(hunk) for hunk in _blocks(told.get("structuredPatch"))):
        return {"diffString": diff}
    return {"content": text, "message": text}


def _hunk(hunk: Object) -> str:
    lines = hunk.get("lines")
    old, new = (f"{hunk.get(f'{side}Start')},{hunk.get(f'{side}Lines')}" for side in ("old", "new"))
    return "\n".join([f"@@ -{old} +{new} @@", *(str(line) for line in (lines if isinstance(lines, list) else ()))])


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _blocks(value: object) -> list[Object]:
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []


def _first(blocks: list[Object], kind: str) -> Object | None:
    return next((block for block in blocks if block.get("type") == kind), None)


def _text(blocks: list[Object]) -> str:
    """Join the texts of blocks; one without a text, such as an image, is named by its type."""
    texts = (block.get("text") for block in blocks)
    return "\n".join(
        text if isinstance(text, str) else f"[{block.get('type')}]" for text, block in zip(texts, blocks, strict=True)
    )
