"""Reads a running turn's output: follows the file, decodes its lines and records them in batches."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents.stop_reason import AFTER_RESULT
from substrat.core.programs import lenient
from substrat.core.programs.ndjson import Line, Splitter
from substrat.core.programs.program import gets_further
from substrat.core.programs.table import decoder, result_of, session_of
from substrat.daemon.kernel import descriptors
from substrat.daemon.kernel.tail import Cut, Tail
from substrat.daemon.state.storing import FULL_DISK_PAUSE, Patience, until_stored
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from substrat.core.programs.program import LineEvent, TurnResult
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.kernel.inotify import ChangeFlag
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.stop_request import StopRequest

    FindObstacles = Callable[[frozenset[str]], Awaitable[Mapping[str, str]]]

log = structlog.get_logger("substrat.output")

_BATCH = 200
"""Lines in a transaction: one commit for each line would make the disk the bottleneck of a flood."""
_BYTES_PER_LINE, _FEWEST_LINES = 256, 1000
"""How many lines `disk.turn_output` stands for: an event costs the state that much however short its line is."""
_BATCH_BYTES = 64 * 1024
"""Lines that are decoded and recorded without letting others have their turn: some milliseconds. A longer line is decoded
in a thread."""
_MOST_CUTS = 100
"""How often a turn's output may be cut: each time is an event, and an agent that cuts it takes nothing of the disk."""
_LAST_READING_SECONDS = 10.0
"""How long the output of a turn that was stopped is read on, once its processes are gone, before who stopped it is
answered: enough for a hundred thousand lines."""
_URGENT_WRITES = 5
"""How many batches of a turn's output are recorded on a full disk once the turn is being stopped: enough for its
last words. The rest stays unread in its file, because the room that is kept for stopping turns must do for all of them."""


