"""An agent's turn, told in each dialect of stream-json: what happens is the same, the lines differ."""

from __future__ import annotations

import json
from typing import NamedTuple

SESSION = "5c0d3a52-7a41-4f0e-8e0b-0f6b7c1d2e3f"
MODEL = "Composer 2.5 Fast"
TIME = 1_790_000_000_000

# The current kind of each tool of these turns, its name in the flat dialect, and the argument that tells its subject.
TOOLS = {
    "shell": ("Shell", "command"),
    "read": ("Read", "path"),
    "edit": ("StrReplace", "path"),
    "delete": ("Delete", "path"),
    "ls": ("LS", "path"),
    "glob": ("Glob", "globPattern"),
    "grep": ("Grep", "pattern"),
    "semSearch": ("SemanticSearch", "query"),
    "webFetch": ("WebFetch", "url"),
}


class Think(NamedTuple):
    """The model thinks."""

    text: str


class Say(NamedTuple):
    """The model speaks: a segment, in the pieces it is streamed in."""

    pieces: tuple[str, ...]

    @property
    def text(self):
        return "".join(self.pieces)


class Call(NamedTuple):
    """A tool call: what it is applied to and how it ends (`done`, a command's exit code, a refusal or a failure)."""

    id: str
    tool: str
    subject: str
    end: str = "done"
    reason: str = ""
    code: int = 0


class Start(NamedTuple):
    """A tool call starts."""

    call: Call


class End(NamedTuple):
    """A tool call ends; the line may leave its arguments out."""

    call: Call
    bare: bool = False


class Turn(NamedTuple):
    """A turn from its prompt to its result."""

    prompt: str
    steps: tuple[Think | Say | Start | End, ...]
    failure: str | None = None

    @property
    def text(self):
        """What the result says: all segments without anything between them."""
        return "".join(step.text for step in self.steps if isinstance(step, Say))


def message(role, text):
    return {"role": role, "content": [{"type": "text", "text": text}]}


def arguments(call):
    return {TOOLS[call.tool][1]: call.subject}


def bare_result(call):
    """A call's result as the older dialects write it: without naming its arm."""
    if call.end in {"rejected", "permissionDenied"}:
        return {call.end: {"reason": call.reason}}
    if call.end == "error":
        return {"success": False, "error": call.reason}
    if call.tool == "shell":
        return {"success": call.code == 0, "output": "some output\n", "exit_code": call.code}
    return {"success": True, "output": "some output\n"}


def arm_result(call):
    """A call's result as current builds write it: under its arm."""
    if call.end == "done" and call.tool == "shell":
        return {"failure" if call.code else "success": {"exitCode": call.code, "stdout": "some output\n", "stderr": ""}}
    return {call.end: {"reason": call.reason}} if call.end != "done" else {"success": {"content": "some output\n"}}


class Current:
    """Builds of 2026: the shape everything is brought to. With `partial` the pieces are told, too."""

    def __init__(self, partial=False):
        self.partial = partial

    def lines(self, turn):
        yield {"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": "/w", **self.tail(), "model": MODEL}
        yield {"type": "user", "message": message("user", turn.prompt), **self.tail()}
        for number, step in enumerate(turn.steps):
            yield from self.step(step, last=number == len(turn.steps) - 1)
        yield self.result(turn)

    def step(self, step, last):
        timed = {**self.tail(), "timestamp_ms": TIME}
        match step:
            case Think(text):
                yield {"type": "thinking", "subtype": "delta", "text": text, **timed}
                yield {"type": "thinking", "subtype": "completed", **timed}
            case Say(pieces):
                if self.partial:
                    yield from ({"type": "assistant", "message": message("assistant", piece), **timed} for piece in pieces)
                whole = {"type": "assistant", "message": message("assistant", step.text)}
                yield {**whole, **self.tail()} if last else {**whole, "model_call_id": "m-0-x", **timed}
            case Start(call):
                yield self.call("started", call, {"args": arguments(call)})
            case End(call, bare):
                args = {} if bare else {"args": arguments(call)}
                yield self.call("completed", call, {**args, "result": arm_result(call)})

    def call(self, subtype, call, inner):
        siblings = {"hookAdditionalContexts": [], "toolCallId": call.id, "startedAtMs": str(TIME)}
        body = {"type": "tool_call", "subtype": subtype, "call_id": call.id}
        body["tool_call"] = {f"{call.tool}ToolCall": inner, **siblings}
        return {**body, "model_call_id": "m-0-x", **self.tail(), "timestamp_ms": TIME}

    def result(self, turn):
        failed = turn.failure is not None
        body = {"type": "result", "subtype": "success", "duration_ms": 5, "is_error": failed}
        return {**body, "result": turn.failure if failed else turn.text, **self.tail(), "request_id": "q"}

    def tail(self):
        return {"session_id": SESSION}


