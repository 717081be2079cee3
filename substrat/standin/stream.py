"""Writes a turn as cursor-agent does, in each of its output formats; it performs nothing and stores nothing.

Key order, missing fields and the three shapes of `assistant` are part of the contract: a delta has `timestamp_ms`, the
repetition of a segment before a tool call has `model_call_id` too, the last one before the result has neither.
"""

from __future__ import annotations

import json
import os
import re
import select
import time

from substrat.standin import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    Json = dict[str, object]

_WORDS = r"\s*\S+|\s+"


def now_ms() -> int:
    """The wall clock in milliseconds, as the stream shows times."""
    return time.time_ns() // 1_000_000


def encode(value: object) -> bytes:
    """One line of JSON as JavaScript writes it, without the newline."""
    # Lone surrogates cannot be sent as UTF-8; JavaScript escapes them, a replacement mark is close enough.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def write_all(fd: int, data: bytes) -> None:
    """Write everything, also to a pipe that is slow, or non-blocking because somebody else made it so."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut a text at spaces into pieces of about `size` characters; joined they are the text again."""
    piece = ""
    for word in re.findall(_WORDS, text):
        piece += word
        if len(piece) >= size:
            yield piece
            piece = ""
    if piece:
        yield piece


class ToolCall:
    """A tool call that was announced as started; `complete` writes its other half."""

    def __init__(self, stream: Stream, call_id: str, kind: str, args: Json, description: str | None) -> None:
        self.id: Final = call_id
        self.kind: Final = kind
        self.args: Final = args
        self._stream = stream
        self._description = description
        self._started = str(now_ms())
        self._model_call_id = stream.model_call_id

    def announce(self) -> None:
        """Write `tool_call/started`."""
        self._write("started", {"args": self.args}, {}, {})

    def complete(self, result: Json, *, with_args: bool = True, beside: Json | None = None) -> None:
        """Write `tool_call/completed`.

        Args:
            result: A one-of object such as `{"success": {…}}`.
            with_args: Rejected and denied calls come without their arguments.
            beside: Further fields beside `args` and `result`.
        """
        args: Json = {"args": self.args} if with_args else {}
        self._write("completed", args, {"result": result} | (beside or {}), {"completedAtMs": str(now_ms())})

    def _write(self, subtype: str, args: Json, outcome: Json, times: Json) -> None:
        # A call that comes back without its arguments comes without its description too.
        description: Json = {} if self._description is None or not args else {"description": self._description}
        body = args | outcome | description
        self._stream.event(
            "tool_call",
            subtype,
            {
                "call_id": self.id,
                "tool_call": {
                    f"{self.kind}ToolCall": body,
                    "hookAdditionalContexts": [],
                    "toolCallId": self.id,
                    "startedAtMs": self._started,
                }
                | times,
                "model_call_id": self._model_call_id,
            },
        )


