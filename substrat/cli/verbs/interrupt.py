"""`interrupt`: stops agents' turns; the agents stay and take new prompts."""

from __future__ import annotations

from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

COMMAND = Command("interrupt", "NAME...", notes=f"{many.GLOB_NOTE}\n{many.JSON_NOTE}")


def run(arguments: Arguments) -> int:
    """Stop the turns, report each agent and return the exit status."""
    with Connection() as connection:
        agents, status = many.stop(connection, "agent.interrupt", many.named(connection, arguments.words))
    many.report(arguments, agents, status, "interrupted", everyone=False)
    for agent in agents:
        if agent.get("state") in {"queued", "running"}:
            name = output.text_of(agent.get("name"))
            output.note(f"{name} goes on with the prompt or message that waited: 'suspend {name}' holds it back")
    return status
