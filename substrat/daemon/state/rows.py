"""The rows of the state: each table's columns, written down once, with their types and the check that each value passes.

A table has the columns that a NamedTuple is annotated with, for example:

    class EventRow(NamedTuple):
        cursor: Annotated[int, NUMBER]
        agent: Annotated[str, IDENTIFIER]

Where rows have the fields of a record, in their order, the table is given the record and its columns, as `REMINDERS` is.
`Table` makes the lists of columns for SELECT and INSERT, the decoding and the encoding from it. `store` reads rows with the
same functions with which `quarantine` tries at each start whether a row can be read, `database` refuses a file that lacks
one of these tables or columns, and the schema is compared with them by a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import AgentSettings, Closed, Completion, Finding, Intent, ItemKind, Outcome
from substrat.core.agents.reminding import Reminder
from substrat.core.agents.rights import SharedPath  # noqa: TC001 - get_type_hints looks it up
from substrat.core.agents.stop_reason import StopReason  # noqa: TC001 - get_type_hints looks it up
from substrat.core.families.account_gate import Gate
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
    COMMIT,
    COUNT,
    DATA,
    EXIT_CODE,
    FLAG,
    IDENTIFIER,
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
    PROSE,
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


class AgentRow(NamedTuple):
    """An agent; its turn has a row of its own."""

    id: Annotated[str, IDENTIFIER]
    name: Annotated[str, NAME]
    phase: Annotated[Phase, member_of(Phase)]
    workspace: Annotated[str, PATH]
    model: Annotated[str, WORDS]
    network: Annotated[Network, member_of(Network)]
    parent: Annotated[str | None, or_null(IDENTIFIER)]
    created_at: Annotated[float, MOMENT]
    session_id: Annotated[str | None, or_null(IDENTIFIER)]
    session_stored: Annotated[bool, FLAG]
    status: Annotated[str, PROSE]
    attempts: Annotated[int, COUNT]
    retry_at: Annotated[float | None, or_null(MOMENT)]
    restored_at: Annotated[tuple[float, ...], MOMENTS]
    allow: Annotated[tuple[str, ...], ALLOW]
    binds: Annotated[tuple[SharedPath, ...], BINDS]
    since: Annotated[float, MOMENT]
    accepted_turn: Annotated[str | None, or_null(IDENTIFIER)]
    address: Annotated[int | None, or_null(ADDRESS)]
    needs: Annotated[tuple[str, ...], NAMES]
    unmet: Annotated[str | None, or_null(PROSE)]
    last: Annotated[str | None, or_null(PROSE)]
    input_tokens: Annotated[int, BITS_63]
    output_tokens: Annotated[int, BITS_63]
    told: Annotated[str | None, or_null(WORDS)]
    together: Annotated[bool, FLAG]
    directory: Annotated[str | None, or_null(IDENTIFIER)]
    shared: Annotated[str | None, or_null(IDENTIFIER)]
    settings: Annotated[AgentSettings, SETTINGS]


class TurnRow(NamedTuple):
    """A turn."""

    id: Annotated[str, IDENTIFIER]
    agent: Annotated[str, IDENTIFIER]
    number: Annotated[int, NUMBER]
    started_at: Annotated[float, MOMENT]
    pid: Annotated[int | None, or_null(PID)]
    start_time: Annotated[int | None, or_null(BITS_63)]
    boot_id: Annotated[str | None, or_null(WORDS)]
    offset: Annotated[int, COUNT]
    stop: Annotated[StopReason | None, or_null(STOP_REASON)]
    reported: Annotated[bool, FLAG]
    outcome: Annotated[Outcome | None, or_null(member_of(Outcome))]
    ended_at: Annotated[float | None, or_null(MOMENT)]
    exit_code: Annotated[int | None, or_null(EXIT_CODE)]
    result: Annotated[str | None, or_null(PROSE)]
    usage: Annotated[dict[str, int] | None, or_null(USAGE)]
    error: Annotated[str | None, or_null(PROSE)]
    contacted: Annotated[bool, FLAG]
    paused: Annotated[float, MOMENT]
    frozen_at: Annotated[float | None, or_null(MOMENT)]
    heard_at: Annotated[float | None, or_null(MOMENT)]
    unsettled: Annotated[bool, FLAG]
    report: Annotated[str | None, or_null(PROSE)]
    completion: Annotated[Completion | None, or_null(member_of(Completion))]
    login: Annotated[str | None, or_null(WORDS)]
    refused: Annotated[str | None, or_null(WORDS)]
    begun_at: Annotated[float | None, or_null(MOMENT)]
    model: Annotated[str | None, or_null(WORDS)]
    replaced: Annotated[str | None, or_null(PATH)]


class ItemRow(NamedTuple):
    """An inbox item.

    `turn` delivers it, or `closed` says how it ended without one; `about` is the turn it reports, and `cause` the cursor of
    the event that brought it. `options`, `default_answer` and `deadline` are a question's. `awaited` is true for another
    agent's request until that agent has an answer, or is told that there will be none.
    """

    id: Annotated[int, NUMBER]
    agent: Annotated[str | None, or_null(IDENTIFIER)]
    kind: Annotated[ItemKind, member_of(ItemKind)]
    sender: Annotated[str, WORDS]
    sender_name: Annotated[str, WORDS]
    text: Annotated[str, PROSE]
    time: Annotated[float, MOMENT]
    turn: Annotated[str | None, or_null(IDENTIFIER)]
    about: Annotated[str | None, or_null(IDENTIFIER)]
    closed: Annotated[Closed | None, or_null(member_of(Closed))]
    cause: Annotated[int | None, or_null(NUMBER)]
    intent: Annotated[Intent | None, or_null(member_of(Intent))] = None
    reply_to: Annotated[int | None, or_null(NUMBER)] = None
    options: Annotated[tuple[str, ...] | None, or_null(NAMES)] = None
    default_answer: Annotated[str | None, or_null(PROSE)] = None
    deadline: Annotated[float | None, or_null(MOMENT)] = None
    awaited: Annotated[bool, FLAG] = False


class EventRow(NamedTuple):
    """An event as it is stored: where the agent's line is, or the daemon's own text, data and the event that led to it."""

    cursor: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str | None, or_null(IDENTIFIER)]
    time: Annotated[float, MOMENT]
    kind: Annotated[str, WORDS]
    text: Annotated[str | None, or_null(PROSE)]
    offset: Annotated[int | None, or_null(COUNT)]
    length: Annotated[int | None, or_null(COUNT)]
    checksum: Annotated[int | None, or_null(BITS_32)]
    data: Annotated[str | None, or_null(DATA)] = None
    cause: Annotated[int | None, or_null(NUMBER)] = None


_CLONE: dict[str, Column] = {
    "id": IDENTIFIER, "name": NAME, "tree": PATH, "repository": PATH, "git_dir": PATH, "workspace": PATH, "branch": WORDS,
    "target": or_null(WORDS), "base": or_null(COMMIT), "stage": member_of(Stage), "error": or_null(PROSE),
    "with_wip": FLAG, "source": or_null(IDENTIFIER), "former_name": or_null(NAME), "turn": COUNT, "time": MOMENT,
    "head": or_null(COMMIT), "wip": or_null(COMMIT), "ahead": COUNT, "behind": COUNT, "files": COUNT, "landed": FLAG,
    "nested": COUNT, "submodules": COUNT, "lfs": COUNT, "ignored": COUNT, "unreadable": COUNT, "loose": FLAG,
    "unkept": or_null(PROSE), "restoring": or_null(COUNT), "notice": or_null(PROSE), "notice_turn": or_null(COUNT),
    "asides": or_null(COMMIT), "branches": TALLY, "stashes": COUNT, "hidden": COUNT, "is_strange": FLAG,
    "held_by": or_null(IDENTIFIER), "held_head": or_null(COMMIT), "landings": PAST_LANDINGS,
}  # fmt: skip
"""A clone: `id` is its agent's, which may have been removed; the columns from `turn` on are its last keep."""


