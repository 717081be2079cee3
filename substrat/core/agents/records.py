"""Agents, turns, inbox items and findings as frozen values; `lifecycle` decides their changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from substrat.core.agents.environment import Variables  # noqa: TC001 - msgspec looks it up
from substrat.core.agents.stop_reason import is_pause
from substrat.core.agents.turn_check import RETRIES
from substrat.core.agents.usage import NO_TOKENS, Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.agents.lifecycle import Phase
    from substrat.core.agents.rights import Policy
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.agents.turn_check import TurnCheck
    from substrat.core.families.budget import Budget
    from substrat.core.workspaces.clones import Clone

OPERATOR = "operator"
"""The name under which agents know the person in charge; no agent may have it."""
SYSTEM = "substrat"
"""The sender of the daemon's own messages; no agent may have this name."""
BY_OPERATOR = "ctl"
"""Who does what comes from `substratctl`, as events' `data.by` says it; others are `web`, `ssh:HOST` and `agent:NAME`."""
GROUPS = ("children", "siblings", "family")
"""The words that address several agents at once; no agent may have such a name."""
RESERVED_NAMES = frozenset({OPERATOR, SYSTEM, "substratd", "system", "all", "me", "parent", *GROUPS})


class Restore(StrEnum):
    """The way an agent goes on after its turn was lost."""

    HOLD = "hold"
    """It waits for a person."""
    AUTO = "auto"
    """It goes on by itself, so many times."""


class Priority(StrEnum):
    """Which of the agents that wait begin first; the order of the members is theirs."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Outcome(StrEnum):
    """How a turn ended."""

    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Completion(StrEnum):
    """How an agent calls the work of its turn."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNFIT = "unfit"
    """It ended its turn with words that don't fit the schema that its result must have."""


@dataclass(frozen=True, slots=True)
class Session:
    """Cursor's chat.

    Args:
        id: its UUID, as `system/init` gave it.
        stored: whether its `store.db` was seen on disk after a turn that succeeded; from then on a missing one is an error.
    """

    id: str
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """A started sandbox, so that it can be found again: a pid alone could be somebody else's by now.

    Args:
        pid: bubblewrap's outer process.
        start_time: its start in clock ticks since boot (proc(5), field 22 of stat).
        boot_id: the boot it belongs to.
    """

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the agent program with one prompt.

    Args:
        id: its UUID.
        agent: its agent's id.
        number: 1 for the agent's first turn.
        started_at: seconds since the epoch.
        process: the started sandbox; None before it is and when it never was.
        offset: how much of its output is in the journal, in bytes.
        stop: why it is being stopped, if it is.
        reported: whether `system/init` was seen, so that the agent knows the prompt.
        contacted: whether a companion has introduced itself: cursor-agent goes on silently without one.
        begun_at: when its sandbox was started, on the steady clock (`daemon/kernel/clocks.py`).
        paused: how long it was frozen in all, in seconds, the present time not counted.
        frozen_at: since when it is frozen, on the steady clock, if it is.
        heard_at: when its silence began, with its last line or its thaw, on the steady clock.
        outcome: how it ended; None while it runs.
        ended_at: seconds since the epoch.
        exit_code: the program's, if it is known.
        result: the agent's last words.
        usage: the tokens it says it used.
        error: the failure, in one sentence.
        report: its words for those who gave it the task: the text after its last tool call, or what it gave to `complete`.
        completion: how the agent called its work in `complete`, if it did.
        unsettled: whether the work goes on in a later turn: it ended while a wait of its agent's wasn't told yet, or it is
            tried again.
        login: the login that it was started with (`account_gate`); None: a turn of an earlier version.
        refused: the host that its network refused last and that an allow-list could have, as `allow` takes it.
        model: the model that it was started with; None: a turn of an earlier version.
        replaced: the protected paths for which it was frozen or ended, because they were replaced on the host; None once a
            person has let it go on.
        session: the id of the session that it ended in; None while it runs, and where there was none.
        told_model: the id of the model that the program has named at its start; None: it has named none.
    """

    id: str
    agent: str
    number: int
    started_at: float
    process: Process | None = None
    offset: int = 0
    stop: StopReason | None = None
    reported: bool = False
    contacted: bool = False
    begun_at: float | None = None
    paused: float = 0.0
    frozen_at: float | None = None
    heard_at: float | None = None
    outcome: Outcome | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    result: str | None = None
    usage: Mapping[str, int] | None = None
    error: str | None = None
    report: str | None = None
    completion: Completion | None = None
    unsettled: bool = False
    login: str | None = None
    refused: str | None = None
    model: str | None = None
    replaced: tuple[str, ...] | None = None
    session: str | None = None
    told_model: str | None = None


def abridged(turn: Turn) -> Turn:
    """Return a turn without its result, its report and its usage: up to a megabyte that is needed only where it is shown.

    A turn that hasn't ended is returned as it is.
    """
    return turn if turn.outcome is None else replace(turn, result=None, report=None, usage=None)


def left_unfinished(turn: Turn, *, waiting: bool) -> bool:
    """Say whether an agent that goes on should go on with its last turn.

    A turn that was stopped by `suspend` or for a budget, or that failed, is to be continued; one that a person interrupted
    is not, and a failure that the agent saw itself is forgotten once something newer waits.

    Args:
        turn: the agent's last turn.
        waiting: whether anything newer waits in its inbox.
    """
    if turn.outcome in {None, Outcome.SUCCESS}:
        return False
    if turn.outcome is Outcome.INTERRUPTED:
        return is_pause(turn.stop)
    return is_pause(turn.stop) or not waiting or not turn.reported


class ItemKind(StrEnum):
    """The kinds of inbox items."""

    PROMPT = "prompt"
    """From the operator or from a parent at spawn: a turn of its own."""
    NOW = "now"
    """A prompt of the operator's for the running turn, where a hook hands it over; else a turn of its own."""
    CONTINUATION = "continuation"
    """The prompt of a resumed agent: a turn of its own, before everything else."""
    MESSAGE = "message"
    """From another agent, from the daemon or an answer of the operator's: all that wait go into one turn."""
    QUESTION = "question"
    """From an agent to the operator, who answers it."""
    MERGE = "merge"
    """From the daemon to the operator, about an agent's work that doesn't land by itself."""


