"""The journal: stores the events of all agents, replays them from any cursor, tells those that follow them.

A row says where in the turn's stdout file the agent's line is, and its checksum; the line itself stays there. The newest
events are also kept in memory, encoded, so that any number of followers cost one encoding.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.core.agents import totals
from substrat.core.programs import lenient
from substrat.core.programs.program import gets_further
from substrat.daemon.state.archive import Archives
from substrat.daemon.state.event_json import EncodedEvent, EventJson, encode, event_json, fitting, read_event, text_of
from substrat.daemon.state.event_lines import LineReader
from substrat.daemon.state.followers import Followers
from substrat.daemon.state.rows import EventRow
from substrat.errors import CursorUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from substrat.core.programs.ndjson import Line
    from substrat.core.programs.program import LineEvent
    from substrat.daemon.state.store import Store

_RECENT_EVENTS = 4096
"""Events kept in memory, so that followers that keep up never read from disk."""
_RECENT_BYTES = 8 * 1024 * 1024
"""The most memory that they take, however long the lines are."""
_PAGE = 256
"""Events of a page: enough to make the cost of a request small beside theirs."""
_MOST_SEGMENTS = 1000
"""Segments of a turn's text; each is read from disk."""
_MOST_SAID = 16 * 1024 * 1024
"""Bytes of a turn's lines that are read on the loop for its text: some tens of milliseconds at the turn's end."""
_PAGE_BYTES = 8 * 1024 * 1024
"""Bytes after which a page ends: one answer must not take the memory of the daemon or its client."""
_COUNTED = 4096
"""Events counted back without letting others have their turn: SQLite takes a millisecond or two for as many."""
SLICE_EVENTS = 64
"""Events read back without letting others have their turn: some 20 µs each, so a slice takes one to two milliseconds."""
SLICE_BYTES = 64 * 1024
"""Bytes of lines in a slice: decoding as many takes about a millisecond, or some where they are no strict JSON."""
_BEGUN, _ENDED = "tool-call-started", "tool-call-completed"
_ACTS = frozenset({_BEGUN, _ENDED})
_ACT_LENGTH = 200
"""Characters of an agent's last act: it is one column of a list, and kept for each agent."""
_THREAD_BYTES = SLICE_BYTES
"""A longer line is read and decoded in a thread: on the loop it would be a slice of several milliseconds by itself."""


class Act(NamedTuple):
    """The last thing an agent was seen doing: a tool call or a status of its own, since when in seconds since the epoch."""

    text: str
    since: float


class _Calls(NamedTuple):
    """The tool calls of a turn that have begun and not ended: how many, and the newest that has begun."""

    turn: str
    open: int
    newest: str


class DaemonEvent(NamedTuple):
    """An event of the daemon's own about an agent, such as `agent:spawned`.

    Args:
        agent: the agent's id.
        turn: the id of the turn in which it happened, None between turns.
        kind: its kind.
        text: one sentence for people.
        data: the same for programs (docs/protocol.md, "Kinds"); `by` says who did it, for example `ctl` or `agent:lead`.
        cause: the cursor of the event that led to it, None where a person or the daemon itself did.
    """

    agent: str
    turn: str | None
    kind: str
    text: str
    data: Mapping[str, object] | None = None
    cause: int | None = None


