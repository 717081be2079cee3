"""`why`: says what started agents' newest turns, event by event, back to the person who began it."""

from __future__ import annotations

import sys

from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

COMMAND = Command(
    "why",
    "NAME...",
    notes=(
        "The newest event comes first, the person last. --json gives an array of events for one NAME, and an array of "
        "such arrays for several."
    ),
)


def run(arguments: Arguments) -> int:
    """Print the chains, and return the exit status."""
    with Connection() as connection:
        found, status = many.ask_objects(connection, "agent.why", arguments.words)
    chains = [events if isinstance(events := one.get("events"), list) else [] for one in found]
    if arguments.json:
        many.put_json(arguments, chains, status)
        return status
    colour = output.has_colour(sys.stdout)
    for one, events in zip(found, chains, strict=True):
        name = events[0].get("agent") if events else ""
        sys.stdout.write(many.title(name, more=len(arguments.words) > 1, colour=colour))
        rows = [
            (output.local(event.get("time")), *(output.text_of(event.get(key)) for key in ("agent", "kind", "text")))
            for event in events
        ]
        titles = ("TIME", "AGENT", "EVENT", "TEXT")
        shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"TEXT": 20, "AGENT": 12})
        sys.stdout.write(output.table(titles, shown, colour=colour) if rows else "no turn of it has started\n")
        if not one.get("whole"):
            output.note("the agent of the next event was removed, and its events with it")
    return status
