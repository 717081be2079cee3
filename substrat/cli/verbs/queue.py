"""`queue`: lists the agents that wait for their turns, and the logins that are held; lets one turn of those try."""

from __future__ import annotations

import sys
import time

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND = Command(
    "queue",
    options=(Option("--try", about="let one turn of each login that is held try now whether its account may go on"),),
    notes=(
        "Agents of a higher priority begin first, then the family whose last turn began longest ago, then the one that has "
        "waited longest. Those that can't begin, for example because their account has used up what it may, are listed "
        "last. --json prints the agents alone."
    ),
)


def run(arguments: Arguments) -> int:
    """Print the queue and return the exit status."""
    with Connection() as connection:
        tried = connection.call_list("queue.try") if arguments.flag("try") else None
        queue = connection.call_list("queue.list")
        if arguments.json:
            output.put_json(queue)
            return 0
        gates = connection.call_list("queue.gates")
        families = list({str(place.get("family")) for place in queue})
        agents = connection.call_list("agent.list", fields=["id", "name"], names=families) if queue else []
    if tried is not None:
        _say_tried(tried, gates)
    if queue:
        _print(queue, {str(agent["id"]): output.text_of(agent["name"]) for agent in agents})
    else:
        output.note("no agent waits for a turn")
    for gate in gates:
        output.note(_held(gate))
    return 0


def _say_tried(tried: Sequence[Mapping[str, object]], gates: Sequence[Mapping[str, object]]) -> None:
    for gate in tried:
        login = output.text_of(gate.get("login"))
        output.note(f"{login}: its next turn begins at once; if the account lets it work, the others follow")
    if not tried and gates:
        output.note("nothing was changed: a turn of each login that is held tries already, or is about to")
    elif not tried:
        output.note("nothing was changed: no login is held")


def _print(queue: Sequence[Mapping[str, object]], names: Mapping[str, str]) -> None:
    now, rows = time.time(), []
    for place in queue:
        family = str(place.get("family"))
        rows.append((
            output.text_of(place.get("position")), output.text_of(place.get("agent")), names.get(family, family),
            output.text_of(place.get("priority")), output.age(place.get("since"), now),
            output.in_local_time(output.one_line(str(place.get("reason")))),
        ))  # fmt: skip
    titles = ("", "AGENT", "FAMILY", "PRIORITY", "SINCE", "REASON")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"REASON": 30, "AGENT": 10, "FAMILY": 10})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout)))


def _held(gate: Mapping[str, object]) -> str:
    """Say in a sentence how a login is held."""
    login, failures = output.text_of(gate.get("login")), gate.get("failures")
    often = "" if failures == 1 else f", {output.text_of(failures)} times in a row"
    trying = gate.get("trying")
    now = f"{output.text_of(trying)} tries now" if trying else f"held until {output.local(gate.get('until'))}"
    blamed, model = output.text_of(gate.get("blamed"), ""), output.text_of(gate.get("model"), "")
    which, remedy = (f"{login} with the model {model}", "`substratctl set NAME model=…`") if model else (login, "")
    notes = "; ".join(filter(None, (blamed, remedy and f"{remedy} goes on with another")))
    return f"{which}: {now}{often}; {output.one_line(str(gate.get('reason')))}{notes and f' ({notes})'}"
