"""The protocol's objects as types, for checkers: those that `substrat.Client` returns, member by member.

`docs/protocol.md` has each member's meaning. Answers may have more members than these, in newer versions too.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from substrat.protocol.clone_objects import CloneObject  # noqa: TC001 - typing looks it up

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
    item: NotRequired[int]
    frozen: NotRequired[Literal[True]]


class ActivityObject(TypedDict):
    """The last thing an agent did or said that it is doing."""

    text: str
    since: str


class TokensObject(TypedDict):
    """The tokens of all turns of an agent."""

    input: int
    output: int


class TurnCheckObject(TypedDict):
    """The command that says whether an agent's work is done, and how it stands."""

    command: str
    retries: int
    state: Literal["waiting", "running", "passed", "failed"]
    tries: int
    commit: str | None
    text: str
    turn: int | None


class BudgetObject(TypedDict):
    """The pool of an agent and its descendants."""

    limits: dict[str, float]
    used: dict[str, float]
    left: dict[str, float]
    state: Literal["ok", "warned", "out"]


class MemberBudgetObject(BudgetObject):
    """The budget of an agent, or its use of an ancestor's."""

    agent: str


class FamilyBudgetObject(MemberBudgetObject):
    """An agent's budget, and those of its descendants."""

    members: list[MemberBudgetObject]


class _AgentBase(TypedDict):
    """The members of an agent object, but for its turn."""

    id: str
    name: str
    state: State
    session_id: str | None
    workspace: str
    program: str
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
    clone: CloneObject | None
    check: TurnCheckObject | None
    budget: BudgetObject | None
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


class CompletedObject(TypedDict):
    """What an agent gave to its tool `complete`."""

    status: Literal["succeeded", "failed"]
    text: str


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
    completed: NotRequired[CompletedObject]


class FamilyUsageObject(TypedDict):
    """Tokens of the turns of an agent and of all its descendants."""

    agents: int
    turns: int
    usage: dict[str, int]
    usd: float | None
    unpriced: int


class UsageObject(TypedDict):
    """Tokens of an agent's turns, and their list price."""

    turns: int
    usage: dict[str, int]
    usd: float | None
    unpriced: int
    family: FamilyUsageObject


class AgentUsageObject(UsageObject):
    """Tokens of an agent's turns, with its id and its name."""

    agent: str
    name: str


class UsageSumObject(TypedDict):
    """Tokens of the turns of an agent, a day, a model or a repository."""

    key: str
    turns: int
    usage: dict[str, int]
    usd: float | None
    unpriced: int


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
    mode: Literal["all", "any", "task"]
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
    model: str
    blamed: str | None


class GateObject(TypedDict):
    """A gate that holds the turns of a login with `model`, or all its turns: the account has used up what it may."""

    login: str
    model: str | None
    since: str
    until: str
    failures: int
    trying: str | None
    reason: str
    blamed: str | None


class NetworkDecisionObject(TypedDict):
    """A connection that an agent's network let through or refused."""

    time: str
    allowed: bool
    text: str


class NetworkObject(TypedDict):
    """An agent's allow-list and its network's newest decisions."""

    network: Literal["none", "filtered", "host"]
    form: Literal["transparent", "proxy"] | None
    process: int | None
    allow: list[str]
    decisions: list[NetworkDecisionObject]


class ExplainedObject(TypedDict):
    """How an agent's next turn would be started."""

    command: str
    environment: dict[str, str]
    program: str
    missing: list[str]


class SandboxObject(TypedDict):
    """A running sandbox of an agent."""

    kind: Literal["turn", "exec"]
    pid: int
    start_time: int


class ForwardedObject(TypedDict):
    """The running sandboxes of an agent, and the address that its ports are forwarded to."""

    agent: str
    address: str
    sandboxes: list[SandboxObject]


class RemovedObject(TypedDict):
    """A removed agent, and what became of the tree of its clone."""

    agent: str
    tree: Literal["removed", "stays"] | None
    text: str | None


class CausingEventObject(TypedDict):
    """An event that led to another one."""

    cursor: int
    time: str
    agent: str
    kind: str
    text: str | None


class CauseObject(TypedDict):
    """The events that led to an agent's newest turn, newest first."""

    events: list[CausingEventObject]
    whole: bool


class CheckObject(TypedDict):
    """Whether agents can run under this daemon."""

    obstacle: str | None
    environment: dict[str, str]
    programs: list[str]


class StatusObject(TypedDict):
    """The daemon's state."""

    version: str
    pid: int
    state_dir: str
    runtime_dir: str
    agents: int
    running: int
    network: str
    filtered: Literal["transparent", "proxy"] | None
    waiting_for: str | None
    cgroups: list[str] | None
    damaged: int
    reserve: int | None


class AttentionCountObject(TypedDict):
    """How many agents have an attention of a kind."""

    kind: str
    level: Literal["urgent", "action", "info"]
    count: int


class BucketObject(TypedDict):
    """How many durations were up to a bound in seconds; null: all."""

    up_to: float | None
    count: int


class HistogramObject(TypedDict):
    """Durations in seconds."""

    buckets: list[BucketObject]
    sum: float
    count: int


class TokenCountObject(TypedDict):
    """The tokens of a type that turns with a model have used."""

    type: Literal["input", "output", "cache_read", "cache_write"]
    model: str
    count: int


class MetricsObject(TypedDict):
    """Numbers for monitoring."""

    version: str
    agents: dict[str, int]
    attention: list[AttentionCountObject]
    queued: int
    questions: int
    waits: int
    turns: dict[str, int]
    turn_seconds: HistogramObject
    queue_seconds: HistogramObject
    tokens: list[TokenCountObject]
    tool_calls: int
    messages: dict[str, int]
    network: dict[str, int]
    cursor: int
    state_bytes: int
