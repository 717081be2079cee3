"""The rows of the state: each table's columns, written down once, with the check that each value passes.

A table is given its columns and the constructor of a record that takes their values in the same order, for example:

    GATES = Table("gates", Gate, columns={"login": WORDS, "blamed": IDENTIFIER, …})

`Table` makes the lists of columns for SELECT and INSERT, the decoding and the encoding from it. `store` reads rows with the
same functions with which `quarantine` tries at each start whether a row can be read, `database` refuses a file that lacks
one of these tables or columns, and the schema is compared with them by a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import (
    Agent,
    Closed,
    Completion,
    Finding,
    Intent,
    ItemKind,
    Outcome,
    Process,
    Session,
    Turn,
)
from substrat.core.agents.reminding import Reminder
from substrat.core.agents.rights import Policy
from substrat.core.agents.usage import Tokens
from substrat.core.families.account_gate import Gate
from substrat.core.families.runs import Run, RunOutcome
from substrat.core.families.tasks import Status, Task, TaskState
from substrat.core.families.waits import Wait, WaitMode
from substrat.core.workspaces.clone_life import as_read
from substrat.core.workspaces.clones import Clone, Kept, OnlyHere, Stage
from substrat.core.workspaces.landing import Landing, LandingMode
from substrat.core.workspaces.left_refs import LeftRefs
from substrat.daemon.state.columns import (
    ADDRESS,
    ALLOW,
    AMOUNT,
    ANSWER,
    BINDS,
    BITS_32,
    BITS_63,
    BUDGET,
    CHECKED,
    COMMIT,
    COUNT,
    DATA,
    EXIT_CODE,
    FLAG,
    IDENTIFIER,
    IDS,
    MOMENT,
    MOMENTS,
    NAME,
    NAMES,
    NUMBER,
    NUMBERS,
    PAST_LANDINGS,
    PATH,
    PERIOD,
    PID,
    PLAN,
    PROSE,
    RETURNED,
    SETTINGS,
    STOP_REASON,
    TALLY,
    USAGE,
    WORDS,
    Column,
    member_of,
    or_null,
)
from substrat.daemon.state.tables import RowDamaged, Table

if TYPE_CHECKING:
    from collections.abc import Sequence


_AGENT: dict[str, Column] = {
    "id": IDENTIFIER, "name": NAME, "phase": member_of(Phase), "workspace": PATH, "model": WORDS,
    "network": member_of(Network), "parent": or_null(IDENTIFIER), "created_at": MOMENT, "session_id": or_null(IDENTIFIER),
    "session_stored": FLAG, "status": PROSE, "attempts": COUNT, "retry_at": or_null(MOMENT), "restored_at": MOMENTS,
    "allow": ALLOW, "binds": BINDS, "since": MOMENT, "accepted_turn": or_null(IDENTIFIER), "address": or_null(ADDRESS),
    "needs": NAMES, "unmet": or_null(PROSE), "last": or_null(PROSE), "input_tokens": BITS_63, "output_tokens": BITS_63,
    "told": or_null(WORDS), "together": FLAG, "directory": or_null(IDENTIFIER), "shared": or_null(IDENTIFIER),
    "settings": SETTINGS, "checked": or_null(CHECKED), "budget": or_null(BUDGET),
}  # fmt: skip
"""An agent; its turn has a row of its own."""


def _agent(*values: Any) -> Agent:
    row = dict(zip(_AGENT, values, strict=True))
    session, stored = row.pop("session_id"), row.pop("session_stored")
    if session is None and stored:
        raise ValueError("session_id is gone")
    return Agent(
        session=Session(session, stored) if session is not None else None,
        policy=Policy(row.pop("network"), row.pop("allow"), row.pop("binds")),
        tokens=Tokens(row.pop("input_tokens"), row.pop("output_tokens")), **row,
    )  # fmt: skip


_TURN: dict[str, Column] = {
    "id": IDENTIFIER, "agent": IDENTIFIER, "number": NUMBER, "started_at": MOMENT, "pid": or_null(PID),
    "start_time": or_null(BITS_63), "boot_id": or_null(WORDS), "offset": COUNT, "stop": or_null(STOP_REASON),
    "reported": FLAG, "outcome": or_null(member_of(Outcome)), "ended_at": or_null(MOMENT),
    "exit_code": or_null(EXIT_CODE), "result": or_null(PROSE), "usage": or_null(USAGE), "error": or_null(PROSE),
    "contacted": FLAG, "paused": MOMENT, "frozen_at": or_null(MOMENT), "heard_at": or_null(MOMENT), "unsettled": FLAG,
    "report": or_null(PROSE), "completion": or_null(member_of(Completion)), "login": or_null(WORDS),
    "refused": or_null(WORDS), "begun_at": or_null(MOMENT), "model": or_null(WORDS),
    "replaced": or_null(NAMES), "session": or_null(IDENTIFIER), "told_model": or_null(WORDS),
}  # fmt: skip


def _turn(*values: Any) -> Turn:
    row = dict(zip(_TURN, values, strict=True))
    pid, start_time, boot_id = row.pop("pid"), row.pop("start_time"), row.pop("boot_id")
    if not (pid is None) == (start_time is None) == (boot_id is None):
        raise ValueError("pid doesn't go with start_time and boot_id")
    return Turn(process=Process(pid, start_time, boot_id) if pid is not None else None, **row)


class ItemRow(NamedTuple):
    """An inbox item.

    `turn` delivers it, or `closed` says how it ended without one; `about` is the turn it reports, and `cause` the cursor of
    the event that brought it. `options`, `default_answer` and `deadline` are a question's. `awaited` is true for another
    agent's request until that agent has an answer, or is told that there will be none. `starts_turn` is as in `Item`.
    """

    id: int
    agent: str | None
    kind: ItemKind
    sender: str
    sender_name: str
    text: str
    time: float
    turn: str | None
    about: str | None
    closed: Closed | None
    cause: int | None
    intent: Intent | None = None
    reply_to: int | None = None
    options: tuple[str, ...] | None = None
    default_answer: str | None = None
    deadline: float | None = None
    awaited: bool = False
    starts_turn: bool = True


class EventRow(NamedTuple):
    """An event as it is stored: where the agent's line is, or the daemon's own text, data and the event that led to it."""

    cursor: int
    agent: str
    turn: str | None
    time: float
    kind: str
    text: str | None
    offset: int | None
    length: int | None
    checksum: int | None
    data: str | None = None
    cause: int | None = None


_CLONE: dict[str, Column] = {
    "id": IDENTIFIER, "name": NAME, "tree": PATH, "repository": PATH, "git_dir": PATH, "workspace": PATH, "branch": WORDS,
    "target": or_null(WORDS), "base": or_null(COMMIT), "stage": member_of(Stage), "error": or_null(PROSE),
    "with_wip": FLAG, "source": or_null(IDENTIFIER), "former_name": or_null(NAME), "turn": COUNT, "time": MOMENT,
    "head": or_null(COMMIT), "wip": or_null(COMMIT), "ahead": COUNT, "behind": COUNT, "files": COUNT, "landed": FLAG,
    "nested": COUNT, "submodules": COUNT, "lfs": COUNT, "ignored": COUNT, "unreadable": COUNT, "loose": FLAG,
    "unkept": or_null(PROSE), "restoring": or_null(COUNT), "notice": or_null(PROSE), "notice_turn": or_null(COUNT),
    "asides": or_null(COMMIT), "branches": TALLY, "stashes": COUNT, "hidden": COUNT, "is_strange": FLAG,
    "held_by": or_null(IDENTIFIER), "held_head": or_null(COMMIT), "landings": PAST_LANDINGS, "size": or_null(COUNT),
}  # fmt: skip
"""A clone: `id` is its agent's, which may have been removed; the columns from `turn` on are its last keep."""


