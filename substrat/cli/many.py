"""Serves the verbs that take several agents: finds the agents, makes one request for each, reports each."""

from __future__ import annotations

from substrat import errors
from substrat.cli import alike, output
from substrat.cli.connection import as_object
from substrat.cli.options import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from substrat.cli.connection import Connection
    from substrat.cli.options import Arguments
    from substrat.cli.output import Agent

ALL = Option("--all", about="all agents that this can be done to")
STOPPING = "still waiting: a turn that doesn't stop when asked is killed after some seconds (twice `turns.stop_grace`)"
GLOB_NOTE = "A NAME such as 'app-*' stands for all agents that it fits."
JSON_NOTE = "--json gives an object for one NAME, and an array in their order for several."


def names_in(agents: list[Agent], states: Collection[object]) -> list[str]:
    """Return the ids of the agents that are in one of the states."""
    return [str(agent["id"]) for agent in agents if agent.get("state") in states]


def is_glob(word: str) -> bool:
    """Say whether a word stands for all agents whose names fit it: no name has these letters."""
    return bool(set(word) & set("*?["))


def fitting(glob: str, agents: list[Agent]) -> list[str]:
    """Return the names of the agents that fit a glob such as `app-*`, in their order."""
    # Imported here because most command lines have none.
    from fnmatch import fnmatchcase

    return [name for name in (str(agent["name"]) for agent in agents) if fnmatchcase(name, glob)]


def named(connection: Connection, words: list[str]) -> list[str]:
    """Return words with the fitting names in place of each glob; a glob that fits none stays, and names no agent."""
    if not any(map(is_glob, words)):
        return words
    agents = connection.call_list("agent.list", fields=["name"])
    return [name for word in words for name in ((is_glob(word) and fitting(word, agents)) or [word])]


def counted_names(words: list[str]) -> int:
    """Return how many agents some names ask for, where a glob is several: it brings an array, whatever it fits."""
    return 2 if any(map(is_glob, words)) else len(words)


def check_all(arguments: Arguments, names: list[str], flag: str = "all") -> None:
    """Check that a command line has either names or the option that stands for them.

    Args:
        arguments: the command line.
        names: the names on it.
        flag: the option's key, for example `ended` for `--ended`.

    Raises:
        UsageError: it has both or neither.
    """
    if arguments.flag(flag) and names:
        raise arguments.command.wrong(f"names and --{flag} came together; give one of them")
    if not arguments.flag(flag) and not names:
        raise arguments.command.wrong(f"it takes NAME..., or --{flag}")


def chosen(arguments: Arguments, connection: Connection, states: Collection[str], flag: str = "all") -> list[str]:
    """Return the names on a command line, or with `--all` (or another flag) the ids of the agents in some states.

    Raises:
        UsageError: the line has both or neither.
    """
    check_all(arguments, arguments.words, flag)
    if not arguments.flag(flag):
        return named(connection, arguments.words)
    return names_in(connection.call_list("agent.list", fields=["id", "state"]), states)


def descendants(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the agents that others descend from which haven't ended, each with their names.

    Args:
        connection: to the daemon.
        names: the agents' names or ids; one that isn't there has none.
    """
    children: dict[object, list[Agent]] = {}
    fields = ["id", "name", "parent", "state"]
    for agent in (agents := connection.call_list("agent.list", fields=fields, names=names, family=True)):
        children.setdefault(agent.get("parent"), []).append(agent)
    for agent in [agent for agent in agents if {agent["id"], agent["name"]} & {*names}]:
        found = [*children.get(agent["id"], [])]
        for member in found:  # it grows while it is walked
            found += children.get(member["id"], [])
        if living := [output.text_of(member["name"]) for member in found if member.get("state") != "ended"]:
            yield output.text_of(agent["name"]), living


def settle(outcomes: Sequence[object]) -> tuple[list[object], int]:
    """Complain about the requests that failed.

    Returns:
        The results of the others, and the exit status of the first failure (0 when there is none).
    """
    results: list[object] = []
    status = errors.DONE
    for outcome in outcomes:
        if isinstance(outcome, errors.SubstratError):
            failed = output.complain(alike.hinted(outcome))
            status = status or failed
        else:
            results.append(outcome)
    return results, status


def ask_each(connection: Connection, method: str, names: list[str], **params: object) -> tuple[list[object], int]:
    """Make one request for each agent, all at once, and complain about those that fail.

    Returns:
        The results of the others, and the exit status of the first failure (0 when there is none).
    """
    # Naming one agent twice is asking once.
    return settle(connection.each((method, {"agent": name, **params}) for name in dict.fromkeys(names)))


def ask_objects(connection: Connection, method: str, names: list[str], **params: object) -> tuple[list[Agent], int]:
    """Make requests like `ask_each`; each result is an object."""
    results, status = ask_each(connection, method, names, **params)
    return [as_object(method, result) for result in results], status


def stop(connection: Connection, method: str, names: list[str], **params: object) -> tuple[list[Agent], int]:
    """Make requests like `ask_objects` that stop turns, which may take seconds, and say so to a person who waits."""
    connection.slow_notice = STOPPING
    try:
        return ask_objects(connection, method, names, **params)
    except KeyboardInterrupt:
        output.note("nothing was taken back: turns that were told to stop are stopped, and 'substratctl ls' shows them")
        raise


def put_json(arguments: Arguments, documents: Sequence[object], status: int, *, names: int | None = None) -> None:
    """Write the documents of a verb on several agents: an object for one NAME, an array for several, nothing for none.

    Args:
        arguments: the command line.
        documents: one for each agent that didn't fail.
        status: the exit status so far; where every agent failed, standard output stays empty.
        names: how many names the command line has; by default all its words are names.
    """
    if names is None:
        names = counted_names(arguments.words)
    if names == 1:
        for document in documents[:1]:
            output.put_json(document)
    elif documents or status == errors.DONE:
        output.put_json(list(documents))


def report(arguments: Arguments, agents: Sequence[Agent], status: int, done: str, *, everyone: bool) -> None:
    """Report the agents after a request: as JSON, in a line for each, or in one line for all of them.

    Args:
        arguments: the command line.
        agents: the agents that didn't fail.
        status: the exit status so far.
        done: the word for it, for example `suspended`.
        everyone: whether `--all` or its like stood for the names; one line then replaces fifty.
    """
    if arguments.json:
        put_json(arguments, agents, status)
    elif everyone:
        print(f"{counted(len(agents))} {done}")
    else:
        for agent in agents:
            state = "frozen" if output.is_frozen(agent) else output.text_of(agent["state"])
            print(f"{output.text_of(agent['name'])}  {state}")


def counted(number: int) -> str:
    """Say a number of agents."""
    return f"{number} agent{'' if number == 1 else 's'}"


def title(name: object, *, more: bool, colour: bool) -> str:
    """Return the line above one agent's part of a long answer about several; empty when there is only one.

    Args:
        name: the agent's name.
        more: whether the answer is about several agents.
        colour: whether to use colours.
    """
    return output.paint(f"== {output.text_of(name)} ==", output.BOLD, on=colour) + "\n" if more else ""
