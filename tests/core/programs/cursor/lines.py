"""cursor-agent's lines as its builds print them, and what the decoder makes of them."""

import json

from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Line, Splitter

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def line_of(data):
    return Line(0, len(data), data)


def decode(body):
    return stream.decode(line_of(body if isinstance(body, bytes) else json.dumps(body).encode()))


def said(*texts):
    return {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]}


def call(subtype, kind, *, at=None, call_id="tool_1", **inner):
    body = {"type": "tool_call", "subtype": subtype, "call_id": call_id, "session_id": SESSION}
    body["tool_call"] = {f"{kind}ToolCall": inner, "hookAdditionalContexts": [], "toolCallId": call_id, "startedAtMs": "17"}
    return body if at is None else {**body, "timestamp_ms": at}


KINDS = [
    ({"type": "system", "subtype": "init", "session_id": SESSION, "model": "Auto"}, "system:init"),
    ({"type": "system", "subtype": "task_notification", "task_id": "3", "status": "done"}, "system:task_notification"),
    ({"type": "system", "subtype": "background_shell_timeout"}, "system:background_shell_timeout"),
    ({"type": "system", "subtype": "weather"}, "unknown"),
    ({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}}, "user"),
    ({"type": "thinking", "subtype": "delta", "text": "hm", "timestamp_ms": 5}, "thinking:delta"),
    ({"type": "thinking", "subtype": "completed", "timestamp_ms": 5}, "thinking:completed"),
    ({"type": "assistant", "message": said("a"), "timestamp_ms": 5}, "assistant:delta"),
    ({"type": "assistant", "message": said("a"), "timestamp_ms": 5, "model_call_id": "m"}, "assistant"),
    ({"type": "assistant", "message": said("a")}, "assistant"),
    (call("started", "shell", args={"command": "ls"}), "tool-call-started"),
    (call("completed", "shell", args={"command": "ls"}, result={"success": {"exitCode": 0}}), "tool-call-completed"),
    (
        {"type": "interaction_query", "subtype": "request", "query_type": "webFetchRequestQuery"},
        "interaction_query:request",
    ),
    ({"type": "interaction_query", "subtype": "response"}, "interaction_query:response"),
    ({"type": "connection", "subtype": "reconnecting", "attempt": 1}, "connection:reconnecting"),
    ({"type": "connection", "subtype": "reconnected"}, "connection:reconnected"),
    ({"type": "retry", "subtype": "starting", "attempt": 1}, "retry:starting"),
    ({"type": "retry", "subtype": "resuming"}, "retry:resuming"),
    ({"type": "result", "subtype": "success", "is_error": False, "result": "done"}, "result:success"),
    ({"type": "result", "subtype": "success", "is_error": True, "result": "no"}, "result:error"),
    ({"type": "result", "subtype": "error", "result": "no"}, "result:error"),
    ({"type": "something", "subtype": "new"}, "unknown"),
    ({"type": "something"}, "unknown"),
    ({"hello": "world"}, "unknown"),
    ({}, "unknown"),
]


def follow(*bodies):
    """Decode a turn's lines in order, as a running turn does."""
    output = b"".join(json.dumps(body).encode() + b"\n" for body in bodies)
    pairing = Pairing()
    return [stream.decode(line, pairing).text for line in Splitter().feed(output)]
