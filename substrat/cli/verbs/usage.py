"""`usage`: prints the tokens that agents used, each alone and with its descendants; prices aren't known here."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMAND = Command(
    "usage",
    "[NAME]...",
    notes=(
        "The numbers are cursor-agent's own: each turn that ended with a result says what it used. Turns "
        "that were stopped say nothing. A family is an agent with all its descendants that weren't removed. "
        f"{many.JSON_NOTE}"
    ),
)
_PAGE = 1000
"""Agents that are asked for at once: as many as the daemon gives."""
_COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def run(arguments: Arguments) -> int:
    """Print the table, or one agent's numbers, and return the exit status."""
    with Connection() as connection:
        found, status = _named(connection, arguments.words) if arguments.words else (_all(connection), errors.DONE)
    if arguments.json:
        many.put_json(arguments, found, status)
        return status
    rows = []
    for usage in found:
        name, family = output.text_of(usage["name"]), usage.get("family", {})
        rows.append(_row(name, usage))
        if family.get("agents", 1) > 1:
            rows.append(_row(f"{name} and its {family['agents'] - 1}", family))
    if len(found) > 1:
        rows.append(_row(f"all {len(found)}", _sum(found)))
    titles = ("NAME", "TURNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"NAME": 20})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout), numbers=titles[1:]))
    return status


def _named(connection: Connection, names: list[str]) -> tuple[list[dict[str, Any]], int]:
    agents, status = many.ask_objects(connection, "agent.show", names)
    used = connection.each([("agent.usage", {"agent": str(agent["id"])}) for agent in agents])
    known = [
        {"agent": agent["id"], "name": agent["name"], **usage}
        for agent, usage in zip(agents, used, strict=True)
        if isinstance(usage, dict)
    ]
    return known, status or many.settle(used)[1]


def _all(connection: Connection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) % _PAGE == 0:
        try:
            page = connection.call_list("usage.list", after=found[-1]["agent"] if found else None, limit=_PAGE)
        except errors.NotFound:  # the last one was removed meanwhile
            found = []
            continue
        if not page:
            break
        found += page
    return found


def _sum(used: list[dict[str, Any]]) -> dict[str, object]:
    """Return the numbers of several agents together, without their families."""
    counts = [usage.get("usage") or {} for usage in used]
    turns = sum(usage.get("turns") or 0 for usage in used)
    return {"turns": turns, "usage": {count: sum(one.get(count) or 0 for one in counts) for count in _COUNTS}}


def _row(name: str, numbers: dict[str, object]) -> tuple[str, ...]:
    usage = numbers.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return (name, output.text_of(numbers.get("turns")), *(output.text_of(counts.get(count)) for count in _COUNTS))
