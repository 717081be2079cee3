"""The rows of the state: each table's columns, written down once, with their types and the check that each value passes.

A table is a NamedTuple whose members are annotated with a `Column`, for example:

    class ReminderRow(NamedTuple):
        id: Annotated[int, NUMBER]
        agent: Annotated[str, IDENTIFIER]
        due: Annotated[float, MOMENT]
        text: Annotated[str, PROSE]

`Table` makes the lists of columns for SELECT and INSERT, the decoding and the encoding from it. `store` reads rows with the
same functions with which `quarantine` tries at each start whether a row can be read, and `database` refuses a file that
lacks one of these tables or columns.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, get_type_hints

from sandbox.spec import Network
from substrat.core.agents import environment
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import ItemKind, Outcome, Restore, SharedPath
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.lenient import tame_text
from substrat.daemon.kernel.procfs import MAX_PID
from substrat.errors import StateUnusable
from substrat.names import is_agent_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import Enum

R = TypeVar("R", bound=NamedTuple)

MAX_NUMBER = 2**53
"""The largest number of a row, and of anything that is counted: JSON clients hold no greater whole number exactly, and
adding to it never leaves SQLite's 64 bits."""
_LAST_MOMENT = 253402300799.0
"""The last second of the year 9999, after which no time can be written as a date."""
_LONGEST_PATH = 4095
"""Bytes that Linux takes as a path (limits.h, PATH_MAX without the final zero)."""
_LONGEST_WORDS = 4096
"""Characters of names and reasons. The daemon writes none that comes near."""
_LONGEST_PROSE = 16 * 1024 * 1024
"""Characters of a text; a request on the operator socket, which prompts come in, has at most as many bytes."""
_LONGEST_LIST = 1024 * 1024
"""Characters of a list in JSON. Command lines, which such lists come from, are shorter."""
_IDENTIFIER = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


class RowDamaged(StateUnusable):
    """A row has a value that the daemon can't have written; the message names the table and the column."""


class Column(NamedTuple):
    """How a column's values are read and written.

    Args:
        read: returns a stored value as the program uses it; raises ValueError with a complaint such as "is no time".
        write: returns what is stored for a value; None: the value itself.
        prose: whether it is a text of any length and content, which `quarantine` needn't load to know that it is one.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    prose: bool = False


# Values. SQLite's declared types count for nothing here: a damaged file holds anything in any column.


def _matching(matches: Callable[[str], object], complaint: str) -> Column:
    def read(value: object) -> str:
        if type(value) is not str or not matches(value):
            raise ValueError(complaint)
        return value

    return Column(read)


def _member(kind: type[Enum]) -> Column:
    members = {member.value: member for member in kind}

    def read(value: object) -> Enum:
        found = members.get(value)
        if found is None:
            raise ValueError(f"is none of {', '.join(members)}")
        return found

    return Column(read, lambda member: member.value)


def _whole(least: int, most: int) -> Column:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"is no whole number from {least} to {most}")
        return value

    return Column(read)


def _read_flag(value: object) -> bool:
    if type(value) is not int or not 0 <= value <= 1:
        raise ValueError("is neither 0 nor 1")
    return value == 1


def _read_moment(value: object) -> float:
    if type(value) not in {float, int} or not 0 <= value <= _LAST_MOMENT:  # type: ignore[operator]
        raise ValueError("is no time")
    return float(value)  # type: ignore[arg-type]


def _is_unicode(text: str) -> bool:
    """Say whether a text was UTF-8; `database` reads other bytes as lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_words(value: object) -> str:
    if type(value) is not str or len(value) > _LONGEST_WORDS or "\0" in value or not _is_unicode(value):
        raise ValueError("is no short text")
    return value


def _write_words(text: str) -> str:
    """Return words as they can be read again: a reason may name files, whose names are an agent's."""
    return tame_text(text).replace("\0", "�")[:_LONGEST_WORDS]


def _read_path(value: object) -> str:
    if type(value) is not str or not value.startswith("/") or "\0" in value or not _is_unicode(value):
        raise ValueError("is no absolute path")
    if len(value.encode()) > _LONGEST_PATH or ".." in value.split("/"):
        raise ValueError("is no path that the kernel takes, or one that goes up")
    return value