def _clone(*values: Any) -> Clone:
    row = dict(zip(_CLONE, values, strict=True))
    only_here = OnlyHere(**{name: row.pop(name) for name in OnlyHere.__slots__})
    kept = Kept(only_here=only_here, **{name: row.pop(name) for name in Kept.__slots__ if name != "only_here"})
    return as_read(Clone(agent=row.pop("id"), kept=kept, **row))


def _item(*values: Any) -> ItemRow:
    row = ItemRow(*values)
    if row.turn is not None and row.closed is not None:
        raise ValueError("turn doesn't go with closed")
    is_operators = row.kind in {ItemKind.QUESTION, ItemKind.MERGE}
    if row.kind is not ItemKind.MESSAGE and is_operators == (row.agent is not None):
        raise ValueError("kind doesn't go with agent")
    return row


def _event(*values: Any) -> EventRow:
    row = EventRow(*values)
    if not (row.offset is None) == (row.length is None) == (row.checksum is None):
        raise ValueError("offset doesn't go with length and checksum")
    return row


AGENTS = Table("agents", _agent, "id", with_agent=True, columns=_AGENT)
TURNS = Table("turns", _turn, "agent", with_agent=True, columns=_TURN)
ITEMS = Table("items", _item, "agent", with_agent=True, columns={
    "id": NUMBER, "agent": or_null(IDENTIFIER), "kind": member_of(ItemKind), "sender": WORDS, "sender_name": WORDS,
    "text": PROSE, "time": MOMENT, "turn": or_null(IDENTIFIER), "about": or_null(IDENTIFIER),
    "closed": or_null(member_of(Closed)), "cause": or_null(NUMBER), "intent": or_null(member_of(Intent)),
    "reply_to": or_null(NUMBER), "options": or_null(NAMES), "default_answer": or_null(PROSE), "deadline": or_null(MOMENT),
    "awaited": FLAG, "starts_turn": FLAG,
})  # fmt: skip
EVENTS = Table("events", _event, "agent", columns={
    "cursor": NUMBER, "agent": IDENTIFIER, "turn": or_null(IDENTIFIER), "time": MOMENT, "kind": WORDS,
    "text": or_null(PROSE), "offset": or_null(COUNT), "length": or_null(COUNT), "checksum": or_null(BITS_32),
    "data": or_null(DATA), "cause": or_null(NUMBER),
})  # fmt: skip
REMINDERS = Table("reminders", Reminder, "agent", columns={
    "id": NUMBER, "agent": IDENTIFIER, "due": MOMENT, "text": PROSE, "every": or_null(PERIOD), "times": or_null(COUNT),
    "until": or_null(MOMENT),
})  # fmt: skip
CALLS: Table[Any] = Table("calls", owner="agent", columns={
    "agent": IDENTIFIER, "turn": IDENTIFIER, "call": PROSE, "answer": ANSWER,
})  # fmt: skip
"""Tool calls that were answered."""
# The last columns are no fields of the record: findings that are accepted, or closed, are looked up by them alone.
FINDINGS = Table("findings", lambda *values: Finding(*values[:-2]), "agent", columns={
    "number": NUMBER, "agent": IDENTIFIER, "turn": or_null(IDENTIFIER), "time": MOMENT, "path": PROSE, "text": PROSE,
    "aside": or_null(PATH), "difference": PROSE, "files": NAMES, "digest": or_null(WORDS), "was": NAMES,
    "accepted_at": or_null(MOMENT), "closed_at": or_null(MOMENT),
})  # fmt: skip
WAITS = Table("waits", Wait, "agent", columns={
    "id": NUMBER, "agent": IDENTIFIER, "members": NAMES, "names": NAMES, "mode": member_of(WaitMode),
    "created_at": MOMENT, "deadline": or_null(MOMENT), "note": or_null(PROSE), "reports": NUMBERS,
    "wake": or_null(NUMBER), "label": or_null(WORDS),
})  # fmt: skip
# Landings stay for a day, so that their outcomes can be asked for again.
LANDINGS = Table("landings", Landing, "agent", columns={
    "id": NUMBER, "agent": IDENTIFIER, "target": WORDS, "mode": member_of(LandingMode), "message": or_null(PROSE),
    "check_command": or_null(PROSE), "accepted": NAMES, "unattended": FLAG, "time": MOMENT, "request": WORDS,
    "intended": or_null(COMMIT), "outcome": or_null(DATA), "item": or_null(NUMBER), "intended_head": or_null(COMMIT),
    "intended_in": or_null(PATH), "at": or_null(WORDS), "intended_from": or_null(COMMIT),
})  # fmt: skip
# A gate outlives the agent whose turn has shut it.
GATES = Table("gates", Gate, columns={
    "login": WORDS, "blamed": IDENTIFIER, "reason": PROSE, "shut_at": MOMENT, "until": MOMENT, "failures": COUNT,
    "trial": or_null(IDENTIFIER), "model": or_null(WORDS),
})  # fmt: skip
RUNS = Table("runs", Run, columns={
    "name": WORDS, "file": PROSE, "workspace": PATH, "plan": PLAN, "by": WORDS, "started_at": MOMENT, "agents": IDS,
    "ended_at": or_null(MOMENT), "outcome": or_null(member_of(RunOutcome)), "why": or_null(PROSE),
    "result": PROSE, "standings": IDS, "returned": RETURNED, "root": or_null(IDENTIFIER),
})  # fmt: skip
"""Families from files, which outlive their agents."""
# A family's tasks belong to its root: they go with it.
TASKS = Table("tasks", Task, "agent", columns={
    "number": NUMBER, "agent": IDENTIFIER, "id": WORDS, "title": PROSE, "description": PROSE, "needs": NAMES,
    "label": or_null(WORDS), "max_attempts": COUNT, "created_by": WORDS, "created_at": MOMENT,
    "state": member_of(TaskState), "claimed_by": or_null(IDENTIFIER), "attempts": COUNT,
    "status": or_null(member_of(Status)), "result": PROSE, "finished_at": or_null(MOMENT),
})  # fmt: skip
TASK_NEEDS: Table[Any] = Table("task_needs", owner="agent", columns={
    "agent": IDENTIFIER, "needed": WORDS, "number": NUMBER,
})  # fmt: skip
"""The numbers of the tasks that need another one, by that one's id."""
TOTALS: Table[Any] = Table("totals", columns={"name": WORDS, "label": WORDS, "value": AMOUNT})
# An agent whose clone can't be read must not go on in the user's checkout.
CLONES = Table("clones", _clone, "id", with_agent=True, columns=_CLONE)
LEFT_REFS = Table("left_refs", LeftRefs, columns={
    "git_dir": PATH, "name": NAME, "repository": PATH, "target": or_null(WORDS), "head": or_null(COMMIT),
    "tip": or_null(COMMIT), "since": or_null(MOMENT),
})  # fmt: skip
DROPPED_TURNS: Table[Any] = Table("dropped_turns", owner="agent", columns={
    "turn": IDENTIFIER, "agent": IDENTIFIER, "cleared": FLAG,
})  # fmt: skip
"""Turns whose files are dropped; `cleared`: their events too."""
REMOVED_AGENTS: Table[Any] = Table("removed_agents", columns={"id": IDENTIFIER, "last": COUNT})
"""Agents whose rows are gone and whose files, and events up to the cursor `last`, may still be there."""
MOUNT_POINTS: Table[Any] = Table("mount_points", columns={"path": PATH})
"""Placeholders that were made in a workspace to be mounted over."""
WORKED_IN: Table[Any] = Table("worked_in", columns={"root": PATH, "borrowed": NAMES})
"""Directories in which agents have worked in place, and the objects that repositories there borrowed before."""
JOURNAL: Table[Any] = Table("journal", columns={"id": IDENTIFIER})
"""The id of the journal whose cursors the events have; one row."""
DAMAGED: Table[Any] = Table("damaged", columns={
    "id": COUNT, "time": MOMENT, "agent": or_null(WORDS), "origin": WORDS, "reason": PROSE, "row": PROSE,
})  # fmt: skip
"""Rows that can't be read, as JSON."""

