"""`accept`: notes that a person has seen an agent's findings, its failed turn and its unlanded work; `show` lists them."""

from __future__ import annotations

from substrat import errors
from substrat.cli import attention, many, output
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import Arguments, Command
from substrat.names import is_agent_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.cli.output import Agent

COMMAND = Command(
    "accept",
    "NAME... [NUMBER]...",
    notes=(
        "Without a NUMBER: all findings of each agent, its failed turn, and work that has not landed. Numbers are those "
        "that 'show NAME' lists, and go with one NAME; a mistyped one accepts nothing. What you accept is the content that "
        "was found: if the files have changed since, nothing is accepted and they are found anew, under another number; "
        f"other content later asks again. {many.GLOB_NOTE}\n{many.JSON_NOTE}"
    ),
)


def run(arguments: Arguments) -> int:
    """Accept the findings and return the exit status."""
    names, numbers = _split(arguments)
    with Connection() as connection:
        _check_words(connection, names)
        before, status = many.ask_objects(connection, "agent.show", many.named(connection, names))
        asked = [("agent.accept", {"agent": agent["id"], "what": numbers or None}) for agent in before]
        outcomes = connection.each(asked)
    accepted, failed = many.settle(outcomes)
    agents = [as_object("agent.accept", one) for one in accepted]
    status = status or failed
    if arguments.json:
        many.put_json(arguments, agents, status, names=many.counted_names(names))
    else:
        for agent in agents:
            unlanded = "" if numbers else _unlanded(agent)
            print(f"{output.text_of(agent['name'])}  accepted; {attention.said(agent)}{unlanded}")
    for was, outcome in zip(before, outcomes, strict=True):
        if not isinstance(outcome, errors.SubstratError):
            _repeat(was, numbers)
    return status


def _unlanded(agent: Agent) -> str:
    """Say how many commits of an agent's needn't land any more, and that they still can."""
    clone = agent.get("clone")
    if not isinstance(clone, dict) or clone["landed"] or not clone["ahead"]:
        return ""
    commits, it = ("1 commit that has", "it") if clone["ahead"] == 1 else (f"{clone['ahead']} commits that have", "them")
    return f", with {commits} not landed: 'merge {output.text_of(agent['name'])}' still lands {it}"


def _repeat(was: Agent, numbers: list[int]) -> None:
    """Say once more how a file comes back that the daemon has moved away: `show` doesn't list its finding any longer."""
    findings = was.get("findings")
    for finding in findings if isinstance(findings, list) else ():
        if finding["aside"] is not None and (not numbers or finding["number"] in numbers):
            output.note(f"{output.text_of(was['name'])}: {finding['text']}")


def _split(arguments: Arguments) -> tuple[list[str], list[int]]:
    first, *rest = arguments.words
    numbers = [int(word) for word in rest if word.isdecimal()]
    names = [first, *(word for word in rest if not word.isdecimal())]
    if numbers and len(names) > 1:
        raise arguments.command.wrong("numbers of findings go with one NAME")
    return names, numbers


def _check_words(connection: Connection, names: list[str]) -> None:
    """Check that no word behind a NAME is a mistyped number, such as `3x` or `1,2`: it must not accept all of that agent.

    Raises:
        NotFound: one is no name of an agent's, and begins with a digit or can't be one.
    """
    doubtful = [word for word in names[1:] if not many.is_glob(word) and (word[:1].isdigit() or not is_agent_name(word))]
    if not doubtful:
        return
    agents = connection.call_list("agent.list", fields=["id", "name"], names=doubtful)
    known = {agent[key] for agent in agents for key in ("id", "name")}
    for word in doubtful:
        if word not in known:
            raise errors.NotFound(
                f"nothing is accepted, because {word!r} is neither a finding's number nor an agent: "
                "'substratctl show NAME' lists the findings"
            )