def _read_prose(value: object) -> str:
    """Return a text; a few wrong bytes in it are no reason to lose the rest."""
    if type(value) is not str:
        raise ValueError("is no text")
    if not _is_unicode(value):
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value if len(value) <= _LONGEST_PROSE else value[:_LONGEST_PROSE] + "… [cut]"


def _parsed(value: object) -> object:
    if type(value) is not str or len(value) > _LONGEST_LIST or not _is_unicode(value):
        raise ValueError("is no JSON")
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None


def _parsed_list(value: object) -> list[Any]:
    parsed = _parsed(value)
    if not isinstance(parsed, list):
        raise ValueError("is no JSON array")  # noqa: TRY004 - one kind of error for all that can't be read
    return parsed


@lru_cache(maxsize=64)
def _read_allow(value: object) -> tuple[str, ...]:
    texts = tuple(_parsed_list(value))
    if not all(type(text) is str for text in texts):
        raise ValueError("is no JSON array of strings")
    AllowList.of(texts)
    return texts


@lru_cache(maxsize=64)
def _read_binds(value: object) -> tuple[SharedPath, ...]:
    found = []
    for entry in _parsed_list(value):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[1]) is not bool:
            raise ValueError("is no JSON array of [path, whether writable]")
        found.append(SharedPath(_read_path(entry[0]), entry[1]))
    return tuple(found)


@lru_cache(maxsize=64)
def _read_moments(value: object) -> tuple[float, ...]:
    return tuple(map(_read_moment, _parsed_list(value)))