class Stream:
    """One turn's output.

    Args:
        fd: Where it goes.
        output_format: `text`, `json` or `stream-json`; only the last shows anything before the end.
        partial: Whether assistant text also comes in deltas.
        session_id: The chat's id, which every line carries.
        two_part_ids: Whether tool call ids are of the form with a newline.
    """

    def __init__(self, fd: int, output_format: str, *, partial: bool, session_id: str, two_part_ids: bool) -> None:
        self.fd: Final = fd
        self.session_id: Final = session_id
        self.request_id: Final = ids.new_uuid()
        self._streaming: Final = output_format == "stream-json"
        self._format: Final = output_format
        self._partial: Final = partial
        self._two_part_ids: Final = two_part_ids
        self._began = time.monotonic()
        self._segment = ""
        self._segments: list[str] = []
        self._is_new_reply = True
        self._thinking: list[str] = []
        self._calls = 0
        self._model_calls = 0
        self.model_call_id = ids.new_model_call_id(self.request_id, 0)

    @property
    def text(self) -> str:
        """Everything said so far; segments follow each other without a separator, as in the real result."""
        return "".join(self._segments) + self._segment

    def line(self, fields: Json) -> None:
        """Write one object as a line; nothing in the formats that show only the end."""
        if self._streaming:
            self.raw(encode(fields) + b"\n")

    def raw(self, data: bytes) -> None:
        """Write any bytes as they are."""
        if self._streaming:
            write_all(self.fd, data)

    def event(self, kind: str, subtype: str | None, fields: Json) -> None:
        """Write an event that carries the session and the time at its end."""
        head: Json = {"type": kind} if subtype is None else {"type": kind, "subtype": subtype}
        self.line(head | fields | {"session_id": self.session_id, "timestamp_ms": now_ms()})

    def init(self, cwd: str, model: str) -> None:
        """Write the first line."""
        self.line(
            {
                "type": "system",
                "subtype": "init",
                "apiKeySource": "login",
                "cwd": cwd,
                "session_id": self.session_id,
                "model": model,
                "permissionMode": "default",
            }
        )

    def user(self, prompt: str) -> None:
        """Write the echo of the whole prompt."""
        self.line({"type": "user", "message": _message("user", prompt), "session_id": self.session_id})

    def think(self, text: str) -> None:
        """Write a block of thinking."""
        self._thinking.append(text)
        for piece in pieces(text, 20):
            self.event("thinking", "delta", {"text": piece})
        self.event("thinking", "completed", {})

    def speak(self, text: str) -> None:
        """Say a line; lines of one reply stand below each other, and replies in one segment are glued together."""
        text = f"\n{text}" if self._segment and not self._is_new_reply else text
        self._is_new_reply = False
        self._segment += text
        if self._partial:
            for piece in pieces(text, 12):
                self._delta(piece)

    def emit(self, text: str, count: int) -> None:
        """Write `count` deltas of the same text, also where deltas were not asked for."""
        for _ in range(count):
            self._delta(text)
        self._segment += text * count

    def next_call_id(self) -> str:
        """An id for the next tool call."""
        self._calls += 1
        return ids.new_call_id(self._calls - 1, with_newline=self._two_part_ids)

    def start_tool(self, call_id: str, kind: str, args: Json, description: str | None = None) -> ToolCall:
        """Flush the words said and announce a tool call."""
        self.flush()
        call = ToolCall(self, call_id, kind, args, description)
        call.announce()
        return call

    def next_model_call(self) -> None:
        """The model is called again, as after the results of its tools or the end of a command in the background."""
        self._model_calls += 1
        self._is_new_reply = True
        self.model_call_id = ids.new_model_call_id(self.request_id, self._model_calls)

    def flush(self) -> None:
        """Repeat the segment whole, as before a tool call; nothing when nothing was said."""
        if self._segment:
            fields: Json = {"type": "assistant", "message": _message("assistant", self._segment)}
            fields |= {"session_id": self.session_id, "model_call_id": self.model_call_id, "timestamp_ms": now_ms()}
            self.line(fields)
            self._segments.append(self._segment)
            self._segment = ""

    def final_flush(self) -> None:
        """Repeat the last segment, as before the result."""
        if self._segment:
            message = _message("assistant", self._segment)
            self.line({"type": "assistant", "message": message, "session_id": self.session_id})
            self._segments.append(self._segment)
            self._segment = ""

    def result(self, usage: Json, *, show_thinking: bool) -> None:
        """Write the end of the turn in the chosen format."""
        elapsed = int((time.monotonic() - self._began) * 1000)
        fields: Json = {"type": "result", "subtype": "success", "duration_ms": elapsed, "duration_api_ms": elapsed}
        fields |= {"is_error": False, "result": self.text, "session_id": self.session_id}
        fields |= {"request_id": self.request_id, "usage": usage}
        if self._format == "json" and show_thinking:
            fields["thinking_blocks"] = list(self._thinking)
        data = self.text.encode("utf-8", "replace") if self._format == "text" else encode(fields)
        write_all(self.fd, data + b"\n")

    def _delta(self, text: str) -> None:
        self.event("assistant", None, {"message": _message("assistant", text)})


def _message(role: str, text: str) -> Json:
    return {"role": role, "content": [{"type": "text", "text": text}]}
