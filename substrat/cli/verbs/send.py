"""`send`: queues a prompt for an agent; a running turn is not disturbed."""

from __future__ import annotations

from substrat.cli import output, turns
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import TIMEOUT, WAIT, Arguments, Command, Option

COMMAND = Command(
    "send",
    "NAME [PROMPT]",
    options=(
        Option("--prompt-file", value="F", about="read the prompt from a file, '-' is standard input"),
        Option("--now", about="hand it over in the turn that runs, after its next tool call, where the program can"),
        WAIT,
        TIMEOUT,
    ),
    notes=(
        "A PROMPT that is '-' is read from standard input. With --now the answer says whether the running turn gets it, as "
        "claude's and codex's do, or the next one. With --wait the result of the turn that got the "
        "prompt is printed."
    ),
)

_INTO = {
    "running": "; it comes into the running turn after its next tool call, else with the next turn",
    "next": "; it comes with the next turn",
}


def run(arguments: Arguments) -> int:
    """Queue the prompt, wait for its turn if asked to, and return the exit status."""
    name, *given = arguments.words
    prompt = turns.read_prompt(arguments, given[0] if given else None)
    timeout = turns.check_wait(arguments)
    if prompt is None:
        raise COMMAND.wrong("the PROMPT is missing; give it, or '-' to read it from standard input")
    with Connection(timeout=timeout) as connection:
        now = {"now": True} if arguments.flag("now") else {}
        answer = turns.ask_once(connection, name, "agent.send", agent=name, prompt=prompt, **now)
        agent, message = turns.agent_and_message("agent.send", answer)
        into = output.text_of(as_object("agent.send", answer).get("into"))
        turns.announce_waiting(agent)
        if arguments.flag("wait"):
            return turns.wait_for_verdict(connection, agent, message, timeout, json=arguments.json)
    if arguments.json:
        output.put_json({**agent, "into": into} if now else agent)
    else:
        print(
            f"{output.text_of(agent['name'])}  prompt queued ({output.text_of(agent['state'])}{_INTO[into] if now else ''})"
        )
    return 0
