"""`send`: queues a prompt for an agent; a running turn is not disturbed."""

from __future__ import annotations

from substrat.cli import output, turns
from substrat.cli.connection import Connection
from substrat.cli.options import TIMEOUT, WAIT, Arguments, Command, Option

COMMAND = Command(
    "send",
    "NAME [PROMPT]",
    options=(
        Option("--prompt-file", value="F", about="read the prompt from a file, '-' is standard input"),
        WAIT,
        TIMEOUT,
    ),
    notes=(
        "A PROMPT that is '-' is read from standard input. With --wait the result of the turn that got the "
        "prompt is printed."
    ),
)


def run(arguments: Arguments) -> int:
    """Queue the prompt, wait for its turn if asked to, and return the exit status."""
    name, *given = arguments.words
    prompt = turns.read_prompt(arguments, given[0] if given else None)
    timeout = turns.check_wait(arguments)
    if prompt is None:
        raise COMMAND.wrong("the PROMPT is missing; give it, or '-' to read it from standard input")
    with Connection(timeout=timeout) as connection:
        answer = turns.ask_once(connection, name, "agent.send", agent=name, prompt=prompt)
        agent, message = turns.agent_and_message("agent.send", answer)
        turns.announce_waiting(agent)
        if arguments.flag("wait"):
            return turns.wait_for_verdict(connection, agent, message, timeout, json=arguments.json)
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(agent['name'])}  prompt queued ({output.text_of(agent['state'])})")
    return 0
