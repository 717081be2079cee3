"""`rm`: forgets agents that aren't running, with their files and events; workspaces and chats stay.

A private clone goes too if nothing is only there.
"""

from __future__ import annotations

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "rm",
    "NAME...|--ended",
    options=(Option("--ended", about="all agents that are ended"),),
    notes=f"{many.GLOB_NOTE}\n{many.JSON_NOTE} Each object is the agent as it last was.",
)


def _text(answer: object, *, wanted: tuple[str, ...] = ("removed", "stays")) -> str | None:
    """Return the sentence about a removed agent's clone, None where there is nothing to say."""
    return str(answer["text"]) if isinstance(answer, dict) and answer.get("tree") in wanted else None


def run(arguments: Arguments) -> int:
    """Remove the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words, "ended")
    with Connection() as connection:
        names = many.chosen(arguments, connection, ("ended",), "ended")
        found, status = many.ask_objects(connection, "agent.show", names)
        for name, others in many.descendants(connection, names):
            output.note(f"{', '.join(others)} {'goes' if len(others) == 1 else 'go'} on without {name}")
        outcomes = connection.each([("agent.rm", {"agent": agent["id"]}) for agent in found])
    _, failed = many.settle(outcomes)
    agents = [
        agent for agent, outcome in zip(found, outcomes, strict=True) if not isinstance(outcome, errors.SubstratError)
    ]
    status = status or failed
    if arguments.json:
        many.put_json(arguments, agents, status)
    elif arguments.flag("ended"):
        print(f"{many.counted(len(agents))} removed")
    for agent, outcome in zip(found, outcomes, strict=True):
        if isinstance(outcome, errors.SubstratError):
            continue
        if arguments.json or arguments.flag("ended"):
            clone = agent.get("clone")
            is_landed = not isinstance(clone, dict) or clone["landed"]
            if text := _text(outcome, wanted=("stays",) if is_landed else ("stays", "removed")):
                output.note(f"{agent['name']} is removed, but {text}")
        else:
            text = _text(outcome)
            print(f"{output.text_of(agent['name'])}  removed{f': {output.text_of(text)}' if text else ''}")
    return status
