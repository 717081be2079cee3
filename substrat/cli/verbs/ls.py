"""`ls`: lists the agents, first those that need a person; its start-up time is the yardstick for the whole program."""

from __future__ import annotations

import sys
import time

from substrat.cli import output, waiting
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.cli.output import Agent, Rows

COMMAND = Command(
    "ls",
    VERBS["ls"],
    options=(
        Option("--quiet", "-q", about="the names only, one a line"),
        Option("--state", value="STATE", about="only agents in this state; several with commas or repeated"),
        Option("--all", "-a", about="changes nothing: ended agents are always listed"),
    ),
    notes=(
        "Agents that need you come first. SILENT is how long a running turn has had no event. DOING is the "
        "last tool call or status of a running turn, otherwise why an agent waits or needs you. WORK is what "
        "agents with a clone of their own have: '+2 ~3' stands for 2 commits that have not landed and 3 uncommitted "
        "files. On a terminal "
        "columns are left out and cut to fit its width. --json gives whole values, oldest agent first."
    ),
)
ATTENTION = (
    "answer", "unsafe", "failed", "stuck", "budget", "merge", "held", "suspended", "working", "waiting", "queued", "idle",
    "done",
)  # fmt: skip
"""Why an agent is shown where it is, the weightiest first: `attention.kind` in docs/protocol.md. This daemon never sends
`budget`; it is known so that a newer daemon's agents are sorted rightly."""
_FIELDS = (
    "name", "state", "attention", "turn", "reason", "activity", "heard_at", "model", "network", "unread", "created_at",
    "workspace", "worktree",
)  # fmt: skip
TITLES = (
    "NAME", "STATE", "ATTENTION", "TURN", "SILENT", "UNREAD", "AGE", "MODEL", "NETWORK", "WORK", "DOING", "WORKSPACE",
)  # fmt: skip
_LEAST = {"WORKSPACE": 20, "DOING": 20, "NAME": 20, "MODEL": 8}
"""Columns that are cut to fit a terminal, and how narrow they may become: a person must type the NAME."""
_DISPENSABLE = ("WORKSPACE", "NETWORK", "MODEL", "UNREAD", "AGE", "TURN")
"""Columns that a narrow terminal goes without, in the order in which they go."""


def run(arguments: Arguments) -> int:
    """Print the agents and return the exit status."""
    states = _states(arguments)
    quiet = arguments.flag("quiet")
    fields = ["name", *(["state"] if states else [])] if quiet else None if arguments.json else list(_FIELDS)
    with Connection() as connection:
        agents = connection.call_list("agent.list", fields=fields)
        if states:
            agents = [agent for agent in agents if agent.get("state") in states]
        if not quiet:
            waiting.explain(connection, agents)
    if quiet:
        return _print_names(agents, json=arguments.json)
    if arguments.json:
        output.put_json(agents)
    else:
        _print_table(agents)
    return 0


def _states(arguments: Arguments) -> list[str]:
    given = arguments.values("state")
    states = [state.strip() for part in given for state in part.split(",") if state.strip()]
    if given and not states:
        raise COMMAND.wrong("--state names no state")
    if states:
        # Imported here because the table of methods is a third of all imports of the bare `ls`.
        from substrat.protocol import vocabulary

        for state in states:
            if state not in vocabulary.AGENT_STATES:
                raise COMMAND.wrong(f"{state!r} is no state; the states are {', '.join(vocabulary.AGENT_STATES)}")
    return states


def _print_names(agents: list[Agent], *, json: bool) -> int:
    if json:
        output.put_json([{"name": agent.get("name")} for agent in agents])
    else:
        sys.stdout.write("".join(f"{output.text_of(agent.get('name'))}\n" for agent in agents))
    return 0


def _print_table(agents: list[Agent]) -> None:
    now = time.time()
    rows = [_row(agent, now) for agent in sorted(agents, key=_weight)]
    titles, shown = fitted(TITLES, rows, output.terminal_width(sys.stdout))
    text = output.table(titles, shown, colour=output.has_colour(sys.stdout), painted=titles.index("STATE"))
    sys.stdout.write(text + counts(agents) + "\n")


def counts(agents: list[Agent]) -> str:
    """Say how many agents there are, and how many for each kind of attention, the weightiest first."""
    kinds = [_kind(agent) for agent in agents]
    parts = [f"{kinds.count(kind)} {kind}" for kind in (*ATTENTION, "-") if kind in kinds]
    total = f"{len(agents)} agent{'' if len(agents) == 1 else 's'}"
    return f"{total}: {', '.join(parts)}" if parts else total


def fitted(titles: tuple[str, ...], rows: list[list[str]], width: int | None) -> tuple[Sequence[str], Rows]:
    """Leave columns out and cut cells so that no line of the table is wider than a terminal; None leaves all as it is."""
    if all(row[titles.index("WORK")] == "-" for row in rows):
        kept = [column for column, title in enumerate(titles) if title != "WORK"]
        titles, rows = tuple(titles[column] for column in kept), [[row[column] for column in kept] for row in rows]
    if width is None:
        return titles, rows
    widths = dict(zip(titles, output.widths(titles, rows), strict=True))
    for title in _DISPENSABLE:
        least = sum(min(_LEAST.get(kept, size), size) for kept, size in widths.items()) + 2 * (len(widths) - 1)
        if least > width or (title == "WORKSPACE" and width < 120):
            del widths[title]
    kept = [column for column, title in enumerate(titles) if title in widths]
    rows = [[row[column] for column in kept] for row in rows]
    return tuple(widths), output.cut(tuple(widths), rows, width, _LEAST)


def _weight(agent: Agent) -> tuple[int, str]:
    found = agent.get("attention")
    since = found.get("since") if isinstance(found, dict) else ""
    kind = _kind(agent)
    return ATTENTION.index(kind) if kind in ATTENTION else len(ATTENTION), str(since)


def _kind(agent: Agent) -> str:
    found = agent.get("attention")
    return output.text_of(found.get("kind")) if isinstance(found, dict) else "-"


def _row(agent: Agent, now: float) -> list[str]:
    text = output.text_of
    found = agent.get("attention")
    needed = isinstance(found, dict) and found.get("level") != "info"
    return [
        text(agent.get("name")),
        text(agent.get("state")),
        _kind(agent) if needed else "-",
        output.turn_summary(agent),
        output.age(agent.get("heard_at"), now),
        text(agent.get("unread")),
        output.age(agent.get("created_at"), now),
        text(agent.get("model")),
        text(agent.get("network")),
        output.work_of(agent),
        output.doing(agent),
        text(agent.get("workspace")),
    ]
