"""Says why queued agents wait, when the daemon has a reason."""

from __future__ import annotations

from substrat import errors
from substrat.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.cli.connection import Connection
    from substrat.cli.output import Agent


def explain(connection: Connection, agents: Iterable[Agent]) -> None:
    """Write to standard error why no turn starts, if one of the agents waits for that."""
    if not any(agent.get("state") == "queued" for agent in agents):
        return
    try:
        reason = connection.call_object("daemon.status").get("waiting_for")
    except errors.SubstratError:
        return  # the command itself has succeeded
    if reason:
        output.note(f"no turn starts: {reason}")
