"""`wait`: blocks until agents are in a state; it changes nothing."""

from __future__ import annotations

from substrat import errors
from substrat.cli import outage, output
from substrat.cli.connection import Connection, as_list
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS
from substrat.wire import methods

COMMAND = Command(
    "wait",
    VERBS["wait"],
    "NAME...",
    least=1,
    most=None,
    options=(
        Option("--until", value="STATE,...", about=f"any of {', '.join(methods.AGENT_STATES)}"),
        Option("--timeout", value="S", about="give up after S seconds, with exit status 124"),
    ),
    notes="Without --until: until each is neither queued nor running. --json gives a list of agent objects.",
)


def run(arguments: Arguments) -> int:
    """Wait, print the agents and return the exit status."""
    until = _states(arguments)
    timeout = arguments.seconds("timeout")
    names = list(dict.fromkeys(arguments.words))
    with Connection(timeout=timeout) as connection:
        try:
            agents = as_list("agent.wait", outage.wait_for_one(connection, "agent.wait", agents=names, until=until))
        except errors.WaitTimedOut:
            wanted = " or ".join(until) if until else "neither queued nor running"
            raise errors.WaitTimedOut(
                f"not each of {', '.join(arguments.words)} was {wanted} within {timeout:g} s; nothing was changed"
            ) from None
    if arguments.json:
        output.put_json(agents)
    else:
        for agent in agents:
            print(f"{output.text_of(agent['name'])}  {output.text_of(agent['state'])}")
    return 0


def _states(arguments: Arguments) -> list[str] | None:
    given = arguments.values("until")
    if not given:
        return None
    states = [state.strip() for part in given for state in part.split(",") if state.strip()]
    for state in states:
        if state not in methods.AGENT_STATES:
            raise COMMAND.wrong(f"{state!r} is no state; the states are {', '.join(methods.AGENT_STATES)}")
    if not states:
        raise COMMAND.wrong("--until names no state")
    return states