class Documented(Current):
    """The published description: no times, every line of the assistant is a piece, thinking is left out."""

    def step(self, step, last):
        match step:
            case Think():
                return
            case Say(pieces):
                for piece in pieces:
                    yield {"type": "assistant", "message": message("assistant", piece), **self.tail()}
            case _:
                yield from super().step(step, last)

    def call(self, subtype, call, inner):
        body = {"type": "tool_call", "subtype": subtype, "call_id": call.id}
        return {**body, "tool_call": {f"{call.tool}ToolCall": inner}, **self.tail()}


class Function(Documented):
    """The published description's other form of a call: a function with its arguments as JSON text."""

    def call(self, subtype, call, inner):
        function = {"name": TOOLS[call.tool][0]}
        if "args" in inner:
            function["arguments"] = json.dumps(inner["args"])
        result = {"result": bare_result(call)} if subtype == "completed" else {}
        body = {"type": "tool_call", "subtype": subtype, "call_id": call.id}
        return {**body, "tool_call": {"function": function, **result}, **self.tail()}


class Flat(Current):
    """Calls as types of their own, pieces with their `text` at the top."""

    def lines(self, turn):
        yield {"type": "system", "subtype": "init", "session_id": SESSION, "model": MODEL, "workspace": "/w"}
        yield {"type": "user", "message": message("user", turn.prompt)}
        for step in turn.steps:
            yield from self.step(step, last=True)
        yield self.result(turn)

    def step(self, step, last):
        match step:
            case Think(text):
                yield {"type": "thinking", "subtype": "delta", "text": text, "timestamp_ms": TIME}
                yield {"type": "thinking", "subtype": "completed"}
            case Say(pieces):
                if self.partial:
                    yield from ({"type": "assistant", "text": piece, "timestamp_ms": TIME} for piece in pieces)
                yield {"type": "assistant", "message": message("assistant", step.text)}
            case Start(call):
                yield {**self.named("started", call), "parameters": arguments(call)}
            case End(call):
                yield {**self.named("completed", call), "result": bare_result(call), "duration_ms": 156}

    def named(self, subtype, call):
        return {"type": f"tool-call-{subtype}", "tool_name": TOOLS[call.tool][0], "tool_call_id": call.id}

    def result(self, turn):
        if turn.failure is None:
            return super().result(turn)
        return {"type": "result", "subtype": "error", "error": turn.failure, "session_id": SESSION, "is_error": True}


class Payload:
    """Everything but the type under `payload`; a call's end names nothing but its id, a result has no text."""

    def lines(self, turn):
        yield {"type": "system", "subtype": "init", "payload": {"session_id": SESSION, "model": MODEL}}
        yield {"type": "user", "payload": {"prompt": turn.prompt}}
        for step in turn.steps:
            yield from self.step(step)
        code = int(turn.failure is not None)
        ended = {"exitCode": code, "is_error": bool(code)}
        yield {"type": "result", "subtype": "error" if code else "success", "exitCode": code, "payload": ended}

    def step(self, step):
        match step:
            case Think(text):
                yield {"type": "thinking", "subtype": "delta", "payload": {"content": text}}
                yield {"type": "thinking", "subtype": "completed", "payload": {}}
            case Say():
                yield {"type": "assistant", "payload": {"message": {"content": [{"type": "text", "text": step.text}]}}}
            case Start(call):
                inner = {"name": call.tool, "args": arguments(call)}
                yield self.call("started", {"id": call.id, f"{call.tool}ToolCall": inner})
            case End(call):
                yield self.call("completed", {"id": call.id, "result": self.ended(call)})

    def ended(self, call):
        if call.end == "done" and call.tool == "shell":
            return {"exitCode": call.code, "stdout": "some output\n", "stderr": ""}
        return bare_result(call)

    def call(self, subtype, call):
        return {"type": "tool_call", "subtype": subtype, "payload": {"toolCall": call}}


DIALECTS: dict[str, Current | Payload] = {
    "current": Current(),
    "current, in pieces": Current(partial=True),
    "documented": Documented(),
    "function": Function(),
    "flat": Flat(),
    "flat, in pieces": Flat(partial=True),
    "payload": Payload(),
}