class Intent(StrEnum):
    """What an agent's message is for."""

    REQUEST = "request"
    """It starts a turn of an agent of the same family; if the receiver doesn't reply in the turn that it comes with, that
    turn's result is the answer."""
    INFORM = "inform"
    """It starts no turn, and is delivered with the receiver's next one."""
    REPLY = "reply"
    """It answers a message, and starts a turn."""


class Closed(StrEnum):
    """How an inbox item ends without a turn that delivers it."""

    READ = "read"
    """`check_inbox` has handed it out."""
    SETTLED = "settled"
    """The operator has answered or dismissed it."""
    WAITED = "waited"
    """It tells the end of a turn, and a wait for that agent has taken it over."""
    DROPPED = "dropped"
    """It will never be delivered: its addressee has ended, or a person has taken it back. Of a question: who asked has."""
    REFUSED = "refused"
    """It was never accepted, because the addressee took no more; its text is cut short."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something an agent is to be told: a prompt or a message.

    Args:
        id: its number; items are delivered in this order, continuations first.
        agent: the addressee's id; None for the operator.
        kind: a prompt, a message, a question, or the continuation of a lost turn.
        sender: the sending agent's id, `operator` or `substrat`.
        sender_name: the sender's name at the time.
        text: its words.
        time: when it was accepted, in seconds since the epoch.
        cause: the cursor of the event that brought it, such as `message:received`.
        intent: what an agent's message is for; None for prompts, questions and messages of the daemon's and the operator's.
        reply_to: the number of the message that it answers.
        options: the answers that a question proposes.
        default_answer: the answer that a question gets when its time is over.
        deadline: when that is, in seconds since the epoch.
        starts_turn: whether its agent gets a turn for it; otherwise it comes with another item (`mail.starts_turn`).
    """

    id: int
    agent: str | None
    kind: ItemKind
    sender: str
    sender_name: str
    text: str
    time: float
    cause: int | None = None
    intent: Intent | None = None
    reply_to: int | None = None
    options: tuple[str, ...] | None = None
    default_answer: str | None = None
    deadline: float | None = None
    starts_turn: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in an agent's workspace that a person has to look at before the host's programs do.

    An example: the agent made a repository `vendor/x/.git`, whose configuration the host's `git status` may obey.

    Args:
        number: how a person names it.
        agent: the agent's id.
        turn: the turn in which it was found, None between turns.
        time: when it was found, in seconds since the epoch.
        path: the file, directory or setting.
        text: the problem, in one sentence.
        aside: where the daemon keeps a file that it has moved out of the workspace.
        difference: the paths that were changed, one a line, where there are several; an earlier daemon's is a unified diff.
        files: the files whose content a person accepts.
        digest: the fingerprint of their content when it was found; None where it can't be compared.
        was: hashes of the content of each file at the turn's start; empty where there was nothing.
    """

    number: int
    agent: str
    turn: str | None
    time: float
    path: str
    text: str
    aside: str | None = None
    difference: str = ""
    files: tuple[str, ...] = ()
    digest: str | None = None
    was: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The optional settings of an agent, which a spawn gives it and the row of its record has as one value.

    Args:
        restore: the way it goes on after its turn was lost.
        environment: variables of its own.
        ssh_agent: the socket of an ssh-agent that it may ask for signatures, if there is one.
        instructions: rules that its parent has given it, which it sees in each turn; empty for most.
        result_schema: the JSON schema that its result must fit, as JSON; None: any text will do.
        priority: which agents that wait it goes before.
        time_limit: the seconds that a turn of it may take; 0: no limit; None: as configured.
        silence_limit: the seconds that a turn of it may print nothing while no tool call is open; likewise.
        program: the agent program that it runs, by its name in `core/programs/table.py`.
        check: the command that says, instead of the agent, whether its work is done (`turn_check`); None: it has none.
        retries: how often it is sent back to mend what the check fails for.
    """

    restore: Restore = Restore.HOLD
    environment: Variables = field(default=(), repr=False)
    ssh_agent: str | None = None
    instructions: str = ""
    result_schema: str | None = None
    priority: Priority = Priority.NORMAL
    time_limit: float | None = None
    silence_limit: float | None = None
    program: str = "cursor"
    check: str | None = None
    retries: int = RETRIES

    def of_child(self, **own: Any) -> AgentSettings:
        """Return a child's settings: its parent's, without those that are the parent's alone, and the child's own.

        Args:
            own: fields that the child has a value of its own for, for example `priority`.
        """
        alone = {"ssh_agent": None, "instructions": "", "result_schema": None, "check": None, "retries": RETRIES}
        return replace(self, **{**alone, **own})


