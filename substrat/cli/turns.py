"""Serves the verbs that start turns: reads the prompt, waits for the turn, passes its verdict on."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import attention, outage, output
from substrat.cli.connection import as_object
from substrat.protocol import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.cli.connection import Connection
    from substrat.cli.options import Arguments
    from substrat.cli.output import Agent


def read_prompt(arguments: Arguments, given: str | None) -> str | None:
    """Return the prompt: the given words, standard input for a `-` before any `--`, or the contents of `--prompt-file`.

    Args:
        arguments: the command line.
        given: the prompt that stood on it, if one did.

    Raises:
        UsageError: there are two prompts, or an empty one.
        SubstratError: the file can't be read.
    """
    path = arguments.value("prompt-file")
    if path is not None and given is not None:
        raise arguments.command.wrong("a PROMPT and --prompt-file came together; give one of them")
    if path is None and (given != "-" or given in arguments.verbatim):
        if given is not None and not given.strip():
            raise arguments.command.wrong("the prompt is empty")
        return given
    prompt = _read_text(path or "-")
    if not prompt.strip():
        raise arguments.command.wrong(f"the prompt file {path} is empty" if path else "standard input is empty")
    return prompt


def check_wait(arguments: Arguments, *, has_prompt: bool = True) -> float | None:
    """Check `--wait` and `--timeout` against each other and return the timeout.

    Raises:
        UsageError: they don't fit.
    """
    timeout = arguments.seconds("timeout")
    if timeout is not None and not arguments.flag("wait"):
        raise arguments.command.wrong("--timeout needs --wait")
    if arguments.flag("wait") and not has_prompt:
        raise arguments.command.wrong("--wait needs a prompt: without one there is no turn to wait for")
    return timeout


def wait_for_verdict(connection: Connection, agent: Agent, message: object, timeout: float | None, *, json: bool) -> int:
    """Wait for the turn that got a prompt, print its result or its error, and return its verdict as exit status.

    Args:
        connection: the conversation with the daemon, and the rest of its time; a restart of the daemon is waited for.
        agent: the agent object.
        message: the inbox item's number; None: the newest prompt.
        timeout: the longest to wait from the conversation's start, in seconds.
        json: whether to print the agent object instead of the result.
    """
    try:
        found = outage.wait_for_one(connection, "agent.wait_message", agent=agent["id"], message=message)
    except errors.WaitTimedOut:
        raise still_going(connection, agent, timeout) from None
    except KeyboardInterrupt:
        note_going_on([agent])
        raise
    after = as_object("agent.wait_message", found)
    if json:
        output.put_json(after)
    return show_verdict(after, json=json) or tell_needs(connection, [after])


def tell_needs(connection: Connection, agents: Sequence[Agent]) -> int:
    """Write a line for each agent that needs a person now: of those that were waited for, and those that these wait for.

    Returns:
        The exit status for that.
    """
    found = list(agents)
    if any(agent.get("waits") for agent in agents):
        found = _with_awaited(connection, found)
    needing = [agent for agent in found if attention.level(agent) == "urgent"]
    for agent in needing:
        output.tell(attention.need(agent))
    return errors.NEEDS_YOU if needing else errors.DONE


def _with_awaited(connection: Connection, agents: list[Agent]) -> list[Agent]:
    """Add those that some agents wait for, and that those wait for."""
    try:
        found_waits = connection.call_list("wait.list")
        waits = [(wait.get("agent"), members) for wait in found_waits if isinstance(members := wait.get("names"), list)]
        awaited = list({str(member) for _, members in waits for member in members})
        others = connection.call_list("agent.list", fields=["id", "name", "attention"], names=awaited) if awaited else []
    except errors.ConnectionLost:
        return agents  # the command itself has succeeded
    known = {agent["name"]: agent for agent in others}
    found = {agent["name"]: agent for agent in agents}
    for name in (names := list(found)):  # it grows while it is walked
        for agent, members in waits:
            if agent == name:
                names += [member for member in members if member in known and member not in names]
    return [found.get(name) or known[name] for name in names]


def ask_once(connection: Connection, name: object, method: str, **params: object) -> object:
    """Make a request that brings an agent a prompt; it isn't made again when its answer is lost.

    Raises:
        ConnectionLost: the daemon went away before it answered.
        WaitTimedOut: the conversation's time was over before it answered.
    """
    unknown = f"whether it took the prompt isn't known: look with 'substratctl show {name}' before you send it again"
    return outage.ask_once(connection, unknown, lambda: connection.call(method, **params))


def note_going_on(agents: Sequence[Agent]) -> None:
    """Write the notice for a person who gives up waiting with Ctrl-C: nothing was stopped, and how to look at it."""
    names = " ".join(output.text_of(agent["name"]) for agent in agents)
    if len(agents) == 1 and (held := _held(agents[0])):
        output.note(f"{names} stays as it is: {held}")
    elif len(agents) == 1:
        output.note(f"the turn of {names} goes on: 'substratctl logs -f {names}' shows it, 'interrupt {names}' stops it")
    elif agents:
        output.note(f"the turns go on: 'substratctl logs -f {names}' shows them")


def still_going(connection: Connection, agent: Agent, timeout: float | None) -> errors.WaitTimedOut:
    """Make the error for a turn that took longer than `--timeout`.

    Args:
        connection: the conversation, whose grace has begun.
        agent: the agent, as it was when the wait began.
        timeout: the seconds it had.
    """
    name = agent["name"]
    try:
        now = connection.call_object("agent.show", agent=agent["id"])
    except errors.SubstratError:
        now = agent
    going = _held(now) or f"its turn goes on, and 'substratctl logs -f {name}' shows it"
    return errors.WaitTimedOut(f"{name} didn't finish within {timeout:g} s; {going}")


def _held(agent: Agent) -> str:
    """Say how an agent that is suspended or frozen goes on; empty for any other."""
    if agent.get("state") != "suspended":
        return ""
    what = "its turn is frozen" if output.is_frozen(agent) else "it is suspended"
    return f"{what}, and 'substratctl resume {agent['name']}' lets it go on"


def show_verdict(agent: Agent, *, json: bool, named: bool = False) -> int:
    """Print a finished turn's result, or its error.

    Args:
        agent: the agent object with the turn.
        json: whether the object was printed, so that the result needn't be.
        named: whether to put the agent's name before the result.

    Returns:
        The exit status that passes the verdict on.
    """
    turn = output.turn_of(agent) or {}
    status = vocabulary.verdict_status(turn, agent.get("check"))
    if status != errors.DONE:
        output.note(failure(agent))
    elif not json:
        result = str(turn.get("result") or "")
        # A script gets the result as it is; a terminal must not be driven by it.
        result = output.neutralise(result) if sys.stdout.isatty() else result
        result = f"{agent['name']}: {result}" if named else result
        sys.stdout.write(result if result.endswith("\n") or not result else result + "\n")
    return status


def announce_waiting(agent: Agent) -> None:
    """Write a notice when a prompt was accepted for a suspended agent, which won't see it until it is resumed."""
    if agent.get("state") == "suspended":
        name = agent["name"]
        output.note(f"{name} is suspended; the prompt waits until 'substratctl resume {name}'")


def agent_and_message(method: str, result: object) -> tuple[Agent, object]:
    """Take the `{agent, message}` of `agent.send` and `agent.resume` apart."""
    answer = as_object(method, result)
    return as_object(method, answer.get("agent")), answer.get("message")


def failure(agent: Agent) -> str:
    """Say in one line how an agent's newest turn failed."""
    turn = output.turn_of(agent) or {}
    name, outcome = agent["name"], turn.get("outcome") or "no outcome"
    if outcome == "success" and isinstance(check := agent.get("check"), dict):
        return f"the work of {name} isn't done: {check.get('text') or 'its check is still to come'}"
    reason = output.text_of(turn.get("error"), "") or f"'substratctl logs {name}' shows what it did"
    return f"turn {turn.get('number')} of {name} ended with {outcome}: {reason}"


def _read_text(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        with open(path, "rb") as file:
            return file.read().decode()
    except UnicodeDecodeError as problem:
        raise errors.SubstratError(f"the prompt file {path} isn't UTF-8 at byte {problem.start}") from None
    except OSError as problem:
        raise errors.SubstratError(f"can't read the prompt file {path}: {problem.strerror}") from None
