"""The documented types: formats, event types, configuration, events, results."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from substrat.cursor_api import dialect

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_BINARY = "agent"


class OutputFormat(Enum):
    """The format of cursor-agent's output (`--output-format`)."""

    TEXT = "text"
    JSON = "json"
    STREAM_JSON = "stream-json"


class EventType(Enum):
    """The kind of an event; one without a name here is `UNKNOWN`, and its `data` holds the whole line."""

    SYSTEM_INIT = "system:init"
    USER = "user"
    THINKING_DELTA = "thinking:delta"
    THINKING_COMPLETED = "thinking:completed"
    ASSISTANT = "assistant"
    ASSISTANT_DELTA = "assistant:delta"
    TOOL_CALL_STARTED = "tool-call-started"
    TOOL_CALL_COMPLETED = "tool-call-completed"
    RESULT_SUCCESS = "result:success"
    RESULT_ERROR = "result:error"
    UNKNOWN = "unknown"


@dataclass
class AgentConfig:
    """How cursor-agent is run.

    Args:
        workspace: the directory it works in; the current one when None.
        model: the model's slug; cursor-agent's configuration names it when None.
        force_approve: run every tool call without asking (`--force`).
        approve_mcps: use the project's MCP servers without asking (`--approve-mcps`).
        api_key: the account's key. It is passed in the environment (`CURSOR_API_KEY`) and not as `--api-key`, because
            every user of the machine can read command lines.
        headers: HTTP headers, one `-H` each. They do stand on the command line.
        agent_binary: the program, a path or a name looked up on PATH. The default stands for the value of
            `SUBSTRAT_AGENT_BINARY`, else `agent`, else `cursor-agent`.
        sandboxed: run it in a sandbox of the Substrat daemon instead of as a child of this process. Tool calls and MCP
            servers are always approved there, since the sandbox bounds them.
    """

    workspace: str | None = None
    model: str | None = None
    force_approve: bool = False
    approve_mcps: bool = False
    api_key: str | None = field(default=None, repr=False)
    headers: list[str] = field(default_factory=list)
    agent_binary: str = DEFAULT_BINARY
    sandboxed: bool = False

    def workspace_path(self) -> str | None:
        """Return the workspace as an absolute path, not resolved, or None when the current directory is meant."""
        return os.path.abspath(os.path.expanduser(self.workspace)) if self.workspace is not None else None


@dataclass
class AgentEvent:
    """One line of cursor-agent's stream.

    Args:
        type: its kind.
        raw_type: the line's own `type`; `raw` when the line is no JSON object.
        subtype: the line's own `subtype`.
        data: the line's object, complete and as it came. Asked by `get` or by index for one of the documented fields
            that this build of cursor-agent spells differently (`tool_name`, `result` of a tool call, …) it answers with
            that field's value; its contents (`in`, iteration, `==`, JSON) are the line's alone.
        text: its words, if it has any.
        session_id: the chat it belongs to, if it says so.
        timestamp_ms: when it was written, if it says so.
    """

    type: EventType
    raw_type: str
    subtype: str | None
    data: dict[str, Any]
    text: str | None = None
    session_id: str | None = None
    timestamp_ms: int | None = None

    @property
    def tool_name(self) -> str | None:
        """A tool call's tool, in the documented spelling (`Shell`, `Read`, …)."""
        found = self._documented("tool_name")
        return found if isinstance(found, str) else None

    @property
    def tool_call_id(self) -> str | None:
        """The id that a tool call's start and end share."""
        found = self._documented("tool_call_id")
        return found if isinstance(found, str) else None

    @property
    def tool_parameters(self) -> dict[str, Any] | None:
        """A tool call's arguments."""
        found = self._documented("parameters")
        return found if isinstance(found, dict) else None

    @property
    def tool_result(self) -> Any:
        """A completed tool call's result; for current builds an object with `success`, `output` and more."""
        return self._documented("result") if self.type is EventType.TOOL_CALL_COMPLETED else None

    def _documented(self, name: str) -> Any:
        data = self.data if isinstance(self.data, dialect.EventData) else dialect.EventData(self.data)
        return data.get(name)


@dataclass
class AgentResult:
    """The outcome of a query.

    Args:
        success: whether it came to a successful result.
        result: the agent's answer; of a run that failed, its words until then.
        session_id: the chat, to be resumed; empty when it has no name yet.
        request_id: the request, if the agent told.
        duration_ms: how long it took, if the agent told.
        duration_api_ms: how long the service took, if the agent told.
        error: the failure in a sentence, None when there is none.
        events: everything the stream brought; empty for the formats that are no streams.
    """

    success: bool
    result: str
    session_id: str
    request_id: str | None = None
    duration_ms: int | None = None
    duration_api_ms: int | None = None
    error: str | None = None
    events: list[AgentEvent] = field(default_factory=list)


def collect_text(events: Iterable[AgentEvent], include_thinking: bool = False) -> str:
    """Return the assistant's words in a stream.

    The deltas count; without any the whole messages; without those the result.

    Args:
        events: a stream, or events kept from one.
        include_thinking: whether to put each piece of thinking in front, as `[thinking: …]`.
    """
    pieces: dict[EventType, list[str]] = {}
    mixed: list[str] = []
    for event in events:
        if not event.text:
            continue
        pieces.setdefault(event.type, []).append(event.text)
        if event.type is EventType.ASSISTANT_DELTA:
            mixed.append(event.text)
        elif event.type is EventType.THINKING_DELTA and include_thinking:
            mixed.append(f"[thinking: {event.text}]")
    if EventType.ASSISTANT_DELTA in pieces:
        return "".join(mixed)
    said = pieces.get(EventType.ASSISTANT) or pieces.get(EventType.RESULT_SUCCESS) or []
    return "".join([*mixed, *said])