TABLES: tuple[Table[Any], ...] = (
    AGENTS, TURNS, ITEMS, EVENTS, REMINDERS, CALLS, FINDINGS, CLONES, LEFT_REFS, LANDINGS, WAITS, GATES, RUNS, TASKS,
    TASK_NEEDS, TOTALS, DROPPED_TURNS, REMOVED_AGENTS, MOUNT_POINTS, WORKED_IN, JOURNAL, DAMAGED,
)  # fmt: skip
"""Every table of the newest schema."""

DAMAGED_EVENT = "[this event's record is damaged]"


def readable_event(values: Sequence[Any]) -> EventRow:
    """Decode an event; one that can't be read becomes an event that says so, because pages of events must not break."""
    try:
        return EVENTS.read(values)
    except RowDamaged:
        cursor, agent, turn, time, kind, *_ = values
        return EventRow(
            int(cursor),
            _or(IDENTIFIER, agent, ""),
            _or(IDENTIFIER, turn, None),
            _or(MOMENT, time, 0.0),
            _or(WORDS, kind, "unknown"),
            DAMAGED_EVENT,
            None,
            None,
            None,
        )


def readable_events(found: Sequence[Sequence[Any]]) -> list[EventRow]:
    """Decode many events as `readable_event` does, a page several times as fast as one by one."""
    try:
        return EVENTS.read_all(found)
    except RowDamaged:
        return [readable_event(values) for values in found]


def _or(column: Column, value: object, otherwise: Any) -> Any:
    try:
        return column.read(value)
    except ValueError:
        return otherwise