@attrs.define(kw_only=True, eq=False)
class TurnOutput:
    """The output of one running turn, `<turn>/stdout`.

    Args:
        turn: the turn's id.
        place: its directory.
        offset: the byte to read on from.
        observer: records the lines.
        longest: how many bytes the turn may write; 0: no limit.
        stop: whether the turn is to be stopped.
        exited: set when the turn's processes are gone.
        obstacles: says of sessions that the agent has named which aren't its own, and why.
    """

    _turn: str
    _place: TurnDir
    _offset: int
    _observer: Accounting
    _longest: int
    _stop: StopRequest
    _exited: trio.Event
    _obstacles: FindObstacles
    result: TurnResult | None = attrs.field(init=False, default=None)
    result_seen: trio.Event = attrs.field(init=False, factory=trio.Event)
    stalled_since: float | None = attrs.field(init=False, default=None)
    """Since when no line shows that the turn gets further, by Trio's clock; None: the last one does."""
    _decode_line: Callable[[Line], LineEvent] = attrs.field(init=False, factory=decoder)
    _lines: int = attrs.field(init=False, default=0)
    _cuts: int = attrs.field(init=False, default=0)
    _read_until: float | None = attrs.field(init=False, default=None)
    _is_unread: bool = attrs.field(init=False, default=False)
    _urgent_writes: int = attrs.field(init=False, default=_URGENT_WRITES)
    _is_too_long: bool = attrs.field(init=False, default=False)

    def find_result(self) -> None:
        """Look up a result that an earlier daemon recorded: it has read that line, and this one won't."""
        self.result = self._observer.result_seen(self._turn)
        if self.result is not None:
            self.result_seen.set()

    async def follow(self, change: ChangeFlag, done: trio.Event) -> None:
        """Read and record the output until the turn has exited and all of it is read, then set `done`.

        Args:
            change: wakes when a file in the turn's directory has changed.
            done: set at the end.
        """
        splitter, too_much = Splitter(self._offset), 0
        tail = await self._open_output()
        if tail is None:
            done.set()
            return
        try:
            while True:
                over = self._exited.is_set()
                found = b"" if self._is_unread else tail.read()
                if isinstance(found, Cut):
                    self._cuts += 1
                    if self._cuts > _MOST_CUTS:
                        await self._leave_unread(found.position, f"the agent has cut its own output {_MOST_CUTS} times")
                    elif await self._recorded(
                        partial(self._observer.turn_truncated, self._turn, found.size, found.expected)
                    ):
                        splitter = Splitter(found.position)
                    else:
                        await self._leave_unread(found.position)
                elif found:
                    await self._take(splitter.feed(found))
                    # A file can be said to be longer than anybody could read.
                    too_much += len(found) if self._is_too_long else 0
                    if too_much > self._longest:
                        await self._stop_reading(splitter.consumed)
                    await trio.lowlevel.checkpoint()
                elif over:
                    break
                else:
                    await change.wait()
        finally:
            tail.close()
        await self._take(splitter.finish())
        done.set()

    async def _open_output(self) -> Tail | None:
        """Open the turn's output, as soon as there is a descriptor for it; None when there is no such file."""
        while True:
            try:
                return Tail(self._place.stdout, self._offset)
            except FileNotFoundError:
                return None
            except OSError as problem:
                if not descriptors.is_short(problem):
                    raise
                log.error("waiting to read a turn's output", reason=descriptors.sentence(problem))  # noqa: TRY400
            await trio.sleep(FULL_DISK_PAUSE)

    async def _take(self, lines: Iterator[Line]) -> None:
        """Pass lines on in batches, so that a flood of short ones doesn't hold up everybody else."""
        most = max(_FEWEST_LINES, self._longest // _BYTES_PER_LINE) if self._longest else None
        batches = _batches(lines)
        while not self._is_unread and (batch := next(batches, None)):
            self._lines += len(batch)
            if most is not None and self._lines > most:
                await self._stop_reading(batch[0].offset)
                return
            if self._reads_too_long():
                await self._leave_unread(
                    batch[0].offset, "the turn was stopped, and there is more of it than can be read quickly"
                )
                return
            decoded = await self._decode(batch)
            last = batch[-1]
            if not await self._note(decoded, last.offset + last.length + last.ended):
                await self._leave_unread(batch[0].offset)
                return
            await trio.lowlevel.checkpoint()

    async def _decode(self, batch: list[Line]) -> list[tuple[Line, LineEvent]]:
        """Decode lines; a long one in a thread, because an agent decides how much there is in it."""
        if len(batch) > 1 or batch[0].length <= _BATCH_BYTES:
            return [(line, self._decode_line(line)) for line in batch]
        return [(batch[0], await trio.to_thread.run_sync(_decode_whole, batch[0], self._decode_line))]

    def _reads_too_long(self) -> bool:
        """Say whether the person who stopped the turn has waited long enough for its last output."""
        if not self._exited.is_set() or not self._stop.is_asked:
            return False
        if self._read_until is None:
            self._read_until = trio.current_time() + _LAST_READING_SECONDS
        return trio.current_time() > self._read_until

    async def _stop_reading(self, offset: int) -> None:
        """Stop a turn that has written too many lines to be events, however few bytes they are."""
        self._is_unread = True
        text = f"what the agent wrote from byte {offset} on is too much to be read; it is in {self._place.stdout}"
        await until_stored(lambda: self._observer.turn_note(self._turn, "turn:output-unread", text, Patience.TURNS_END))
        await self.tell_too_long()

    async def _leave_unread(self, offset: int, why: str = "the disk is full") -> None:
        """Read no further in a turn's output."""
        self._is_unread = True
        where = self._place.stdout
        text = f"what the agent wrote from byte {offset} on isn't read, because {why}; it is in {where}"
        await until_stored(lambda: self._observer.turn_note(self._turn, "turn:output-unread", text, Patience.TURNS_END))

    async def tell_too_long(self) -> None:
        """Stop the turn, once, because it has written more than it may."""
        if not self._is_too_long:
            self._is_too_long = True
            await until_stored(lambda: self._observer.turn_output_too_long(self._turn, self._longest))

    async def _note(self, decoded: list[tuple[Line, LineEvent]], offset: int) -> bool:
        """Record lines; returns whether that could be done."""
        named = frozenset(filter(None, (session_of(event) for _, event in decoded if event.kind == "system:init")))
        obstacles = await self._obstacles(named) if named else {}
        if not await self._recorded(partial(self._observer.turn_lines, self._turn, decoded, offset, obstacles)):
            return False
        if any(gets_further(event.kind) for _, event in decoded):
            self.stalled_since = None
        elif self.stalled_since is None:
            self.stalled_since = trio.current_time()
        for _, event in decoded:
            if (result := result_of(event)) is not None:
                self.result = result
                self.result_seen.set()
        return True

    async def _recorded(self, write: Callable[..., None]) -> bool:
        """Record a piece of the output, and wait for room on a full disk until the turn is to be stopped.

        Once the turn is being stopped and has used up its share of that room, it isn't written, and False is returned.
        """
        while True:
            is_stopping = self._stop.is_asked
            try:
                write()
            except StorageFailed as problem:
                if is_stopping and not self._urgent_writes:
                    return False
                log.error("waiting to write the state", reason=problem.message)  # noqa: TRY400 - the sentence says it all
            else:
                return True
            if is_stopping:
                self._urgent_writes -= 1
                with suppress(StorageFailed):  # then the reserve is used up, and it is given up after a few more tries
                    write(patience=Patience.URGENT)
                    return True
            with trio.move_on_after(FULL_DISK_PAUSE):
                if not self._stop.wanted.is_set():
                    await self._stop.wanted.wait()
                # A stop that is asked for meanwhile lets the reserve be used, so the next try comes at once. The pause is
                # whole if it was asked for before, or if the program is only stopped because it goes on after its result.
                await trio.sleep(FULL_DISK_PAUSE if is_stopping or self._stop.reason == AFTER_RESULT else 0)


def _batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Put lines together that are recorded at once."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= _BATCH or size + line.length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.length
    if batch:
        yield batch


def _decode_whole(line: Line, decode: Callable[[Line], LineEvent]) -> LineEvent:
    """Decode a line, and write it anew where the journal would have to."""
    event = decode(line)
    if event.body is None or event.verbatim:
        return event
    return event._replace(written=lenient.as_json(event.body))
