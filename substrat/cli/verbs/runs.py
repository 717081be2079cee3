"""`runs`: lists the families that were started from files, or shows one."""

from __future__ import annotations

import sys
import time

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.verbs import run as running

COMMAND = Command(
    "runs",
    "[NAME]",
    notes="A run's name is its family's: 'runs review' shows its agents. Of runs that are over the newest 200 are kept.",
)


def run(arguments: Arguments) -> int:
    """Print the runs and return the exit status."""
    with Connection() as connection:
        if arguments.words:
            found = [connection.call_object("run.show", run=arguments.words[0])]
        else:
            found = [dict(one) for one in connection.call_list("run.list")]
    for one in found:
        one.pop("seen", None)
    if arguments.json:
        output.put_json(found)
    elif not found:
        output.note("there is no run: 'run FILE' starts one")
    else:
        _print(found)
        if arguments.words:
            agents = running.agents_of(found[0])
            wide = max((len(output.text_of(agent.get("name"))) for agent in agents), default=0)
            for agent in agents:
                print(f"  {output.text_of(agent.get('name')):{wide}}  {running.words_of(agent)}")
            if found[0].get("why"):
                print(output.one_line(f"  {found[0]['why']}"))
    return 0


def _print(found: list[dict[str, object]]) -> None:
    now = time.time()
    rows = [
        (
            output.text_of(one.get("family")), output.text_of(one.get("outcome") or "running"),
            output.age(one.get("started_at"), now), output.age(one["ended_at"], now) if one.get("ended_at") else "-",
            str(len(running.agents_of(one))), output.text_of(one.get("file")),
        )
        for one in found
    ]  # fmt: skip
    titles = ("FAMILY", "OUTCOME", "STARTED", "ENDED", "AGENTS", "FILE")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"FAMILY": 10, "FILE": 10})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout), numbers=("AGENTS",)))