def _clone(*values: Any) -> Clone:
    row = dict(zip(_CLONE, values, strict=True))
    only_here = OnlyHere(**{name: row.pop(name) for name in OnlyHere.__slots__})
    kept = Kept(only_here=only_here, **{name: row.pop(name) for name in Kept.__slots__ if name != "only_here"})
    return as_read(Clone(agent=row.pop("id"), kept=kept, **row))


class WorkedInRow(NamedTuple):
    """A directory in which an agent has worked in place, and the objects that repositories there borrowed before."""

    root: Annotated[str, PATH]
    borrowed: Annotated[tuple[str, ...], NAMES]


def _agent_contradicts_itself(row: AgentRow) -> str | None:
    return "session_id is gone" if row.session_id is None and row.session_stored else None


def _turn_contradicts_itself(row: TurnRow) -> str | None:
    given = [value is not None for value in (row.pid, row.start_time, row.boot_id)]
    return "pid doesn't go with start_time and boot_id" if any(given) != all(given) else None


def _item_contradicts_itself(row: ItemRow) -> str | None:
    if row.turn is not None and row.closed is not None:
        return "turn doesn't go with closed"
    if row.kind is ItemKind.MESSAGE:
        return None
    is_operators = row.kind in {ItemKind.QUESTION, ItemKind.MERGE}
    return "kind doesn't go with agent" if is_operators == (row.agent is not None) else None


