"""`resume`: continues suspended agents, where they stopped or with a new prompt."""

from __future__ import annotations

from substrat import errors
from substrat.cli import attention, many, outage, output, turns
from substrat.cli.connection import Connection
from substrat.cli.options import TIMEOUT, WAIT, Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.cli.connection import Call
    from substrat.cli.output import Agent

    Resumed = list[tuple[Agent, object]]

COMMAND = Command(
    "resume",
    "NAME...|--all [PROMPT]",
    options=(
        many.ALL,
        Option("--prompt", value="TEXT", about="a prompt instead of going on where it stopped"),
        WAIT,
        TIMEOUT,
    ),
    notes=(
        "--all takes the agents that `suspend --all` or `shutdown --suspend` has stopped, or else, if there are none of "
        "those, each that is suspended. Of two or more arguments the last one is the PROMPT "
        "unless an agent has that name or id, or it is a glob that fits one; with --all the only argument is the PROMPT. "
        f"A PROMPT that is '-' is read from standard input. {many.GLOB_NOTE}\n{many.JSON_NOTE}"
    ),
)


def run(arguments: Arguments) -> int:
    """Resume the agents, report each, wait for their turns if asked to, and return the exit status."""
    _check(arguments)
    timeout = turns.check_wait(arguments)
    unknown = "which agents were resumed isn't known: look with 'substratctl ls'"
    results: list[object] = []
    status = errors.DONE

    def ask() -> None:
        nonlocal status
        found, status = many.ask_each(connection, "agent.resume", names, prompt=prompt)
        results.extend(found)

    with Connection(timeout=timeout) as connection:
        words, given = _who_and_what(arguments, connection)
        names = many.named(connection, words)
        prompt = turns.read_prompt(arguments, given)
        outage.ask_once(connection, unknown, ask)
        resumed = [turns.agent_and_message("agent.resume", result) for result in results]
        if arguments.flag("wait"):
            agents, verdict = _wait(connection, resumed, timeout, json=arguments.json, named=len(names) > 1)
            status = status or verdict
        else:
            agents = [agent for agent, _ in resumed]
            if not arguments.json:
                _report(resumed, everyone=arguments.flag("all"))
    if arguments.json:
        many.put_json(arguments, agents, status, names=0 if arguments.flag("all") else many.counted_names(words))
    return status


def split_words(words: list[str], agents: list[Agent]) -> tuple[list[str], str | None]:
    """Decide which words are names and which is the prompt.

    Args:
        words: two or more words of the command line.
        agents: all agents, with their names and ids.
    """
    last = words[-1]
    is_name = any(last in {agent["name"], agent["id"]} for agent in agents)
    return (words, None) if is_name or many.fitting(last, agents) else (words[:-1], last)


def _check(arguments: Arguments) -> None:
    words = arguments.words
    if arguments.flag("all"):
        if len(words) > 1:
            raise COMMAND.wrong("with --all there are no names; quote a prompt of several words")
        if words and arguments.flag("prompt"):
            raise COMMAND.wrong("a PROMPT and --prompt came together; give one of them")
    elif not words:
        raise COMMAND.wrong("it takes NAME..., or --all")


def _who_and_what(arguments: Arguments, connection: Connection) -> tuple[list[str], str | None]:
    words, prompt = arguments.words, arguments.value("prompt")
    if arguments.flag("all"):
        return _all(connection), words[0] if words else prompt
    if len(words) > 1 and prompt is None:
        # A prompt may have megabytes, and no name or id has more letters than this asks for.
        names = None if many.is_glob(words[-1]) else [words[-1][:100]]
        return split_words(words, connection.call_list("agent.list", fields=["id", "name"], names=names))
    return words, prompt


def _all(connection: Connection) -> list[str]:
    """Return the agents that `--all` stands for, and tell which others stay suspended or failed."""
    agents = connection.call_list("agent.list", fields=["id", "name", "state", "together", "attention"])
    suspended = [agent for agent in agents if agent.get("state") == "suspended"]
    chosen = [agent for agent in suspended if agent.get("together")] or suspended
    if left := [output.text_of(agent["name"]) for agent in suspended if agent not in chosen]:
        output.note(f"suspended by name, and left so: {', '.join(left)}")
    if failed := [output.text_of(agent["name"]) for agent in agents if attention.has_failed(agent)]:
        # After a reboot these are the agents that were at work.
        output.note(f"failed, and left so: 'substratctl resume {' '.join(failed)}' lets them go on")
    return [str(agent["id"]) for agent in chosen]


def _report(resumed: Resumed, *, everyone: bool) -> None:
    if everyone:
        print(f"{many.counted(len(resumed))} resumed")
        return
    for agent, message in resumed:
        rest = "" if message is not None else ", nothing was left to do"
        print(f"{output.text_of(agent['name'])}  resumed ({output.text_of(agent['state'])}{rest})")


def _wait(
    connection: Connection, resumed: Resumed, timeout: float | None, *, json: bool, named: bool
) -> tuple[list[Agent], int]:
    """Wait for all the turns at once; an agent without pending work has none."""
    waited = [(agent, message) for agent, message in resumed if message is not None]
    calls: list[Call] = [("agent.wait_message", {"agent": agent["id"], "message": message}) for agent, message in waited]
    try:
        outcomes = outage.wait_for_all(connection, calls)
    except KeyboardInterrupt:
        turns.note_going_on([agent for agent, _ in waited])
        raise
    after: dict[object, Agent] = {agent["id"]: agent for agent, _ in resumed}
    status = errors.DONE
    for (agent, _), outcome in zip(waited, outcomes, strict=True):
        if isinstance(outcome, errors.WaitTimedOut):
            verdict = output.complain(turns.still_going(connection, agent, timeout))
        elif isinstance(outcome, errors.SubstratError):
            verdict = output.complain(outcome)
        else:
            assert isinstance(outcome, dict)
            after[agent["id"]] = outcome
            verdict = turns.show_verdict(outcome, json=json, named=named)
        status = status or verdict
    return list(after.values()), status or turns.tell_needs(connection, list(after.values()))