def _read_usage(value: object) -> dict[str, int]:
    parsed = _parsed(value)
    if not isinstance(parsed, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - one kind of error for all that can't be read
    if not all(type(count) is int and abs(count) < 1 << 63 for count in parsed.values()):
        raise ValueError("is no JSON object of numbers of 64 bits")
    if not all(map(_is_unicode, parsed)):
        raise ValueError("has a member whose name is no text")
    return parsed


def _read_variables(value: object) -> environment.Variables:
    parsed = _parsed(value)
    if not isinstance(parsed, dict) or not all(type(text) is str for text in parsed.values()):
        raise ValueError("is no JSON object of texts")
    try:
        return environment.checked(parsed)
    except (environment.BadVariable, UnicodeError):
        raise ValueError("has a variable that no agent can have") from None


def _read_answer(value: object) -> tuple[str, bool]:
    if type(value) is not str:
        raise ValueError("is no JSON")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(parsed, list) or len(parsed) != 2 or type(parsed[0]) is not str or type(parsed[1]) is not bool:
        raise ValueError("is no JSON array of a text and whether it is an error")
    return _read_prose(parsed[0]), parsed[1]


def _or_null(column: Column) -> Column:
    read, write = column.read, column.write

    def read_or_null(value: object) -> Any:
        return None if value is None else read(value)

    def write_or_null(value: object) -> Any:
        return None if value is None or write is None else write(value)

    return Column(read_or_null, write_or_null if write is not None else None, column.prose)


IDENTIFIER = _matching(_IDENTIFIER.fullmatch, "is no id")
"""An agent's, turn's or session's id. It becomes part of paths, so it has neither slashes nor dots."""
NAME = _matching(is_agent_name, "is no name")
WORDS = Column(_read_words, _write_words)
PATH = Column(_read_path)
PROSE = Column(_read_prose, tame_text, prose=True)
NUMBER = _whole(1, MAX_NUMBER)
COUNT = _whole(0, MAX_NUMBER)
FLAG = Column(_read_flag, int)
MOMENT = Column(_read_moment)
"""Seconds since the epoch, between 1970 and 9999."""
ALLOW = Column(_read_allow, json.dumps)
BINDS = Column(_read_binds, json.dumps)
VARIABLES = Column(_read_variables, lambda given: json.dumps(dict(given)))
MOMENTS = Column(_read_moments, json.dumps)
USAGE = Column(_read_usage, lambda usage: json.dumps(dict(usage)))
ANSWER = Column(_read_answer, json.dumps, prose=True)
_32_BITS = _whole(0, 2**32 - 1)
_PID = _whole(1, MAX_PID)
_64_BITS = _whole(0, 2**63 - 1)
_EXIT_CODE = _whole(-(2**31), 2**31 - 1)


# Tables


class AgentRow(NamedTuple):
    """An agent; its turn has a row of its own."""

    id: Annotated[str, IDENTIFIER]
    name: Annotated[str, NAME]
    phase: Annotated[Phase, _member(Phase)]
    workspace: Annotated[str, PATH]
    model: Annotated[str, WORDS]
    network: Annotated[Network, _member(Network)]
    parent: Annotated[str | None, _or_null(IDENTIFIER)]
    created_at: Annotated[float, MOMENT]
    session_id: Annotated[str | None, _or_null(IDENTIFIER)]
    session_stored: Annotated[bool, FLAG]
    status: Annotated[str, PROSE]
    attempts: Annotated[int, COUNT]
    retry_at: Annotated[float | None, _or_null(MOMENT)]
    restore: Annotated[Restore, _member(Restore)]
    restored_at: Annotated[tuple[float, ...], MOMENTS]
    allow: Annotated[tuple[str, ...], ALLOW]
    binds: Annotated[tuple[SharedPath, ...], BINDS]
    since: Annotated[float, MOMENT]
    accepted_turn: Annotated[str | None, _or_null(IDENTIFIER)]
    environment: Annotated[environment.Variables, VARIABLES]
    ssh_agent: Annotated[str | None, _or_null(PATH)]


class TurnRow(NamedTuple):
    """A turn."""

    id: Annotated[str, IDENTIFIER]
    agent: Annotated[str, IDENTIFIER]
    number: Annotated[int, NUMBER]
    started_at: Annotated[float, MOMENT]
    pid: Annotated[int | None, _or_null(_PID)]
    start_time: Annotated[int | None, _or_null(_64_BITS)]
    boot_id: Annotated[str | None, _or_null(WORDS)]
    offset: Annotated[int, COUNT]
    stop: Annotated[str | None, _or_null(WORDS)]
    reported: Annotated[bool, FLAG]
    outcome: Annotated[Outcome | None, _or_null(_member(Outcome))]
    ended_at: Annotated[float | None, _or_null(MOMENT)]
    exit_code: Annotated[int | None, _or_null(_EXIT_CODE)]
    result: Annotated[str | None, _or_null(PROSE)]
    usage: Annotated[dict[str, int] | None, _or_null(USAGE)]
    error: Annotated[str | None, _or_null(PROSE)]
    contacted: Annotated[bool, FLAG]
    paused: Annotated[float, MOMENT]
    frozen_at: Annotated[float | None, _or_null(MOMENT)]
    thawed_at: Annotated[float | None, _or_null(MOMENT)]


class ItemRow(NamedTuple):
    """An inbox item; `turn` says where it went, `about` which turn it reports."""

    id: Annotated[int, NUMBER]
    agent: Annotated[str | None, _or_null(IDENTIFIER)]
    kind: Annotated[ItemKind, _member(ItemKind)]
    sender: Annotated[str, WORDS]
    sender_name: Annotated[str, WORDS]
    text: Annotated[str, PROSE]
    time: Annotated[float, MOMENT]
    turn: Annotated[str | None, _or_null(IDENTIFIER)]
    about: Annotated[str | None, _or_null(IDENTIFIER)]


class EventRow(NamedTuple):
    """An event as it is stored: where the agent's line is, or the daemon's own text."""

    cursor: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str | None, _or_null(IDENTIFIER)]
    time: Annotated[float, MOMENT]
    kind: Annotated[str, WORDS]
    text: Annotated[str | None, _or_null(PROSE)]
    offset: Annotated[int | None, _or_null(COUNT)]
    length: Annotated[int | None, _or_null(COUNT)]
    checksum: Annotated[int | None, _or_null(_32_BITS)]


class ReminderRow(NamedTuple):
    """A reminder."""

    id: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    due: Annotated[float, MOMENT]
    text: Annotated[str, PROSE]


