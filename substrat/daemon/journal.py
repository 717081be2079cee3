"""The events of all agents: stored with what they report, replayed from any cursor, followed live; it decides nothing.

A row says where in the turn's stdout file the agent's line is, and its checksum; the line itself stays there. The newest
events are also kept in memory, encoded, so that any number of followers cost one encoding.
"""

from __future__ import annotations

import base64
import os
import zlib
from bisect import bisect_right
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from substrat.core import stream
from substrat.core.ndjson import Line
from substrat.core.prompts import timestamp
from substrat.daemon.archive import SUFFIX, ArchiveDamaged, Archives
from substrat.daemon.store import EventRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from substrat.daemon.store import Store

_RECENT_EVENTS = 4096
_RECENT_BYTES = 8 * 1024 * 1024
_PAGE = 256
_MOST_SEGMENTS = 1000
_PAGE_BYTES = 8 * 1024 * 1024
_MAX_RAW = 8 * 1024 * 1024
"""A longer line is not sent inside an event; it stays in the turn's stdout file."""


class Encoded(NamedTuple):
    """An event ready to be sent: the JSON text of the event object, and where the agent's line is."""

    cursor: int
    agent: str
    json: bytes
    row: EventRow


class Told(NamedTuple):
    """Something the daemon itself has to say about an agent."""

    agent: str
    turn: str | None
    kind: str
    text: str


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
        self._recent: deque[Encoded] = deque()
        self._recent_bytes = 0
        self._forgotten = store.last_cursor()
        self._open = False
        self._followers: dict[str | None, set[trio.Event]] = {}
        self._archives = Archives()

    @property
    def last_cursor(self) -> int:
        """The newest event's cursor."""
        return self._recent[-1].cursor if self._recent else self._forgotten

    def tell(self, *events: Told) -> None:
        """Store events of the daemon's own. Inside a transaction of the store they are part of it.

        To be called inside `transaction`, which announces them after its commit.
        """
        now = self._now()
        rows = [EventRow(0, told.agent, told.turn, now, told.kind, told.text, None, None, None) for told in events]
        self._keep([_encode(row, None) for row in self._store.add_events(rows)])

    def append(self, agent: str, turn: str, lines: Sequence[tuple[Line, stream.Event]]) -> None:
        """Store an agent's lines; to be called inside `transaction`, like `tell`."""
        now = self._now()
        rows = [
            EventRow(0, agent, turn, now, event.kind, _stored_text(event), line.offset, line.length, zlib.crc32(line.data))
            for line, event in lines
        ]
        stored = self._store.add_events(rows)
        self._keep([_encode(row, event, line.data) for row, (line, event) in zip(stored, lines, strict=True)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of the store after which followers are told; nothing is announced when it fails.

        Inside another one it is part of that one.
        """
        if self._open:
            yield
            return
        self._open = True
        mark, kept_bytes = len(self._recent), self._recent_bytes
        try:
            with self._store.transaction():
                yield
        except BaseException:
            while len(self._recent) > mark:
                self._recent.pop()
            self._recent_bytes = kept_bytes
            raise
        finally:
            self._open = False
        self._publish(mark)

    def forget(self, agent: str) -> None:
        """Drop an agent's events from memory, after they were deleted from the store."""
        self._keep_only(lambda event: event.agent != agent)

    def delete(self, cursors: Collection[int]) -> None:
        """Delete events, of an agent that stays; a transaction of its own."""
        with self._store.transaction():
            self._store.delete_events(cursors)
        gone = frozenset(cursors)
        self._keep_only(lambda event: event.cursor not in gone)

    def _keep_only(self, wanted: Callable[[Encoded], bool]) -> None:
        kept = [event for event in self._recent if wanted(event)]
        if kept:
            self._recent = deque(kept)
        elif self._recent:
            self._forgotten = self._recent[-1].cursor
            self._recent.clear()
        self._recent_bytes = sum(len(event.json) for event in kept)

    def page(self, cursor: int, agent: str | None, limit: int = _PAGE) -> list[Encoded]:
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

    def start_of(self, since: int | None, agent: str | None) -> int:
        """Translate a client's `since`: None is now, negative counts from the end."""
        if since is None:
            return self.last_cursor
        return since if since >= 0 else self._store.cursor_before_last(-since, agent)

    @contextmanager
    def following(self, agent: str | None) -> Iterator[Callable[[], trio.Event]]:
        """Register a follower; the function it gets returns an event that is set by the next publication.

        Take the event first, then read pages until one is empty, then wait for it: nothing is missed.
        """
        followers = self._followers.setdefault(agent, set())
        waiting: list[trio.Event] = []

        def next_event() -> trio.Event:
            event = trio.Event()
            for old in waiting:
                followers.discard(old)
            waiting[:] = [event]
            followers.add(event)
            return event

        try:
            yield next_event
        finally:
            for old in waiting:
                followers.discard(old)
            if not followers:
                self._followers.pop(agent, None)

    def said(self, agent: str, turn: str) -> str:
        """Return what an agent said in a turn, segment after segment: in some dialects the result doesn't repeat it."""
        texts: list[str] = []
        for row in self._store.events_of_turn(agent, turn, "assistant", _MOST_SEGMENTS):
            data = self.line_of(row)
            if data is not None:
                line = Line(row.offset or 0, row.length or 0, data.removesuffix(b"\n"))
                texts.append(stream.decode(line).text or "")
        return "".join(texts)

    def line_of(self, row: EventRow) -> bytes | None:
        """Read an event's line from the turn's output, with its newline if it has one, cut at `_MAX_RAW` bytes.

        Returns:
            The bytes, or None when they aren't there or aren't the same any more.
        """
        if row.offset is None or row.length is None or row.turn is None:
            return None
        path = self._stdout_of(row.agent, row.turn)
        if path is None:
            return None
        if row.offset < 0 or row.length < 0:
            return None
        kept = min(row.length, _MAX_RAW)
        with suppress(OSError, ArchiveDamaged):
            data = self._bytes_at(path, row.offset, kept + 1)
            if zlib.crc32(data[:kept]) == row.checksum:
                return data if kept == row.length else data[:kept]
        return None

    def _bytes_at(self, path: str, offset: int, length: int) -> bytes:
        """Read from a turn's stdout file, or from the archive that has taken its place."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._archives.read(path + SUFFIX, offset, length)
        try:
            return os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)

    def _from_disk(self, rows: list[EventRow]) -> list[Encoded]:
        encoded: list[Encoded] = []
        size = 0
        for row in rows:
            if size > _PAGE_BYTES:
                break
            data = self.line_of(row)
            if data is None:
                encoded.append(_encode(row, None))
            else:
                data = data.removesuffix(b"\n")
                line = Line(row.offset or 0, row.length or 0, data)
                encoded.append(_encode(row, stream.decode(line), data))
            size += len(encoded[-1].json)
        return encoded

    def _keep(self, events: list[Encoded]) -> None:
        self._recent.extend(events)
        self._recent_bytes += sum(len(event.json) for event in events)

    def _publish(self, mark: int) -> None:
        fresh = [self._recent[index] for index in range(mark, len(self._recent))]
        while len(self._recent) > _RECENT_EVENTS or self._recent_bytes > _RECENT_BYTES:
            oldest = self._recent.popleft()
            self._recent_bytes -= len(oldest.json)
            self._forgotten = oldest.cursor
        for key in {None, *(event.agent for event in fresh)} if fresh else ():
            for event in self._followers.get(key, ()):
                event.set()


def with_line(event: Encoded, line: bytes | None) -> bytes:
    """Return an event's JSON with `line`, the agent's bytes in base64, and `line_size`, how many the line has.

    Both count the newline, which the last line of a program that was killed hasn't got.
    """
    if line is None:
        return event.json
    size = max(len(line), event.row.length or 0)
    extra = f',"line":"{base64.b64encode(line).decode()}","line_size":{size}}}'
    return event.json[:-1] + extra.encode()


def _stored_text(event: stream.Event) -> str | None:
    """Store the text only where the line alone doesn't give it: a completed call is told with its beginning."""
    return event.text if event.kind == "tool-call-completed" else None


def _moment(seconds: float) -> str:
    """Write a time; a damaged row's that is none must not keep anybody from reading the others."""
    try:
        return timestamp(seconds)
    except (ValueError, OverflowError, OSError):
        return timestamp(0.0)


def _encode(row: EventRow, event: stream.Event | None, data: bytes = b"") -> Encoded:
    text = row.text if row.text is not None or event is None else event.text
    raw: object = None
    if event is not None and event.body is not None and len(data) <= _MAX_RAW:
        raw = msgspec.Raw(data) if event.verbatim else msgspec.Raw(stream.as_json(event.body))
    elif event is None and row.offset is not None:
        text = text or "[this line was removed from the turn's output]"
    body = {
        "cursor": row.cursor,
        "agent": row.agent,
        "turn": row.turn,
        "time": _moment(row.time),
        "kind": row.kind,
        "text": text,
        "raw": raw,
    }
    return Encoded(row.cursor, row.agent, msgspec.json.encode(body), row)
