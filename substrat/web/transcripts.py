"""Puts transcripts together page by page, from an agent's events and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from substrat.core.programs.transcript import Transcript, TranscriptDocument
from substrat.web.pages import Encoded, Page, limit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.client import Client
    from substrat.protocol import objects
    from substrat.web.pages import Object

MOST_OF_TRANSCRIPT = 10_000
"""Events of a page of a transcript, put together in a second or two, in slices."""
_EVENTS = 256
"""Events of a slice, which are decoded and put together in three milliseconds; fewer would cost more requests than work."""
_MOST_CHARACTERS = 8 * 1024 * 1024
"""Characters after which a page of a transcript ends: few events may be long ones."""


async def transcript_page(client: Client, _: str, params: Object) -> object:
    """Put some of an agent's events together, as `substratctl transcript --json` does with all.

    A page ends where nothing is held back, so that no speech and no call is cut in two, unless one is as long as a page.
    """
    agent, limit = await client.show(str(params["agent"])), limit_of(params, MOST_OF_TRANSCRIPT)
    cursor = cast("int", params.get("after", 0))
    turns: dict[str, objects.TurnObject] = {}
    document, transcript = TranscriptDocument(agent, turns), Transcript(midway=cursor > 0)
    pieces, number, size, is_over = [document.head()], 0, 0, False
    rest: tuple[int, int, str] | None = None  # how many pieces, of the events up to which cursor, and what ends them
    while not is_over and limit > 0 and size < _MOST_CHARACTERS:
        page, cursor = await client.read_events(agent["id"], cursor, min(limit, _EVENTS))
        number = await _fill(client, agent, turns, page, number)
        for event in page:
            made = [document.piece(step) for step in transcript.feed(cast("Object", event))]
            pieces += made
            size += sum(map(len, made))
            if transcript.is_at_rest:
                rest = len(pieces), event["cursor"], document.tail()
        limit, is_over = limit - len(page), not page
    if is_over or rest is None:
        pieces += [document.piece(step) for step in transcript.finish()]
        tail = document.tail()
    else:
        kept, cursor, tail = rest
        del pieces[kept:]
    return Page(Encoded("".join((*pieces, tail)).encode()), cursor if not is_over else None)


async def _fill(
    client: Client,
    agent: objects.WholeAgentObject,
    turns: dict[str, objects.TurnObject],
    events: Sequence[objects.EventObject],
    after: int,
) -> int:
    """Fetch turn objects, oldest first, until those of the events are there; returns the number to read on after."""
    wanted = {event["turn"] for event in events} - {None}
    if wanted and not turns:
        after = await _before(client, agent, events[0]["time"])
    # From the beginning where that isn't enough: a clock that was set back leads the search astray.
    for start in (after, 0):
        number = start
        while wanted - turns.keys() and (page := await client.turns(agent["id"], number)):
            turns.update((turn["id"], turn) for turn in page)
            number = page[-1]["number"]
        after = max(after, number)
    return after


async def _before(client: Client, agent: objects.WholeAgentObject, time: str) -> int:
    """Search the number after which the turns are that were running at a time or began later."""
    low, high = 0, agent["turn"]["number"] if agent["turn"] else 0
    while low < high:
        middle = (low + high + 1) // 2
        found = await client.turns(agent["id"], middle - 1, 1)
        low, high = (middle, high) if found and found[0]["started_at"] <= time else (low, middle - 1)
    return max(0, low - 1)