class FindingRow(NamedTuple):
    """Something that a person has to look at, or has accepted."""

    number: Annotated[int, NUMBER]
    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str | None, _or_null(IDENTIFIER)]
    time: Annotated[float, MOMENT]
    path: Annotated[str, PROSE]
    text: Annotated[str, PROSE]
    aside: Annotated[str | None, _or_null(PATH)]
    difference: Annotated[str, PROSE]
    accepted_at: Annotated[float | None, _or_null(MOMENT)]


class CallRow(NamedTuple):
    """A tool call that was answered."""

    agent: Annotated[str, IDENTIFIER]
    turn: Annotated[str, IDENTIFIER]
    call: Annotated[str, PROSE]
    answer: Annotated[tuple[str, bool], ANSWER]


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


class DamagedRow(NamedTuple):
    """A row that can't be read, as JSON."""

    id: Annotated[int, COUNT]
    time: Annotated[float, MOMENT]
    agent: Annotated[str | None, _or_null(WORDS)]
    origin: Annotated[str, WORDS]
    reason: Annotated[str, PROSE]
    row: Annotated[str, PROSE]


def _agent_contradicts_itself(row: AgentRow) -> str | None:
    return "session_id is gone" if row.session_id is None and row.session_stored else None


def _turn_contradicts_itself(row: TurnRow) -> str | None:
    given = [value is not None for value in (row.pid, row.start_time, row.boot_id)]
    return "pid doesn't go with start_time and boot_id" if any(given) != all(given) else None


def _item_contradicts_itself(row: ItemRow) -> str | None:
    if row.kind is ItemKind.MESSAGE:
        return None
    return "kind doesn't go with agent" if (row.kind is ItemKind.QUESTION) == (row.agent is not None) else None


def _event_contradicts_itself(row: EventRow) -> str | None:
    given = [value is not None for value in (row.offset, row.length, row.checksum)]
    return "offset doesn't go with length and checksum" if any(given) != all(given) else None


