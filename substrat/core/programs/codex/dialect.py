"""Brings the lines of `codex exec --json` to the one shape, that of cursor-agent. Pure.

A line is known by its form, and a line of another program stays as it is. The forms are those of version 0.171.0:

- `{"type": "thread.started", "thread_id": "01a2…"}` is the `system:init`, also of a thread that is resumed, and so is the
  `turn.started` that follows, which names no thread;
- `{"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "Done."}}` is an `assistant`;
- `item.started` and `item.completed` with a `command_execution`, a `file_change` or an `mcp_tool_call` are the start and
  the end of a tool call; codex counts the ids anew in each turn;
- `{"type": "error", "message": "Reconnecting... 1/5 (…)"}` is a `connection:reconnecting`;
- `turn.completed` and `turn.failed` are the result. An item of the type `error` is a `system:notice`, or, where it warns
  of an option of ours, one more `system:init`.

A command that still runs when the turn ends has no end. Forms that aren't named here stay as they are: kind `unknown`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrat.core.programs import lenient

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, object]

_TRIES_AGAIN = "Reconnecting..."
_OWN_OPTION = "`--dangerously-bypass-hook-trust` is enabled"
"""codex warns twice in each turn of an option that is ours, which tells a reader nothing."""
_SHELL = re.compile(r"[\w/.-]*sh -l?c (?:'([^']*)'|([\w./=-]+))")
"""How codex words a command: `/bin/bash -lc 'make test'`, and without quotes if it needs none."""
_BACKTRACE = "\n\nStack backtrace:"
"""What follows has no names, only numbers."""
_SPEECH = re.compile(
    rb'\{"type":(?:"(?:thread\.started|turn\.started|error)"|'
    rb'"item\.completed","item":\{"id":"\w*","type":"(?:agent_message|reasoning|error)")'
)


def normalise(body: Object) -> Object:
    """Return a line's object in the one shape.

    Args:
        body: the object as it came, of any program; it is not changed.

    Returns:
        The same object when it isn't a line of codex's, or has a form that isn't known; else a new one.
    """
    match body.get("type"), body.get("item"):
        case "thread.started", _:
            return {"type": "system", "subtype": "init", "session_id": body.get("thread_id")}
        case "turn.started", _:
            return {"type": "system", "subtype": "init"}
        case "turn.completed", _:
            return {"type": "result", "subtype": "success", "usage": _usage(_object(body.get("usage")))}
        case "turn.failed", _:
            return {"type": "result", "subtype": "error", "error": body.get("error")}
        case "error", _ if str(body.get("message")).startswith(_TRIES_AGAIN):
            return {**body, "type": "connection", "subtype": "reconnecting"}
        case ("item.started" | "item.updated" | "item.completed") as stage, dict(item):
            return _item(str(stage).removeprefix("item."), item) or body
    return body


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that it is speech, without its end.

    `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Lo` is.

    Args:
        line: the line as far as it was written.
    """
    return _SPEECH.match(line) is not None


def _item(stage: str, item: Object) -> Object | None:
    match item.get("type"):
        case "agent_message":
            return {"type": "assistant", "message": {"content": [{"type": "text", "text": item.get("text")}]}}
        case "reasoning":
            # A thought comes whole, and the next one may follow at once.
            return {"type": "thinking", "subtype": "delta", "text": f"{item.get('text', '')}\n"}
        case "error" if str(item.get("message")).startswith(_OWN_OPTION):
            return {"type": "system", "subtype": "init"}
        case "error":
            return {"type": "system", "subtype": "notice", "message": item.get("message")}
        case "todo_list":
            # Each line has the whole list, and the last one comes at the end of the turn: no call is open meanwhile.
            stage = "completed"
    read = _CALLS.get(str(item.get("type")))
    if read is None:
        return None
    kind, args, result = read(item)
    call = {"args": args, "result": result} if stage == "completed" else {"args": args}
    return {"type": "tool_call", "subtype": stage, "call_id": item.get("id"), "tool_call": {f"{kind}ToolCall": call}}


def _shell(item: Object) -> tuple[str, Object, Object]:
    command, code = item.get("command"), item.get("exit_code")
    plain = _SHELL.fullmatch(command) if isinstance(command, str) else None
    args: Object = {"command": (plain[1] if plain[1] is not None else plain[2]) if plain is not None else command}
    arm = "success" if code == 0 else "rejected" if item.get("status") == "declined" else "failure"
    return "shell", args, {arm: {"exitCode": code, "interleavedOutput": item.get("aggregated_output")}}


def _mcp(item: Object) -> tuple[str, Object, Object]:
    args: Object = {
        "toolName": item.get("tool"), "providerIdentifier": item.get("server"), "args": _object(item.get("arguments")),
    }  # fmt: skip
    if isinstance(problem := _object(item.get("error")).get("message"), str):
        return "mcp", args, {"error": {"error": problem.partition(_BACKTRACE)[0]}}
    content = _object(item.get("result")).get("content")
    return "mcp", args, {"success": {"content": content, "isError": item.get("status") == "failed"}}


def _edit(item: Object) -> tuple[str, Object, Object]:
    changes = [change for change in _list(item.get("changes")) if isinstance(change, dict)]
    paths = ", ".join(str(change.get("path")) for change in changes)
    told = "\n".join(f"{change.get('kind')} {change.get('path')}" for change in changes)
    return "edit", {"path": paths}, {"success" if item.get("status") == "completed" else "error": {"message": told}}


def _todos(item: Object) -> tuple[str, Object, Object]:
    todos = [
        {"content": one.get("text"), "status": "completed" if one.get("completed") is True else "pending"}
        for one in _list(item.get("items"))
        if isinstance(one, dict)
    ]
    return "updateTodos", {"todos": todos}, {"success": {"todos": todos}}


_CALLS: dict[str, Callable[[Object], tuple[str, Object, Object]]] = {
    "command_execution": _shell,
    "mcp_tool_call": _mcp,
    "file_change": _edit,
    "todo_list": _todos,
}


def _usage(usage: Object) -> Object:
    """Return the counts of the whole thread so far, under cursor-agent's names.

    codex's input holds what the model's cache read and wrote; cursor-agent's doesn't.
    """
    counts = {name: max(0, lenient.whole(usage.get(own)) or 0) for own, name in _COUNTS.items()}
    uncached = counts["inputTokens"] - counts["cacheReadTokens"] - counts["cacheWriteTokens"]
    return {**counts, "inputTokens": max(0, uncached)}


_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cached_input_tokens": "cacheReadTokens",
    "cache_write_input_tokens": "cacheWriteTokens",
}


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
