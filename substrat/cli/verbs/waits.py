"""`waits`: lists which agents wait for which others, and how many of those have finished."""

from __future__ import annotations

import sys
import time

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command(
    "waits",
    VERBS["waits"],
    "[NAME]...",
    most=None,
    notes="An agent registers a wait with its tool wait_agents and is woken once, when those it waits for have finished.",
)


def run(arguments: Arguments) -> int:
    """Print the open waits, oldest first, and return the exit status."""
    with Connection() as connection:
        waits = connection.call_list("wait.list", agents=arguments.words or None)
    if arguments.json:
        output.put_json(waits)
        return 0
    if not waits:
        output.note("no agent waits for another")
        return 0
    now, rows = time.time(), []
    for wait in waits:
        names, done = wait.get("names"), wait.get("done")
        finished = f"{len(done)} of {len(names)}" if isinstance(names, list) and isinstance(done, list) else "-"
        those = ", ".join(map(str, names)) if isinstance(names, list) else ""
        rows.append((
            output.text_of(wait.get("id")), output.text_of(wait.get("agent")), output.text_of(wait.get("mode")), finished,
            output.age(wait.get("created_at"), now), output.local(wait.get("deadline")), output.text_of(those),
        ))  # fmt: skip
    titles = ("ID", "AGENT", "MODE", "DONE", "SINCE", "UNTIL", "WAITS FOR")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"WAITS FOR": 20, "AGENT": 10})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout)))
    return 0