class Table(Generic[R]):
    """A table of the state.

    Args:
        name: its name.
        row: its columns.
        owner: the column that names the agent a row belongs to; None where rows belong to no agent.
        with_agent: whether an agent is set aside for a row of it that can't be read; otherwise the row alone is.
        contradiction: finds values that can't go together in a row whose values can each be read.
    """

    def __init__(
        self,
        name: str,
        row: type[R],
        owner: str | None = None,
        *,
        with_agent: bool = False,
        contradiction: Callable[[R], str | None] | None = None,
    ) -> None:
        hints = get_type_hints(row, include_extras=True)
        columns: dict[str, Column] = {column: hint.__metadata__[0] for column, hint in hints.items()}
        self.name = name
        self.owner = owner
        self.with_agent = with_agent
        self.names = tuple(columns)
        self.columns = ", ".join(columns)
        """The columns as SELECT and INSERT list them."""
        self.select = f"SELECT {self.columns} FROM {name}"  # noqa: S608 - constants
        self.checked_columns = ", ".join(
            f"CASE typeof({name}) WHEN 'text' THEN '{_SAMPLE[column.read]}' ELSE {name} END"
            if column.prose and column.read in _SAMPLE
            else f"CASE typeof({name}) WHEN 'text' THEN '' ELSE {name} END"
            if column.prose
            else name
            for name, column in columns.items()
        )
        """The columns as SELECT lists them to find out whether a row can be read: prose isn't loaded for that."""
        self._row = row
        self._readers = tuple(column.read for column in columns.values())
        self._writers = tuple((place, column.write) for place, column in enumerate(columns.values()) if column.write)
        self._contradiction = contradiction

    def insert(self, how: str = "INSERT", without: tuple[str, ...] = ()) -> str:
        """Return the statement that inserts a row.

        Args:
            how: its beginning, such as "INSERT OR REPLACE".
            without: columns that SQLite fills in.
        """
        names = [name for name in self.names if name not in without]
        return f"{how} INTO {self.name} ({', '.join(names)}) VALUES ({','.join('?' * len(names))})"

    def upsert(self, key: str, kept: tuple[str, ...] = (), where: str = "TRUE") -> str:
        """Return the statement that inserts a row or replaces the values of the one with the same key.

        Args:
            key: the column that tells rows apart.
            kept: columns whose stored value stays where the new one is NULL,
            where: and this condition holds.
        """
        changes = ", ".join(
            f"{name}=CASE WHEN {where} THEN coalesce(excluded.{name}, {name}) ELSE excluded.{name} END"
            if name in kept
            else f"{name}=excluded.{name}"
            for name in self.names
            if name != key
        )
        return f"{self.insert()} ON CONFLICT ({key}) DO UPDATE SET {changes}"

    def read(self, values: Sequence[Any]) -> R:
        """Decode a row.

        Args:
            values: its values in the order of `columns`.

        Raises:
            RowDamaged: a value can't have been written by the daemon.
        """
        try:
            row = self._row._make([read(value) for read, value in zip(self._readers, values, strict=True)])
        except (ValueError, RecursionError):
            raise self._damage(values) from None
        if self._contradiction is not None and (complaint := self._contradiction(row)) is not None:
            raise RowDamaged(f"{self.name}.{complaint}")
        return row

    def read_all(self, found: Sequence[Sequence[Any]]) -> list[R]:
        """Decode many rows, several times as fast as one by one: equal values of a column are decoded once.

        Args:
            found: the rows, each in the order of `columns`.

        Raises:
            RowDamaged: a value can't have been written by the daemon.
        """
        try:
            decoded = [
                _read_column(read, column) for read, column in zip(self._readers, zip(*found, strict=True), strict=False)
            ]
            read_rows = list(map(self._row._make, zip(*decoded, strict=True)))
        except (ValueError, RecursionError):
            return [self.read(values) for values in found]  # which raises, with the column's name
        if self._contradiction is not None and any(map(self._contradiction, read_rows)):
            return [self.read(values) for values in found]
        return read_rows

    def _damage(self, values: Sequence[Any]) -> RowDamaged:
        complaints = []
        for name, read, value in zip(self.names, self._readers, values, strict=True):
            try:
                read(value)
            except (ValueError, RecursionError) as problem:
                complaints.append(f"{self.name}.{name} {problem}")
        return RowDamaged("; ".join(complaints))

    def write(self, row: R) -> list[Any]:
        """Encode a row, in the order of `columns`."""
        values: list[Any] = list(row)
        for place, write in self._writers:
            values[place] = write(values[place])
        return values


def _read_column(read: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    if len({*map(type, column)} - {type(None)}) > 1:
        return [read(value) for value in column]  # 1 and 1.0 are equal, but not to every reader
    known = {value: read(value) for value in set(column)}
    return list(map(known.__getitem__, column))


_SAMPLE: dict[Callable[[Any], Any], str] = {_read_answer: '["",false]'}
"""A text that passes, for prose of a form; what reads such prose copes with any other."""

AGENTS = Table("agents", AgentRow, "id", with_agent=True, contradiction=_agent_contradicts_itself)
TURNS = Table("turns", TurnRow, "agent", with_agent=True, contradiction=_turn_contradicts_itself)
ITEMS = Table("items", ItemRow, "agent", with_agent=True, contradiction=_item_contradicts_itself)
EVENTS = Table("events", EventRow, "agent", contradiction=_event_contradicts_itself)
REMINDERS = Table("reminders", ReminderRow, "agent")
CALLS = Table("calls", CallRow, "agent")
FINDINGS = Table("findings", FindingRow, "agent")
DROPPED_TURNS = Table("dropped_turns", DroppedTurnRow, "agent")
REMOVED_AGENTS = Table("removed_agents", RemovedAgentRow)
MOUNT_POINTS = Table("mount_points", MountPointRow)
DAMAGED = Table("damaged", DamagedRow)

TABLES: tuple[Table[Any], ...] = (
    AGENTS, TURNS, ITEMS, EVENTS, REMINDERS, CALLS, FINDINGS, DROPPED_TURNS, REMOVED_AGENTS, MOUNT_POINTS, DAMAGED,
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
