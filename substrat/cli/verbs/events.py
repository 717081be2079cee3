"""`events`: prints all agents' events in order, each line with its time and agent, and with -f those that come."""

from __future__ import annotations

import sys

from substrat.cli import output, wrapping
from substrat.cli.connection import Connection
from substrat.cli.follow import Feed
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.render import Chorus
from substrat.cli.verbs.logs import HANG, TAIL, pausing, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.cli.follow import Event

COMMAND = Command(
    "events",
    options=(
        Option("--follow", "-f", about="go on with new events; without --since after the last 20 events"),
        Option("--since", value="CURSOR", about="only events after this cursor; -20: the last 20 events"),
        TAIL,
    ),
)
_RECENT = -20  # a cursor from the end: as many events as fit on a terminal


def run(arguments: Arguments) -> int:
    """Print the events and return the exit status."""
    follow, since = arguments.flag("follow"), start(arguments)
    if since is None:
        since = _RECENT if follow else 0
    names: dict[str, str] = {}
    chorus = Chorus(names, colour=output.has_colour(sys.stdout), aligned=sys.stdout.isatty(), midway=since != 0)
    write = wrapping.writing(HANG)
    feed = Feed(Connection(), None, since, on_quiet=str if arguments.json else pausing(chorus, write))
    try:
        events = feed.follow() if follow else feed.past()
        if arguments.json:
            for event in events:
                output.put_json(event)
        else:
            _render(feed, events, chorus, names, write)
    finally:
        feed.close()
    return 0


def _render(
    feed: Feed, events: Iterator[Event], chorus: Chorus, names: dict[str, str], write: Callable[[str], None]
) -> None:
    try:
        for event in events:
            agent = event.get("agent")
            if isinstance(agent, str) and agent not in names:
                names.update(feed.names())
                # A removed agent isn't in the list; asking once is enough.
                names.setdefault(agent, agent[:8])
            write(chorus.feed(event))
    finally:
        write(chorus.finish())