def _event_contradicts_itself(row: EventRow) -> str | None:
    given = [value is not None for value in (row.offset, row.length, row.checksum)]
    return "offset doesn't go with length and checksum" if any(given) != all(given) else None


AGENTS = Table("agents", AgentRow, "id", with_agent=True, contradiction=_agent_contradicts_itself)
TURNS = Table("turns", TurnRow, "agent", with_agent=True, contradiction=_turn_contradicts_itself)
ITEMS = Table("items", ItemRow, "agent", with_agent=True, contradiction=_item_contradicts_itself)
EVENTS = Table("events", EventRow, "agent", contradiction=_event_contradicts_itself)
REMINDERS = Table("reminders", Reminder, "agent", columns={
    "id": NUMBER, "agent": IDENTIFIER, "due": MOMENT, "text": PROSE, "every": or_null(PERIOD), "times": or_null(COUNT),
    "until": or_null(MOMENT),
})  # fmt: skip
CALLS: Table[Any] = Table("calls", owner="agent", columns={
    "agent": IDENTIFIER, "turn": IDENTIFIER, "call": PROSE, "answer": ANSWER,
})  # fmt: skip
"""Tool calls that were answered."""
# The last column is no field of the record: findings that a person has accepted are looked up by it alone.
FINDINGS = Table("findings", lambda *values: Finding(*values[:-1]), "agent", columns={
    "number": NUMBER, "agent": IDENTIFIER, "turn": or_null(IDENTIFIER), "time": MOMENT, "path": PROSE, "text": PROSE,
    "aside": or_null(PATH), "difference": PROSE, "files": NAMES, "digest": or_null(WORDS), "was": NAMES,
    "accepted_at": or_null(MOMENT),
})  # fmt: skip
WAITS = Table("waits", Wait, "agent", columns={
    "id": NUMBER, "agent": IDENTIFIER, "members": NAMES, "names": NAMES, "mode": member_of(WaitMode),
    "created_at": MOMENT, "deadline": or_null(MOMENT), "note": or_null(PROSE), "reports": NUMBERS,
    "wake": or_null(NUMBER),
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
    "trial": or_null(IDENTIFIER),
})  # fmt: skip
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
REMOVED_AGENTS: Table[Any] = Table("removed_agents", columns={"id": IDENTIFIER})
"""Agents whose rows are gone and whose files may still be there."""
MOUNT_POINTS: Table[Any] = Table("mount_points", columns={"path": PATH})
"""Placeholders that were made in a workspace to be mounted over."""
WORKED_IN = Table("worked_in", WorkedInRow)
DAMAGED: Table[Any] = Table("damaged", columns={
    "id": COUNT, "time": MOMENT, "agent": or_null(WORDS), "origin": WORDS, "reason": PROSE, "row": PROSE,
})  # fmt: skip
"""Rows that can't be read, as JSON."""

TABLES: tuple[Table[Any], ...] = (
    AGENTS, TURNS, ITEMS, EVENTS, REMINDERS, CALLS, FINDINGS, CLONES, LEFT_REFS, LANDINGS, WAITS, GATES, TOTALS,
    DROPPED_TURNS, REMOVED_AGENTS, MOUNT_POINTS, WORKED_IN, DAMAGED,
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
