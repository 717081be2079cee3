"""Reads tool calls from lines, says each in one line of words, and pairs starts with their ends. Pure.

A call's kind is the key of `tool_call` that ends in `ToolCall`; its siblings (`toolCallId`, `startedAtMs`, …) don't. A
completed call may come without its arguments and without ever having started, calls interleave, and each kind has its
own arguments, so every member may be missing.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from substrat.core.programs.lenient import whole

Object = dict[str, object]

_MAX_SUMMARY = 200
"""Characters: a summary stands on one line of a log."""
_MAX_OPEN_CALLS = 1000
"""A turn was seen to have some ten open at once."""
_MAX_OPEN_BYTES = 4 * 1024 * 1024
"""Of the lines of open calls, whose arguments are held in memory: one long edit, or a thousand usual calls."""

# The argument that a call is applied to, by its kind: the first that is there.
_SUBJECTS: dict[str, tuple[str, ...]] = {
    "shell": ("command",),
    "read": ("path",),
    "edit": ("path",),
    "write": ("path",),
    "delete": ("path",),
    "ls": ("path",),
    "glob": ("globPattern", "pattern", "targetDirectory"),
    "grep": ("pattern",),
    "semSearch": ("query",),
    "readLints": ("paths", "path"),
    "webFetch": ("url",),
    "fetch": ("url",),
    "webSearch": ("searchTerm", "query"),
    "getMcpTools": ("toolName", "server"),
    "task": ("description", "prompt"),
    "await": ("taskId",),
    "askQuestion": ("title",),
    "createPlan": ("name", "title"),
    "switchMode": ("targetModeId", "targetMode", "mode"),
    "generateImage": ("description", "prompt"),
    "listMcpResources": ("server",),
    "readMcpResource": ("uri", "server"),
    "writeShellStdin": ("shellId",),
    "sendToAgent": ("agentId", "message"),
    "readAgentTranscript": ("agentId",),
}
_BACKGROUND = {
    "SHELL_BACKGROUND_REASON_USER_REQUEST": "runs in the background",
    "SHELL_BACKGROUND_REASON_TIMEOUT": "goes on in the background, its time is up",
}
_ANY_SUBJECT = ("command", "path", "pattern", "query", "url", "name", "title", "description", "toolName", "id")

_WORDS = {
    "success": "done",
    "error": "failed",
    "failure": "failed",
    "permissionDenied": "denied",
    "readPermissionDenied": "denied",
    "writePermissionDenied": "denied",
    "timeout": "timed out",
    "spawnError": "could not start",
    "fileNotFound": "no such file",
    "toolNotFound": "no such tool",
    "serverNotFound": "no such server",
    "": "done",
}


class Call(NamedTuple):
    """A tool call as one line reports it.

    Args:
        id: pairs its start with its end; it may hold a newline.
        group: calls of one model step share it (`model_call_id`).
        kind: the tool, such as `shell`.
        args: its arguments, None when the line has none.
        arm: which of its result's alternatives came, empty when none did.
        outcome: that alternative.
        at_ms: when the line was written, in milliseconds since the epoch.
        took_ms: how long the call took, when the line itself says so.
    """

    id: str
    group: str | None
    kind: str
    args: Object | None
    arm: str
    outcome: Object
    at_ms: int | None
    took_ms: int | None

    @property
    def is_background(self) -> bool:
        """Whether it is a command that went on when the call was over; `exitCode` is 0 then, which means nothing."""
        reason = self.outcome.get("backgroundReason")
        return self.kind == "shell" and (self.outcome.get("isBackground") is True or reason in _BACKGROUND)

    @property
    def exit_code(self) -> int | None:
        """A command's exit code; None while it runs."""
        return None if self.is_background else _exit_code(self.outcome)

    @property
    def succeeded(self) -> bool:
        """Whether the call succeeded; a command that exits with 1 didn't."""
        return self.arm in {"success", ""} and self.outcome.get("isError") is not True and self.exit_code in {None, 0}


def read(body: Object) -> Call:
    """Read a `tool_call` line in the shape of current builds (`dialects.normalise`)."""
    kind, inner = _kind(body)
    args = inner.get("args")
    arm, outcome = _arm(inner.get("result"))
    call_id = body.get("call_id")
    group = body.get("model_call_id")
    return Call(
        id=call_id if isinstance(call_id, str) else "",
        group=group if isinstance(group, str) else None,
        kind=kind,
        args=args if isinstance(args, dict) else None,
        arm=arm,
        outcome=outcome,
        at_ms=whole(body.get("timestamp_ms")),
        took_ms=_took(body, outcome),
    )


def summary(call: Call) -> str:
    """Say a call in one line: the tool, and its subject when the line has one: `shell: ls -l`."""
    if call.args is None:
        return call.kind or "tool call"
    if call.kind == "mcp":
        tool = _first(call.args, "toolName", "name") or "?"
        return _one_line(f"mcp {tool}: {json.dumps(call.args.get('args', {}), ensure_ascii=False, default=str)}")
    if call.kind == "updateTodos":
        todos = call.args.get("todos")
        if not isinstance(todos, list):
            return "updateTodos"
        return f"updateTodos: {len(todos)} {'item' if len(todos) == 1 else 'items'}"
    subject = _first(call.args, *_SUBJECTS.get(call.kind, ()), *_ANY_SUBJECT)
    return _one_line(f"{call.kind}: {subject}" if subject else call.kind or "tool call")


