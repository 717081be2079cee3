"""The dialects of stream-json brought to one shape; pure, and the line itself is never changed.

cursor-agent's output is described and was recorded in several forms. The one shape is that of current builds: `type` and
`subtype` at the top, `message.content[].text`, `tool_call.<kind>ToolCall.{args, result.<arm>}`, `call_id`. The others:

- *flat*: `tool-call-started` and `tool-call-completed` as types, with `tool_name`, `tool_call_id`, `parameters`, `result`;
- *payload*: everything but `type` and `subtype` under `payload`, the call under `toolCall` with its `id`, its result bare;
- *function*: a call as `tool_call.function {name, arguments}`, the arguments as JSON text.

Fields that are not named here stay where they are.
"""

from __future__ import annotations

from substrat.core.programs import lenient

Object = dict[str, object]

_FLAT_TOOLS = {
    "ls": "ls",
    "strreplace": "edit",
    "write": "edit",
    "writefile": "edit",
    "applypatch": "edit",
    "todowrite": "updateTodos",
    "semanticsearch": "semSearch",
    "webfetch": "webFetch",
    "websearch": "webSearch",
}
"""The flat dialect's tool names, in lower case, where they aren't the current kind's own name."""

_ARMS = frozenset({
    "success", "error", "rejected", "permissionDenied", "failure", "timeout", "spawnError", "fileNotFound",
    "readPermissionDenied", "writePermissionDenied", "toolNotFound", "serverNotFound",
})  # fmt: skip


def normalise(body: Object) -> Object:
    """Return a line's object in the shape of current builds.

    Args:
        body: the object as it came; it is not changed.

    Returns:
        The same object when it has that shape already, else a new one.
    """
    payload = body.get("payload")
    if isinstance(payload, dict):
        body = _from_payload(body, payload)
    if body.get("type") in ("tool-call-started", "tool-call-completed"):  # it may be a list
        return _from_flat(body)
    call = body.get("tool_call")
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        return {**body, "tool_call": {**call, **_from_function(call["function"], call.get("result"))}}
    return body


def _from_payload(body: Object, payload: Object) -> Object:
    """Lift a payload up. Members of the top win, so that a payload can't change an event's type."""
    lifted: Object = {**payload, **{key: value for key, value in body.items() if key != "payload"}}
    if lifted.get("type") == "thinking":
        lifted.setdefault("subtype", "delta")
        if isinstance(content := payload.get("content"), str):
            lifted.setdefault("text", content)
    if lifted.get("type") == "user" and isinstance(prompt := payload.get("prompt"), str):
        lifted.setdefault("text", prompt)
    call = payload.get("toolCall")
    if isinstance(call, dict):
        lifted["tool_call"] = _with_arms(call)
        lifted.setdefault("call_id", call.get("id"))
    return lifted


def _with_arms(call: Object) -> Object:
    """Give a payload's call the current form: arguments under `args`, the result under one of its arms."""
    kind = next((key for key in call if key.endswith("ToolCall")), None)
    inner = call.get(kind) if kind is not None else None
    found: Object = dict(inner) if isinstance(inner, dict) else {}
    if found and "args" not in found and "result" not in found:
        found = {"args": found}
    if "result" in call:
        found["result"] = _arm(call["result"])
    others = {key: value for key, value in call.items() if key != kind}
    # An end names no tool: the kind stays empty, and its start's counts.
    return {**others, "editToolCall" if kind == "writeFileToolCall" else kind or "ToolCall": found}


def _from_flat(body: Object) -> Object:
    call: Object = {}
    if "parameters" in body:
        call["args"] = body["parameters"]
    if "result" in body:
        call["result"] = _arm(body["result"])
    return {
        **body,
        "type": "tool_call",
        "subtype": str(body["type"]).removeprefix("tool-call-"),
        "call_id": body.get("tool_call_id"),
        "tool_call": {f"{_kind(body.get('tool_name'))}ToolCall": call},
    }


def _kind(name: object) -> str:
    """Return the current kind of a tool that has a name of its own; empty when it has none."""
    if not isinstance(name, str):
        return ""
    return _FLAT_TOOLS.get(name.lower().replace("_", ""), name[:1].lower() + name[1:])


def _from_function(function: Object, result: object) -> Object:
    call: Object = {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        parsed = lenient.parse(arguments)
        call["args"] = parsed if parsed is not None else {"arguments": arguments}
    elif isinstance(arguments, dict):
        call["args"] = arguments
    inner = result if result is not None else function.get("result")
    if inner is not None:
        call["result"] = _arm(inner)
    return {f"{_kind(function.get('name'))}ToolCall": call}


def _arm(result: object) -> Object:
    """Put a bare result under the arm it belongs to; one that names its arm stays as it is."""
    if not isinstance(result, dict):
        return {"success": {"content": result}}
    if any(key in _ARMS and isinstance(value, dict) for key, value in result.items()):
        return result
    code = result.get("exitCode", result.get("exit_code"))
    failed = result.get("success") is False or (isinstance(code, int) and code != 0) or bool(result.get("error"))
    inner = {**result, "exitCode": code} if code is not None else dict(result)
    return {"failure" if failed and code is not None else "error" if failed else "success": inner}
