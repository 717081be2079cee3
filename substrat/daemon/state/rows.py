"""The rows of the state: each table's columns, written down once, with their types and the check that each value passes.

A table is a NamedTuple whose members are annotated with a `Column`, for example:

    class ReminderRow(NamedTuple):
        id: Annotated[int, NUMBER]
        agent: Annotated[str, IDENTIFIER]
        due: Annotated[float, MOMENT]
        text: Annotated[str, PROSE]

`Table` makes the lists of columns for SELECT and INSERT, the decoding and the encoding from it. `store` reads rows with the
same functions with which `quarantine` tries at each start whether a row can be read, `database` refuses a file that lacks
one of these tables or columns, and the schema is compared with them by a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import AgentSettings, Closed, Completion, Intent, ItemKind, Outcome
from substrat.core.agents.rights import SharedPath  # noqa: TC001 - get_type_hints looks it up
from substrat.core.agents.stop_reason import StopReason  # noqa: TC001 - get_type_hints looks it up
from substrat.core.families.waits import WaitMode
from substrat.core.workspaces.clones import PastLandings, Stage
from substrat.core.workspaces.landing import LandingMode
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


class ReminderRow(NamedTuple):
    """A reminder."""

    id: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    due: Annotated[float, MOMENT]
    text: Annotated[str, PROSE]
    every: Annotated[float | None, or_null(PERIOD)] = None
    times: Annotated[int | None, or_null(COUNT)] = None
    until: Annotated[float | None, or_null(MOMENT)] = None


class WaitRow(NamedTuple):
    """A wait of an agent's that it hasn't been told the end of."""

    id: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    members: Annotated[tuple[str, ...], NAMES]
    names: Annotated[tuple[str, ...], NAMES]
    mode: Annotated[WaitMode, member_of(WaitMode)]
    created_at: Annotated[float, MOMENT]
    deadline: Annotated[float | None, or_null(MOMENT)]
    note: Annotated[str | None, or_null(PROSE)]
    reports: Annotated[tuple[int, ...], NUMBERS]
    wake: Annotated[int | None, or_null(NUMBER)]


class FindingRow(NamedTuple):
    """Something that a person must look at, or has accepted."""

    number: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str | None, or_null(IDENTIFIER)]
    time: Annotated[float, MOMENT]
    path: Annotated[str, PROSE]
    text: Annotated[str, PROSE]
    aside: Annotated[str | None, or_null(PATH)]
    difference: Annotated[str, PROSE]
    accepted_at: Annotated[float | None, or_null(MOMENT)]
    files: Annotated[tuple[str, ...], NAMES]
    digest: Annotated[str | None, or_null(WORDS)]


class CloneRow(NamedTuple):
    """A private clone: `id` is its agent's, which may have been removed; the columns from `turn` on are its last keep."""

    id: Annotated[str, IDENTIFIER]
    name: Annotated[str, NAME]
    tree: Annotated[str, PATH]
    repository: Annotated[str, PATH]
    git_dir: Annotated[str, PATH]
    workspace: Annotated[str, PATH]
    branch: Annotated[str, WORDS]
    target: Annotated[str | None, or_null(WORDS)]
    base: Annotated[str | None, or_null(COMMIT)]
    stage: Annotated[Stage, member_of(Stage)]
    error: Annotated[str | None, or_null(PROSE)]
    with_wip: Annotated[bool, FLAG]
    source: Annotated[str | None, or_null(IDENTIFIER)]
    former_name: Annotated[str | None, or_null(NAME)]
    turn: Annotated[int, COUNT]
    time: Annotated[float, MOMENT]
    head: Annotated[str | None, or_null(COMMIT)]
    wip: Annotated[str | None, or_null(COMMIT)]
    ahead: Annotated[int, COUNT]
    behind: Annotated[int, COUNT]
    files: Annotated[int, COUNT]
    landed: Annotated[bool, FLAG]
    nested: Annotated[int, COUNT]
    submodules: Annotated[int, COUNT]
    lfs: Annotated[int, COUNT]
    ignored: Annotated[int, COUNT]
    unreadable: Annotated[int, COUNT]
    loose: Annotated[bool, FLAG]
    unkept: Annotated[str | None, or_null(PROSE)]
    restoring: Annotated[int | None, or_null(COUNT)]
    notice: Annotated[str | None, or_null(PROSE)]
    notice_turn: Annotated[int | None, or_null(COUNT)]
    asides: Annotated[str | None, or_null(COMMIT)]
    branches: Annotated[tuple[tuple[str, int], ...], TALLY]
    stashes: Annotated[int, COUNT]
    hidden: Annotated[int, COUNT]
    is_strange: Annotated[bool, FLAG]
    held_by: Annotated[str | None, or_null(IDENTIFIER)]
    held_head: Annotated[str | None, or_null(COMMIT)]
    landings: Annotated[PastLandings, PAST_LANDINGS]


