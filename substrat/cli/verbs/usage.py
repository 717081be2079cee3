"""`usage`: prints the tokens that agents used and their list price, each alone and with its descendants, or summed up."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BY = ("day", "model", "repository")
COMMAND = Command(
    "usage",
    "[NAME]...",
    options=(
        Option("--since", value="TIME", about="only turns started since then: 7d, 12h, 2026-01-31 or 2026-01-31T18:00"),
        Option("--by", value="WHAT", about="a line for each", choices=_BY),
    ),
    notes=(
        "The numbers are the agent programs' own: each turn that ended with a result says what it used. Turns "
        "that were stopped say nothing, and those of removed agents are gone. A family is an agent with all its "
        "descendants. $ is an estimate, by today's list prices for short prompts; a + says that some turns' models have "
        "none, for example 'auto' and aliases such as 'opus'. With --since and --by there are no lines of families, and "
        f"--json gives an array of objects with a 'key'. {many.JSON_NOTE}"
    ),
)
_PAGE = 1000
"""Agents that are asked for at once: as many as the daemon gives."""
_COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_AGO = re.compile(r"(\d{1,6})([dhm])")
_CENT = 0.01
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0}


def run(arguments: Arguments) -> int:
    """Print the table, or one agent's numbers, and return the exit status."""
    given, by = arguments.value("since"), arguments.value("by")
    since = _moment(given) if given is not None else None
    with Connection() as connection:
        if since is not None or by is not None:
            return _sums(arguments, connection, by or "agent", since)
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
    _print("NAME", rows, found)
    return status


def _sums(arguments: Arguments, connection: Connection, by: str, since: str | None) -> int:
    """Print a line for each day, model, repository or agent."""
    params: dict[str, Any] = {"by": by, **({"since": since} if since is not None else {})}
    if arguments.words:
        agents, status = many.ask_objects(connection, "agent.show", arguments.words)
        if not agents:
            return status
        params["agents"] = [str(agent["id"]) for agent in agents]
    else:
        status = errors.DONE
    found = connection.call_list("usage.sum", **params)
    if arguments.json:
        output.put_json(found)
    else:
        _print("NAME" if by == "agent" else by.upper(), [_row(output.text_of(one.get("key")), one) for one in found], found)
    return status


def _moment(text: str) -> str:
    """Return a time as the daemon reads it; without a time zone it is one of this machine's."""
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return (datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])).isoformat()
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise COMMAND.wrong(f"--since {text!r} is no time: write 7d, 12h, 2026-01-31 or 2026-01-31T18:00") from None


def _print(title: str, rows: list[tuple[str, ...]], found: list[dict[str, Any]]) -> None:
    """Print the table with the sum of its lines, and say once what the price is."""
    if len(found) > 1:
        rows.append(_row(f"all {len(found)}", _sum(found)))
    titles = (title, "TURNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "$")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {title: 20})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout), numbers=titles[1:]))
    if any(one.get("usd") is not None for one in found):
        output.note("$ is the list price of these tokens: a subscription is billed otherwise")


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
    prices = [usage["usd"] for usage in used if usage.get("usd") is not None]
    return {
        "turns": turns, "usage": {count: sum(one.get(count) or 0 for one in counts) for count in _COUNTS},
        "usd": sum(prices) if prices else None, "unpriced": sum(usage.get("unpriced") or 0 for usage in used),
    }  # fmt: skip


def _row(name: str, numbers: dict[str, Any]) -> tuple[str, ...]:
    counts = numbers.get("usage") or {}
    usd, more = numbers.get("usd"), "+" if numbers.get("unpriced") else ""
    price = "-" if not isinstance(usd, int | float) else f"{usd:,.2f}{more}" if not 0 < usd < _CENT else f"<{_CENT}{more}"
    return (name, output.text_of(numbers.get("turns")), *(output.text_of(counts.get(count)) for count in _COUNTS), price)
