"""`wait`: blocks until agents are in a state; it changes nothing."""

from __future__ import annotations

from substrat import errors
from substrat.cli import many, outage, output, turns
from substrat.cli.connection import Connection, as_list
from substrat.cli.options import Arguments, Command, Option
from substrat.protocol import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.cli.connection import Call
    from substrat.cli.output import Agent

COMMAND = Command(
    "wait",
    "NAME...",
    options=(
        Option("--until", value="STATE,...", about=f"any of {', '.join(vocabulary.AGENT_STATES)}"),
        Option("--timeout", value="S", about="give up after S seconds, with exit status 124"),
    ),
    notes=(
        "Without --until: until each is neither queued nor running, waits for no other agent and has asked you nothing; or "
        "until none of them goes on by itself and one needs you now. The exit status is 5 when one of them is then failed, "
        "else 6 when one needs you; a line names it and what to type. With --until it is 0 as soon as each is in one of "
        f"the states. {many.GLOB_NOTE}\n{many.JSON_NOTE}"
    ),
)


def run(arguments: Arguments) -> int:
    """Wait, print the agents and return the exit status."""
    until = _states(arguments)
    timeout = arguments.seconds("timeout")
    with Connection(timeout=timeout) as connection:
        names = list(dict.fromkeys(many.named(connection, arguments.words)))
        # A request for each: a name that fails doesn't end the wait for the others.
        calls: list[Call] = [("agent.wait", {"agents": [name], "until": until}) for name in names]
        try:
            outcomes = outage.wait_for_all(connection, calls)
            while until is None and len(names) > 1 and _goes_on(connection, outcomes):
                outcomes = outage.wait_for_all(connection, calls)
        except errors.WaitTimedOut:
            raise _too_long(names, until, timeout) from None
        except KeyboardInterrupt:
            output.note("nothing was changed: the agents go on; 'substratctl ls' shows them")
            raise
        late = [name for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, errors.WaitTimedOut)]
        if late:
            outcomes = [outcome for outcome in outcomes if not isinstance(outcome, errors.WaitTimedOut)]
            outcomes.append(_too_long(late, until, timeout))
        results, status = many.settle(outcomes)
        agents = [as_list("agent.wait", result)[0] for result in results]
        if until is None:
            status = status or _verdict(agents) or turns.tell_needs(connection, agents)
    if arguments.json:
        many.put_json(arguments, agents, status)
    else:
        for agent in agents:
            print(f"{output.text_of(agent['name'])}  {output.text_of(agent['state'])}")
    return status


def _goes_on(connection: Connection, outcomes: list[object]) -> bool:
    """Say whether one of the agents that were waited for works again: it was answered while others were waited for."""
    waited = [outcome[0]["id"] for outcome in outcomes if isinstance(outcome, list)]
    if not waited:
        return False
    try:
        agents = connection.call_list("agent.list", fields=["state"], names=waited)
    except errors.ConnectionLost:
        return True  # the next wait connects again
    return any(agent["state"] in {"queued", "running"} for agent in agents)


def _too_long(names: list[str], until: list[str] | None, timeout: float | None) -> errors.WaitTimedOut:
    if until is None:
        those = f"{names[0]} is" if len(names) == 1 else f"some of {', '.join(names)} are"
        return errors.WaitTimedOut(f"{those} not done after {timeout:g} s: 'substratctl ls' says why; nothing was changed")
    those = f"{names[0]} wasn't" if len(names) == 1 else f"some of {', '.join(names)} weren't"
    return errors.WaitTimedOut(f"{those} {' or '.join(until)} within {timeout:g} s; nothing was changed")


def _verdict(agents: list[Agent]) -> int:
    """Name the agents that failed, and return the exit status for that."""
    failed = [
        agent
        for agent in agents
        if agent.get("state") == "failed" or vocabulary.is_refused(output.turn_of(agent) or {}, agent.get("check"))
    ]
    for agent in failed:
        output.note(turns.failure(agent))
    return errors.TURN_FAILED if failed else errors.DONE


def _states(arguments: Arguments) -> list[str] | None:
    given = arguments.values("until")
    if not given:
        return None
    states = [state.strip() for part in given for state in part.split(",") if state.strip()]
    for state in states:
        if state not in vocabulary.AGENT_STATES:
            raise COMMAND.wrong(f"{state!r} is no state; the states are {', '.join(vocabulary.AGENT_STATES)}")
    if not states:
        raise COMMAND.wrong("--until names no state")
    return states
