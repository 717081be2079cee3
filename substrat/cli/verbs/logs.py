"""`logs`: what one agent did, readable, as JSON, or its own lines byte for byte; and with -f what it does."""

from __future__ import annotations

import binascii
import sys

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.follow import Feed
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.render import Renderer
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.cli.follow import Event

COMMAND = Command(
    "logs",
    VERBS["logs"],
    "NAME",
    least=1,
    most=1,
    options=(
        Option("--follow", "-f", about="go on until the agent is ended or removed"),
        Option("--since", value="CURSOR", about="only what came after this cursor; -20: the last 20 events"),
        Option("--raw", about="the agent's own lines byte for byte, control characters included"),
    ),
)


def run(arguments: Arguments) -> int:
    """Print the events and return the exit status."""
    raw, since = arguments.flag("raw"), arguments.whole("since") or 0
    if raw and arguments.json:
        raise COMMAND.wrong("--raw and --json came together; --raw lines are the agent's own JSON already")
    connection = Connection()
    try:
        agent = connection.call_object("agent.show", agent=arguments.words[0])
    except BaseException:
        connection.__exit__()
        raise
    renderer = Renderer(flow=sys.stdout.isatty(), colour=output.has_colour(sys.stdout))
    feed = Feed(
        connection, str(agent["id"]), since, lines=raw, before_notice=lambda: sys.stdout.write(renderer.interrupt())
    )
    try:
        events = feed.follow() if arguments.flag("follow") else feed.past()
        if raw:
            _put_lines(events)
        elif arguments.json:
            for event in events:
                output.put_json(event)
        else:
            _render(renderer, events)
    finally:
        feed.close()
    return 0


def _render(renderer: Renderer, events: Iterator[Event]) -> None:
    try:
        for event in events:
            sys.stdout.write(renderer.feed(event))
    finally:
        sys.stdout.write(renderer.finish())


def _put_lines(events: Iterator[Event]) -> None:
    for event in events:
        line = event.get("line")
        if not isinstance(line, str):
            # An event of the daemon's own.
            continue
        data = binascii.a2b_base64(line)
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        size = event.get("line_size")
        if isinstance(size, int) and size > len(data):
            output.note(f"the line at cursor {event.get('cursor')} has {size} bytes; only {len(data)} of them are kept")
