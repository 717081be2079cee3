"""What the verbs on several agents share: which ones are meant, asking for all at once, reporting each."""

from __future__ import annotations

from substrat import errors
from substrat.cli import output
from substrat.cli.options import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from substrat.cli.connection import Connection
    from substrat.cli.options import Arguments
    from substrat.cli.output import Agent

ALL = Option("--all", about="all agents that this can be done to")


def names_in(agents: list[Agent], states: Container[object]) -> list[str]:
    """Return the ids of the agents that are in one of the states."""
    return [str(agent["id"]) for agent in agents if agent.get("state") in states]


def check_all(arguments: Arguments, names: list[str]) -> None:
    """Check that a command line has either names or `--all`.

    Raises:
        UsageError: it has both or neither.
    """
    if arguments.flag("all") and names:
        raise arguments.command.wrong("names and --all came together; give one of them")
    if not arguments.flag("all") and not names:
        raise arguments.command.wrong("it takes NAME..., or --all")


def ask_each(connection: Connection, method: str, names: list[str], **params: object) -> tuple[list[object], int]:
    """Make one request for each agent, all at once, and complain about those that fail.

    Returns:
        The results of the others, and the exit status of the first failure (0 when there is none).
    """
    # Naming one agent twice is asking once.
    outcomes = connection.each((method, {"agent": name, **params}) for name in dict.fromkeys(names))
    results: list[object] = []
    status = errors.DONE
    for outcome in outcomes:
        if isinstance(outcome, errors.SubstratError):
            failed = output.complain(outcome)
            status = status or failed
        else:
            results.append(outcome)
    return results, status