class LeftRefsRow(NamedTuple):
    """The refs that an agent which is over has in a repository (`left_refs.LeftRefs`)."""

    git_dir: Annotated[str, PATH]
    name: Annotated[str, NAME]
    repository: Annotated[str, PATH]
    target: Annotated[str | None, or_null(WORDS)]
    head: Annotated[str | None, or_null(COMMIT)]
    tip: Annotated[str | None, or_null(COMMIT)]
    since: Annotated[float | None, or_null(MOMENT)]


class GateRow(NamedTuple):
    """A login whose turns are held (`account_gate.Gate`)."""

    login: Annotated[str, WORDS]
    blamed: Annotated[str, IDENTIFIER]
    reason: Annotated[str, PROSE]
    shut_at: Annotated[float, MOMENT]
    until: Annotated[float, MOMENT]
    failures: Annotated[int, COUNT]
    trial: Annotated[str | None, or_null(IDENTIFIER)]


class LandingRow(NamedTuple):
    """A landing that was asked for; it stays for a day, so that its outcome can be asked for again."""

    id: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    target: Annotated[str, WORDS]
    mode: Annotated[LandingMode, member_of(LandingMode)]
    message: Annotated[str | None, or_null(PROSE)]
    check_command: Annotated[str | None, or_null(PROSE)]
    accepted: Annotated[tuple[str, ...], NAMES]
    unattended: Annotated[bool, FLAG]
    time: Annotated[float, MOMENT]
    request: Annotated[str, WORDS]
    intended: Annotated[str | None, or_null(COMMIT)]
    outcome: Annotated[str | None, or_null(DATA)]
    item: Annotated[int | None, or_null(NUMBER)]
    intended_head: Annotated[str | None, or_null(COMMIT)]
    intended_in: Annotated[str | None, or_null(PATH)]
    at: Annotated[str | None, or_null(WORDS)]
    intended_from: Annotated[str | None, or_null(COMMIT)]


class CallRow(NamedTuple):
    """A tool call that was answered."""

    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str, IDENTIFIER]
    call: Annotated[str, PROSE]
    answer: Annotated[tuple[str, bool], ANSWER]


class TotalRow(NamedTuple):
    """A total (`core.agents.totals`)."""

    name: Annotated[str, WORDS]
    label: Annotated[str, WORDS]
    value: Annotated[float, AMOUNT]


class DroppedTurnRow(NamedTuple):
    """A turn whose files are dropped; `cleared`: its events too."""

    turn: Annotated[str, IDENTIFIER]
    agent: Annotated[str, IDENTIFIER]
    cleared: Annotated[bool, FLAG]


class RemovedAgentRow(NamedTuple):
    """An agent whose rows are gone and whose files may still be there."""

    id: Annotated[str, IDENTIFIER]


class MountPointRow(NamedTuple):
    """A placeholder that was made in a workspace to be mounted over."""

    path: Annotated[str, PATH]


class WorkedInRow(NamedTuple):
    """A directory in which an agent has worked in place, and the objects that repositories there borrowed before."""

    root: Annotated[str, PATH]
    borrowed: Annotated[tuple[str, ...], NAMES]


class DamagedRow(NamedTuple):
    """A row that can't be read, as JSON."""

    id: Annotated[int, COUNT]
    time: Annotated[float, MOMENT]
    agent: Annotated[str | None, or_null(WORDS)]
    origin: Annotated[str, WORDS]
    reason: Annotated[str, PROSE]
    row: Annotated[str, PROSE]


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
REMINDERS = Table("reminders", ReminderRow, "agent")
CALLS = Table("calls", CallRow, "agent")
FINDINGS = Table("findings", FindingRow, "agent")
WAITS = Table("waits", WaitRow, "agent")
LANDINGS = Table("landings", LandingRow, "agent")
# A gate outlives the agent whose turn has shut it.
GATES = Table("gates", GateRow)
TOTALS = Table("totals", TotalRow)
# An agent whose clone can't be read must not go on in the user's checkout.
CLONES = Table("clones", CloneRow, "id", with_agent=True)
LEFT_REFS = Table("left_refs", LeftRefsRow)
DROPPED_TURNS = Table("dropped_turns", DroppedTurnRow, "agent")
REMOVED_AGENTS = Table("removed_agents", RemovedAgentRow)
MOUNT_POINTS = Table("mount_points", MountPointRow)
WORKED_IN = Table("worked_in", WorkedInRow)
DAMAGED = Table("damaged", DamagedRow)

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
