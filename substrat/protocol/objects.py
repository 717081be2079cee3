"""The protocol's objects as types, for checkers: those that `substrat.Client` returns, member by member.

`docs/protocol.md` has each member's meaning. Answers may have more members than these, in newer versions too.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

State = Literal["idle", "queued", "running", "suspended", "failed", "ended"]
Priority = Literal["high", "normal", "low"]
Outcome = Literal["success", "error", "interrupted", "timed_out", "lost"]


class TurnObject(TypedDict):
    """A turn object."""

    id: str
    number: int
    outcome: Outcome | None
    started_at: str
    ended_at: str | None
    exit_code: int | None
    result: str | None
    usage: dict[str, int] | None
    error: str | None


class AttentionObject(TypedDict):
    """The first thing that a person should know about an agent."""

    kind: str
    level: Literal["urgent", "action", "info"]
    text: str
    since: str


class ActivityObject(TypedDict):
    """The last thing an agent did or said that it is doing."""

    text: str
    since: str


class WorktreeObject(TypedDict):
    """An agent's private clone, as of its last keep."""

    branch: str
    base: str | None
    head: str | None
    ahead: int
    behind: int
    files: int
    landed: bool


class TokensObject(TypedDict):
    """The tokens of all turns of an agent."""

    input: int
    output: int


class _AgentBase(TypedDict):
    """The members of an agent object, but for its turn."""

    id: str
    name: str
    state: State
    session_id: str | None
    workspace: str
    model: str
    network: Literal["none", "filtered", "host"]
    parent: str | None
    created_at: str
    unread: int
    attention: AttentionObject
    reason: str | None
    family: str
    priority: Priority
    status: str | None
    activity: ActivityObject | None
    worktree: WorktreeObject | None
    waits: int
    last: str | None
    tokens: TokensObject


class AgentObject(_AgentBase):
    """An agent object."""

    turn: TurnObject | None


class AgentAfterTurnObject(_AgentBase):
    """An agent object with the turn that was waited for, as `Client.wait_message` returns it."""

    turn: TurnObject


class SpawnedAgentObject(AgentObject):
    """An agent object as `Client.spawn` returns it."""

    message: NotRequired[int]
    notes: NotRequired[list[str]]


class FindingObject(TypedDict):
    """Something in an agent's workspace that a person has to look at."""

    number: int
    path: str
    text: str
    since: str
    turn: str | None
    aside: str | None
    difference: str


class BindObject(TypedDict):
    """A place that an agent is shown besides its workspace."""

    path: str
    writable: bool


class SharedDirectoryObject(TypedDict):
    """A directory that an agent shares with another one."""

    agent: str
    path: str
    network: str


class UseObject(TypedDict):
    """Resources that a running turn's sandbox uses; null where they aren't counted."""

    memory: int | None
    cpu_seconds: float | None
    processes: int | None


class WholeAgentObject(AgentObject):
    """An agent object as `Client.show` returns it."""

    time_limit: float
    silence_limit: float
    unfinished: NotRequired[list[str]]
    findings: NotRequired[list[FindingObject]]
    binds: NotRequired[list[BindObject]]
    environment: NotRequired[list[str]]
    ssh_agent: NotRequired[str]
    without: NotRequired[list[str]]
    read_only: NotRequired[list[str]]
    shares: NotRequired[list[SharedDirectoryObject]]
    use: NotRequired[UseObject]


class FamilyUsageObject(TypedDict):
    """Tokens of the turns of an agent and of all its descendants."""

    agents: int
    turns: int
    usage: dict[str, int]


class UsageObject(TypedDict):
    """Tokens of an agent's turns."""

    turns: int
    usage: dict[str, int]
    family: FamilyUsageObject


class SessionObject(TypedDict):
    """A chat of a workspace."""

    session: str
    title: str
    model: str | None
    created_at: str | None
    updated_at: str
    size: int
    agent: str | None
    damage: str | None


class SessionMessageObject(TypedDict):
    """A message of a chat."""

    role: str
    text: str
    calls: list[str]


class EventObject(TypedDict):
    """An event object."""

    cursor: int
    agent: str
    turn: str | None
    time: str
    kind: str
    text: str | None
    raw: dict[str, object] | None
    data: dict[str, object] | None
    cause: int | None


InboxItemObject = TypedDict(
    "InboxItemObject",
    {
        "id": int, "from": str, "time": str, "text": str, "kind": Literal["question", "message", "merge"],
        "options": list[str],
        "default": str | None, "deadline": str | None,
    },
)  # fmt: skip
"""Something that an agent asked or wrote to the operator; one member's name is a keyword of Python's."""

MessageObject = TypedDict(
    "MessageObject",
    {
        "id": int, "from": str, "to": str, "intent": Literal["request", "inform", "reply"] | None,
        "state": Literal["accepted", "delivered", "answered", "refused", "dropped"], "time": str, "reply_to": int | None,
        "turn": int | None, "text": str,
    },
)  # fmt: skip
"""Something that was sent to an agent or by one."""


class WaitObject(TypedDict):
    """An open wait of an agent for others."""

    id: int
    agent: str
    names: list[str]
    mode: Literal["all", "any"]
    done: list[str]
    deadline: str | None
    note: str | None
    created_at: str


class QueuedObject(TypedDict):
    """An agent that waits for its turn."""

    position: int
    agent: str
    family: str
    priority: Priority
    since: str
    reason: str


class GateObject(TypedDict):
    """A login whose turns are held, because its account has used up what it may."""

    login: str
    since: str
    until: str
    failures: int
    trying: str | None
    reason: str


class StatusObject(TypedDict):
    """The daemon's state."""

    version: str
    pid: int
    state_dir: str
    runtime_dir: str
    agents: int
    running: int
    network: str
    waiting_for: str | None
    cgroups: list[str] | None
    damaged: int
    reserve: int | None