def verdict(call: Call) -> str:
    """Say how a call ended in a few words."""
    if call.is_background:
        words = _BACKGROUND.get(str(call.outcome.get("backgroundReason")), "runs in the background")
        shell = _first(call.outcome, "shellId")
        return f"{words} (shell {shell})" if shell else words
    if call.kind == "await" and call.arm == "success" and (awaited := _awaited(call.outcome)):
        return _one_line(awaited)
    if call.exit_code is not None and call.arm in {"success", "failure"}:
        aborted = " (aborted)" if call.outcome.get("aborted") is True else ""
        return f"exit {call.exit_code}{aborted}"
    if call.arm == "success" and call.outcome.get("isError") is True:
        return _with_reason("failed", _mcp_text(call.outcome))
    if call.arm == "success":
        return "done"
    reason = _first(call.outcome, "reason", "error", "errorMessage", "modelVisibleError", "message", "abortReason")
    return _with_reason(_WORDS.get(call.arm, call.arm), reason)


def status(call: Call) -> str:
    """Say in a word how a call ended: `done`, `failed`, `denied`, `rejected` or `timed out`."""
    if call.succeeded:
        return "done"
    if call.arm == "success":
        return "failed"
    words = _WORDS.get(call.arm, call.arm)
    return words if words in {"denied", "rejected", "timed out"} else "failed"


class Pairing:
    """Remembers open calls, so that an end is reported with its start's arguments."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Call, int]] = {}
        self._bytes = 0

    def start(self, call: Call, size: int = 0) -> None:
        """Note a call's start; the oldest are forgotten when a program opens calls without end.

        Args:
            call: the call.
            size: how long its line is, in bytes: an edit's arguments hold a whole file.
        """
        if not call.id:
            return  # nothing tells its end from another's
        self._forget(call.id)
        while self._open and (len(self._open) >= _MAX_OPEN_CALLS or self._bytes + size > _MAX_OPEN_BYTES):
            self._forget(next(iter(self._open)))
        self._open[call.id] = call, size
        self._bytes += size

    def _forget(self, call_id: str) -> Call | None:
        call, size = self._open.pop(call_id, (None, 0))
        self._bytes -= size
        return call

    def end(self, call: Call) -> Call:
        """Return a call's end, completed with its start's members and the time that it took."""
        started = self._forget(call.id)
        if started is None or (call.kind and started.kind and call.kind != started.kind):
            return call
        took = call.took_ms
        if took is None and call.at_ms is not None and started.at_ms is not None:
            took = call.at_ms - started.at_ms
        return call._replace(
            kind=call.kind or started.kind,
            group=call.group or started.group,
            args=call.args if call.args is not None else started.args,
            took_ms=took,
        )


def ended_line(call: Call) -> str:
    """Say a call and its end in one line: `shell: ls → exit 0 (0.2 s)`."""
    took = f" ({call.took_ms / 1000:.1f} s)" if call.took_ms is not None else ""
    return f"{summary(call)} → {verdict(call)}{took}"


def _exit_code(outcome: Object) -> int | None:
    code = outcome.get("exitCode")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _awaited(outcome: Object) -> str:
    """Say how the task ended that was waited for: its state, the one member of the outcome, and its exit code."""
    for state, told in outcome.items():
        if isinstance(told, dict):
            code, ran = _exit_code(told), whole(told.get("runtimeMs"))
            words = "done" if state == "complete" else _words_of(state)
            words = words if code is None else f"exit {code}"
            return words + (f" after {ran / 1000:.1f} s" if ran is not None else "")
    return ""


def _words_of(name: str) -> str:
    """Turn a name such as `stillRunning` into words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _kind(body: Object) -> tuple[str, Object]:
    call = body.get("tool_call")
    if isinstance(call, dict):
        for key, value in call.items():
            if isinstance(key, str) and key.endswith("ToolCall") and isinstance(value, dict):
                return key.removesuffix("ToolCall"), value
    return "", {}


def _arm(result: object) -> tuple[str, Object]:
    """Find a result's alternative; flags of the whole result may stand before it."""
    if not isinstance(result, dict):
        return "", {}
    arms = [arm for arm in result if arm in _WORDS] or [arm for arm, value in result.items() if isinstance(value, dict)]
    arm = next(iter(arms or result), "")
    value = result.get(arm)
    outcome = value if isinstance(value, dict) else {}
    # The flag of a command in the background stands beside the alternative.
    return str(arm), {**outcome, "isBackground": True} if result.get("isBackground") is True else outcome


def _took(body: Object, outcome: Object) -> int | None:
    """Find a duration in the line itself: the call's own times first, the result's claims after."""
    call = body.get("tool_call")
    if isinstance(call, dict):
        started, completed = whole(call.get("startedAtMs")), whole(call.get("completedAtMs"))
        if started is not None and completed is not None and completed >= started:
            return completed - started
    for value in (body.get("duration_ms"), outcome.get("durationMs"), outcome.get("executionTime")):
        if (found := whole(value)) is not None:
            return found
    return None


def _first(body: Object, *keys: str) -> str | None:
    for key in keys:
        value = body.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return ", ".join(str(item) for item in value)
    return None


def _mcp_text(outcome: Object) -> str | None:
    content = outcome.get("content")
    for block in content if isinstance(content, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, dict):
            text = text.get("text")
        if isinstance(text, str) and text:
            return text
    return None


def _with_reason(words: str, reason: str | None) -> str:
    return _one_line(f"{words}: {reason}" if reason else words)


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_SUMMARY else flat[: _MAX_SUMMARY - 1] + "…"