class Journal:
    """All events of one state directory.

    Args:
        store: where they are kept.
        stdout_of: finds a turn's stdout file from the agent's and the turn's id; None when it is gone.
        now: the clock, in seconds since the epoch.
    """

    def __init__(self, store: Store, stdout_of: Callable[[str, str], str | None], now: Callable[[], float]) -> None:
        self._store = store
        self._stdout_of = stdout_of
        self._now = now
        self._recent: deque[EncodedEvent] = deque()
        self._recent_bytes = 0
        self._forgotten = self._removed = store.last_cursor()
        if not store.journal_id():  # it is the first daemon's, or a damaged one was set aside
            with store.transaction(urgent=True):
                store.name_journal()
        self.id = store.journal_id()
        self._open = False
        self.followers = Followers()
        self._archives = Archives()
        self._heard: dict[str, float] = {}
        self._acts: dict[str, Act | None] = {}
        self._calls: dict[str, _Calls] = {}
        """The calls of running turns that were asked for; a turn's others are counted when it is first asked for them."""
        # Of their own, because a thread may be using them while the loop uses the others.
        self._page_archives = Archives()
        self._reading = trio.Lock()
        self._edits = 0

    @property
    def last_cursor(self) -> int:
        """The newest event's cursor, also when that was removed."""
        return max(self._removed, self._recent[-1].cursor if self._recent else self._forgotten)

    def record(self, *events: DaemonEvent) -> list[int]:
        """Store events of the daemon's own, and return their cursors.

        To be called inside `transaction`, which announces them after its commit.
        """
        now = self._now()
        rows = [_row(told, now) for told in events]
        for told in events:
            if told.kind == "agent:status":
                self._acts[told.agent] = _act(told.text, now)
        stored = self._store.add_events(rows)
        self._store.add_to_totals(totals.of_events(told.kind for told in events))
        self._keep([encode(row, None) for row in stored])
        return [row.cursor for row in stored]

    def append(self, agent: str, turn: str, lines: Sequence[tuple[Line, LineEvent]]) -> None:
        """Store an agent's lines; to be called inside `transaction`, like `record`."""
        now = self._now()
        rows = [
            EventRow(0, agent, turn, now, event.kind, _stored_text(event), line.offset, line.length, zlib.crc32(line.data))
            for line, event in lines
        ]
        stored = self._store.add_events(rows)
        if any(gets_further(event.kind) for _, event in lines):
            self._heard[agent] = now
        acts = [event for _, event in lines if event.kind in _ACTS]
        if acts:
            self._acts[agent] = _act(acts[-1].text, now)
            self._store.add_to_totals(totals.of_events(event.kind for event in acts))
            self._count_calls(agent, turn, acts)
        self._keep([encode(row, event, line.data) for row, (line, event) in zip(stored, lines, strict=True)])

    def heard_at(self, agent: str) -> float:
        """Return when an agent's turn last got further by a line, in seconds since the epoch; 0.0: never."""
        if agent not in self._heard:
            self._heard[agent] = self._store.last_line_at(agent) or 0.0
        return self._heard[agent]

    def last_act(self, agent: str) -> Act | None:
        """Return an agent's last tool call or status; None when there was none in its last thousand events."""
        if agent not in self._acts:
            row = self._store.last_act(agent)
            if row is None:
                self._acts[agent] = None
            else:
                with self._reader() as reader:
                    self._acts[agent] = _act(row.text if row.text is not None else text_of(reader, row), row.time)
        return self._acts[agent]

    def open_call(self, agent: str, turn: str) -> str | None:
        """Return the newest tool call of a running turn that has begun, in one line, while any of them has not ended."""
        calls = self._calls.get(agent)
        if calls is None or calls.turn != turn:
            begun, ended = (self._store.count_events_of_turn(agent, turn, kind) for kind in (_BEGUN, _ENDED))
            row = self._store.last_event_of_turn(agent, turn, _BEGUN) if begun > ended else None
            text = ""
            if row is not None:
                with self._reader() as reader:
                    text = _act(text_of(reader, row), row.time).text
            calls = self._calls[agent] = _Calls(turn, begun - ended, text)
        return calls.newest if calls.open > 0 else None

    def _count_calls(self, agent: str, turn: str, acts: Sequence[LineEvent]) -> None:
        calls = self._calls.get(agent)
        if calls is None or calls.turn != turn:
            return
        for event in acts:
            if event.kind == _BEGUN:
                calls = _Calls(turn, calls.open + 1, _act(event.text, 0.0).text)
            else:
                calls = calls._replace(open=calls.open - 1)
        self._calls[agent] = calls

    @contextmanager
    def transaction(self, *, urgent: bool = False) -> Iterator[None]:
        """A transaction of the store after which followers are told; nothing is announced when it fails.

        Inside another one it is part of that one.

        Args:
            urgent: whether it may use the room that is kept for a full disk.
        """
        if self._open:
            yield
            return
        self._open = True
        mark, kept_bytes = len(self._recent), self._recent_bytes
        try:
            with self._store.transaction(urgent=urgent):
                yield
        except BaseException:
            while len(self._recent) > mark:
                self._recent.pop()
            self._recent_bytes = kept_bytes
            self._calls.clear()
            raise
        finally:
            self._open = False
        self._publish(mark)

    def forget(self, agent: str) -> None:
        """Drop an agent's events from memory, after they were deleted from the store."""
        self._heard.pop(agent, None)
        self._acts.pop(agent, None)
        self._calls.pop(agent, None)
        self._keep_only(lambda event: event.agent != agent)

    def delete(self, cursors: Collection[int]) -> None:
        """Delete events, of an agent that stays; a transaction of its own."""
        with self._store.transaction():
            self._store.delete_events(cursors)
        gone = frozenset(cursors)
        self._keep_only(lambda event: event.cursor not in gone)

    def delete_of(self, agent: str, most: int) -> int:
        """Delete some events of a removed agent, as `delete_events_of`, in a transaction of its own."""
        with self._store.transaction():
            return self._store.delete_events_of(agent, most)

    def _keep_only(self, wanted: Callable[[EncodedEvent], bool]) -> None:
        self._edits, self._removed = self._edits + 1, self.last_cursor
        kept = [event for event in self._recent if wanted(event)]
        if kept:
            self._recent = deque(kept)
        elif self._recent:
            self._forgotten = self._recent[-1].cursor
            self._recent.clear()
        self._recent_bytes = sum(len(event.json) for event in kept)

    def page(self, cursor: int, agent: str | None, limit: int = _PAGE) -> list[EncodedEvent]:
        """Return the next events after a cursor, from memory when it holds them all; only at the end there are none."""
        if cursor >= self._forgotten:
            start = bisect_right(self._recent, cursor, key=lambda event: event.cursor)
            found = []
            for index in range(start, len(self._recent)):
                if agent is None or self._recent[index].agent == agent:
                    found.append(self._recent[index])
                    if len(found) >= limit:
                        break
            return found
        return self._from_disk(self._store.events_after(cursor, agent, limit))

    async def start_of(self, since: int | None, agent: str | None, journal: str | None = None) -> int:
        """Translate a client's `since`: None is now, negative counts from the end.

        Args:
            since: the cursor to start after.
            agent: the agent whose events are counted.
            journal: the id of the journal that the client has the cursor from; None: it doesn't say.

        Raises:
            CursorUnknown: the cursor is another journal's, or none that an event has had yet.
        """
        newest = f"its newest cursor is {self.last_cursor}; start there, or at 0, the beginning"
        if journal not in {None, self.id}:
            raise CursorUnknown(f"the daemon's journal is {self.id}, not {journal}: {newest}")
        if since is None:
            return self.last_cursor
        if since > self.last_cursor:
            raise CursorUnknown(f"the journal {self.id} has no cursor {since}: {newest}")
        if since >= 0:
            return since
        cursor, left = self.last_cursor + 1, 1 - since
        while cursor and left:
            step = min(left, _COUNTED)
            cursor, left = self._store.cursor_back(cursor, step, agent), left - step
            await trio.lowlevel.checkpoint()
        return cursor

    def said(self, agent: str, turn: str, after: int = 0) -> list[str]:
        """Return an agent's text in a turn after a cursor, segment by segment: in some dialects the result lacks it."""
        rows = self._store.events_of_turn(agent, turn, "assistant", _MOST_SEGMENTS, after=after)
        ends = accumulate(row.length or 0 for row in rows)
        with self._reader() as reader:
            return [text_of(reader, row) for row, end in zip(rows, ends, strict=True) if end <= _MOST_SAID]

    def said_last(self, agent: str, turn: str) -> list[str] | None:
        """Return an agent's text after its last tool call in a turn, segment by segment; None when it has called no tool.

        None too when its lines have no text of their own, so that only the turn's result has any.
        """
        calls = [self._store.last_event_of_turn(agent, turn, kind) for kind in _ACTS]
        last = max((row.cursor for row in calls if row is not None), default=None)
        if last is None or self._store.last_event_of_turn(agent, turn, "assistant") is None:
            return None
        return self.said(agent, turn, last)

    def last_passage(self, agent: str, turn: str) -> str:
        """Return an agent's last text in a turn, empty when it wrote none."""
        row = self._store.last_event_of_turn(agent, turn, "assistant")
        if row is None:
            return ""
        with self._reader() as reader:
            return text_of(reader, row)

    def line_of(self, row: EventRow) -> bytes | None:
        """Read one event's line from the turn's output, as `LineReader.line_of` does."""
        with self._reader() as reader:
            return reader.line_of(row)

    def _reader(self) -> LineReader:
        return LineReader(self._stdout_of, self._archives)

    async def read(
        self, cursor: int, agent: str | None, limit: int = _PAGE, most: int = _PAGE_BYTES, *, lines: bool = False
    ) -> list[EventJson]:
        """Return the next events after a cursor, ready to be sent; only at the end there are none.

        Those that memory doesn't hold are read and decoded in slices, between which every other task gets its turn. One
        page is read at a time: readers queue, so that a hundred of them hold the loop no longer than one.

        Args:
            cursor: the event before the first one.
            agent: only this agent's events.
            limit: how many events at most.
            most: the bytes after which the page ends.
            lines: whether each event is given the agent's line (`with_line`).
        """
        if not lines and cursor >= self._forgotten:
            return fitting(self.page(cursor, agent, limit), most)
        async with self._reading:
            while True:
                found, whole = await self._read_page(cursor, agent, limit, most, lines=lines)
                if found or whole:
                    return found

    async def _read_page(
        self, cursor: int, agent: str | None, limit: int, most: int, *, lines: bool
    ) -> tuple[list[EventJson], bool]:
        """Return a page, and whether it was read to its end: events that were deleted meanwhile end it early."""
        recent = self.page(cursor, agent, limit) if cursor >= self._forgotten else None
        stored = self._store.events_after(cursor, agent, limit) if recent is None else []
        rows: Sequence[EventRow | EncodedEvent] = recent if recent is not None else stored
        edits, size, events, read = self._edits, 0, 0, 0
        found: list[EventJson] = []
        with LineReader(self._stdout_of, self._page_archives) as reader:
            for item in rows:
                row = item.row if isinstance(item, EncodedEvent) else item
                if (row.length or 0) > _THREAD_BYTES:
                    reader.prepare(row)
                    ready = await trio.to_thread.run_sync(event_json, reader, item, lines)
                    events = read = 0
                else:
                    if events >= SLICE_EVENTS or read >= SLICE_BYTES:
                        await trio.lowlevel.checkpoint()
                        events = read = 0
                        if self._edits != edits:
                            return found, False
                    ready = event_json(reader, item, lines)
                    events += 1
                    read += row.length or 0
                if self._edits != edits:
                    return found, False
                found.append(ready)
                size += len(ready.json)
                if size > most:
                    break
        return found, True

    def _from_disk(self, rows: list[EventRow]) -> list[EncodedEvent]:
        encoded: list[EncodedEvent] = []
        size = 0
        with self._reader() as reader:
            for row in rows:
                if size > _PAGE_BYTES:
                    break
                encoded.append(read_event(reader, row)[0])
                size += len(encoded[-1].json)
        return encoded

    def _keep(self, events: list[EncodedEvent]) -> None:
        self._recent.extend(events)
        self._recent_bytes += sum(len(event.json) for event in events)

    def _publish(self, mark: int) -> None:
        fresh = [self._recent[index] for index in range(mark, len(self._recent))]
        while len(self._recent) > _RECENT_EVENTS or self._recent_bytes > _RECENT_BYTES:
            oldest = self._recent.popleft()
            self._recent_bytes -= len(oldest.json)
            self._forgotten = oldest.cursor
        if fresh:
            self.followers.tell({event.agent for event in fresh})


def _row(told: DaemonEvent, now: float) -> EventRow:
    # A text may hold a file's name, which may be in no encoding.
    text, data = lenient.tame_text(told.text), lenient.as_json(dict(told.data)).decode() if told.data is not None else None
    return EventRow(0, told.agent, told.turn, now, told.kind, text, None, None, None, data, told.cause)


def _act(text: str | None, since: float) -> Act:
    line = " ".join((text or "")[: 4 * _ACT_LENGTH].split())
    return Act(line if len(line) <= _ACT_LENGTH else line[: _ACT_LENGTH - 1] + "…", since)


def _stored_text(event: LineEvent) -> str | None:
    """Store the text only where the line alone doesn't give it: a completed call is told with its beginning."""
    return event.text if event.kind == "tool-call-completed" else None
