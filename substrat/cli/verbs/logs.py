"""`logs`: prints agents' events as text or JSON, or their own lines byte for byte, and with -f those that come."""

from __future__ import annotations

import binascii
import sys

from substrat.cli import many, output, wrapping
from substrat.cli.connection import Connection
from substrat.cli.follow import Feed
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.render import Chorus, Renderer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.cli.follow import Event
    from substrat.cli.output import Agent

TAIL = Option("--tail", "-n", value="N", about="only the last N events; with -f the following ones, too")
COMMAND = Command(
    "logs",
    "NAME...",
    options=(
        Option("--follow", "-f", about="go on until each agent is ended or removed"),
        Option("--since", value="CURSOR", about="only events after this cursor; -20: the last 20 events"),
        TAIL,
        Option("--raw", about="the agent's own lines byte for byte, control characters included"),
        Option("--setup", about="the output of the commands that set the agent's clone up, and no events"),
    ),
    notes=(
        "With several NAMEs each line has its time and its agent; --since -20 and -n 20 count for each agent. "
        "--json is one event object a line."
    ),
)

HANG = 9
"""Columns of the time before a line of several agents: the rest of a line that is broken begins below the name."""
_MOST_FOLLOWED = 64
"""A connection may have as many subscriptions (docs/protocol.md)."""


def run(arguments: Arguments) -> int:
    """Print the events and return the exit status."""
    raw, since = arguments.flag("raw"), start(arguments) or 0
    if arguments.flag("setup"):
        return _setup(arguments)
    if raw and arguments.json:
        raise COMMAND.wrong("--raw and --json came together; --raw lines are the agent's own JSON already")
    if arguments.flag("follow") and len(set(arguments.words)) > _MOST_FOLLOWED:
        raise COMMAND.wrong(f"-f follows at most {_MOST_FOLLOWED} agents; 'substratctl events -f' follows all there are")
    connection = Connection()
    try:
        agents, status = many.ask_objects(connection, "agent.show", arguments.words)
    except BaseException:
        connection.__exit__()
        raise
    several = len(arguments.words) > 1
    renderer = _renderer(agents, several=several, midway=since != 0)
    write = wrapping.writing(HANG if several else 0)
    feed = _feed(connection, agents, since, renderer, write, raw=raw, silent=raw or arguments.json)
    try:
        events = feed.follow() if arguments.flag("follow") else feed.past()
        if raw:
            _put_lines(events)
        elif arguments.json:
            for event in events:
                output.put_json(event)
        else:
            _put_text(renderer, events, write)
    finally:
        feed.close()
    return status


def _setup(arguments: Arguments) -> int:
    """Print the output of clones' set-ups and return the exit status."""
    for name in ("follow", "raw", "since", "tail"):
        if arguments.flag(name) if name in {"follow", "raw"} else arguments.value(name) is not None:
            raise COMMAND.wrong(f"--setup and --{name} came together; the output of a set-up is no event")
    with Connection() as connection:
        found, status = many.ask_objects(connection, "agent.setup", arguments.words)
    if arguments.json:
        many.put_json(arguments, found, status)
        return status
    for one in found:
        sys.stdout.write(many.title(one.get("agent"), more=len(arguments.words) > 1, colour=output.has_colour(sys.stdout)))
        if one.get("text") is None:
            output.note(f"no command has set up the clone of {one.get('agent')}: `.cursor/worktrees.json` may name some")
        else:
            sys.stdout.write(output.neutralise(str(one["text"])))
    return status


def start(arguments: Arguments) -> int | None:
    """Return where to start: the cursor of `--since`, or minus the number of `--tail`; None when neither was given.

    Raises:
        UsageError: both were given, or a number is none.
    """
    since, tail = arguments.whole("since"), arguments.whole("tail")
    if tail is None:
        return since
    if since is not None:
        raise arguments.command.wrong("--since and --tail came together; give one of them")
    if tail < 1:
        raise arguments.command.wrong(f"--tail must be a number from 1 on, not {tail}")
    return -tail


def _put_text(renderer: Renderer | Chorus, events: Iterator[Event], write: Callable[[str], None]) -> None:
    """Write events as people read them."""
    try:
        for event in events:
            write(renderer.feed(event))
    finally:
        write(renderer.finish())


def output_of(event: Event) -> str:
    """Return a completed call's output."""
    # Imported here because only calls that failed need it.
    from substrat.core.programs import transcript

    return transcript.output_of(event)


def pausing(renderer: Renderer | Chorus, write: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that writes a renderer's held-back text."""

    def pause() -> None:
        write(renderer.pause())

    return pause


def _renderer(agents: list[Agent], *, several: bool, midway: bool) -> Renderer | Chorus:
    colour, terminal = output.has_colour(sys.stdout), sys.stdout.isatty()
    if several:
        names = {str(agent["id"]): str(agent["name"]) for agent in agents}
        return Chorus(names, colour=colour, aligned=terminal, midway=midway, output_of=output_of)
    return Renderer(flow=terminal, colour=colour, midway=midway, output_of=output_of)


def _feed(
    connection: Connection, agents: list[Agent], since: int, renderer: Renderer | Chorus, write: Callable[[str], None],
    *, raw: bool, silent: bool,
) -> Feed:  # fmt: skip
    """Make the feed of the agents' events; `silent` when the renderer isn't used."""
    interrupt = renderer.interrupt if isinstance(renderer, Renderer) and not silent else str
    on_quiet = pausing(renderer, write) if not silent else str
    ids = [str(agent["id"]) for agent in agents]
    return Feed(connection, ids, since, lines=raw, before_notice=lambda: write(interrupt()), on_quiet=on_quiet)


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