@dataclass(frozen=True, slots=True)
class Agent:
    """A named, durable thing that works.

    Args:
        id: its UUID.
        name: its name, which no other agent has.
        phase: where its lifecycle is.
        workspace: the directory it works in.
        model: the model that its turns run with.
        policy: what its sandbox lets it do.
        created_at: seconds since the epoch.
        parent: its parent's id, if an agent spawned it.
        session: its chat; None before its first turn.
        waiting: how many inbox items wait for it and start a turn.
        turn: its newest turn.
        status: its last report on its work.
        attempts: how often its last prompt was tried again.
        retry_at: when it is tried again, in seconds since the epoch, if it is.
        restored_at: when it last went on by itself after a loss, oldest first, in seconds since the epoch.
        since: when it came into its phase, in seconds since the epoch.
        accepted_turn: the failed turn that a person has accepted, by its id.
        findings: those that no person has accepted yet, oldest first.
        settings: its optional settings.
        clone: its private clone; None: it works in the user's checkout.
        address: the N of 127.0.77.N, where a person reaches its ports; None until one has asked for that.
        needs: the ids of agents that must succeed before its first turn.
        unmet: why it has failed without a turn, in one sentence: one that it needed has not succeeded.
        last: the beginning of its newest result.
        tokens: those of all its turns.
        told: why a person was told last that it needs one (`bell.cause`).
        together: whether it was suspended with all others, not by its name: `resume --all` lets those go on.
        directory: which directory its workspace was in its last turn (`workspaces.checking.lasting_id`); None before the
            first, for a directory of its own, and once a person has accepted another.
        shared: the id of its family's root at its spawn, which names the family's shared directory; None: spawned by a
            version without such directories (`Registry.shared_of`).
        checked: the check of its newest turn that had one, where it stands; None: no turn of it had one.
        budget: what it and its descendants may use, or have used of an ancestor's budget; None: nothing is counted.
    """

    id: str
    name: str
    phase: Phase
    workspace: str
    model: str
    policy: Policy
    created_at: float
    parent: str | None = None
    session: Session | None = None
    waiting: int = 0
    turn: Turn | None = field(default=None)
    status: str = ""
    attempts: int = 0
    retry_at: float | None = None
    restored_at: tuple[float, ...] = ()
    since: float = 0.0
    accepted_turn: str | None = None
    findings: tuple[Finding, ...] = ()
    settings: AgentSettings = AgentSettings()
    clone: Clone | None = None
    address: int | None = None
    needs: tuple[str, ...] = ()
    unmet: str | None = None
    last: str | None = None
    tokens: Tokens = NO_TOKENS
    told: str | None = None
    together: bool = False
    directory: str | None = None
    shared: str | None = None
    checked: TurnCheck | None = None
    budget: Budget | None = None

    @property
    def host_directory(self) -> str:
        """The directory of the host that it works in: its clone's, or its workspace itself."""
        return self.clone.tree if self.clone is not None else self.workspace

    @property
    def has_begun(self) -> bool:
        """Whether it has had a turn, or has something to do."""
        return self.turn is not None or self.waiting > 0


def by_agent(agent: Agent) -> str:
    """Return an agent as events' `data.by` names it, for example `agent:lead`."""
    return f"agent:{agent.name}"


def open_turn_id(agent: Agent) -> str | None:
    """Return the id of an agent's turn if it hasn't ended."""
    return agent.turn.id if agent.turn is not None and agent.turn.outcome is None else None
