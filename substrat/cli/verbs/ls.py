"""`ls`: lists the agents, first those that need a person; its start-up time is the yardstick for the whole program."""

from __future__ import annotations

import gc
import os
import sys

from substrat import errors
from substrat.cli import agent_rows, alike, attention, output, waiting
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.protocol.attention import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.cli.output import Agent

COMMAND = Command(
    "ls",
    "[NAME|GLOB]...",
    options=(
        Option("--attention", value="KIND", about="only agents of this attention; several with commas or repeated"),
        Option("--state", value="STATE", about="only agents in this state; several with commas or repeated"),
        Option("--workspace", "-w", value="DIR", about="only agents that work in this directory or below it"),
        Option("--all", "-a", about="a row for each agent, also those of a family and those that don't fit"),
        Option("--tree", about="families: each agent below the one that spawned it, and what it waits for"),
        Option("--watch", about="draw the list anew each second, until Ctrl-C"),
        Option("--quiet", "-q", about="the names only, one a line"),
    ),
    notes=(
        "Agents that need you come first, each with why and what to type. A family has one row, 'lead +8', where its "
        "weightiest member would stand, with how many of the others do what; agents that NAMEs or options pick have a row "
        "each, and so have all with --all. SINCE is since when. TOKENS are those of all "
        "its turns, without the model's cache. DOING is the last tool call or status of a running turn, the first line "
        "of the last result of an idle agent, otherwise why an agent waits or needs you. WORK is what agents with a clone "
        "of their own have: '+2 ~3 &1' stands for 2 commits that have not landed, 3 uncommitted files and one other branch "
        "or stash with work of its own; 'unkept' work is in the clone alone. On a terminal "
        "columns are left out and cut to fit its width, and rows that don't fit its height are folded, the least urgent "
        "first. --json gives whole values, oldest agent first; with --tree each agent's object has its children as "
        "'children'. --tree with NAMEs draws those agents and the ones below them.\n"
        f"The kinds of attention: {', '.join(KINDS)}."
    ),
)
_FIELDS = (
    "name", "state", "attention", "activity", "last", "tokens", "program", "model", "network", "unread", "workspace",
    "clone",
)  # fmt: skip


def run(arguments: Arguments) -> int:
    """Print the agents and return the exit status."""
    wanted = _Wanted(arguments)
    if arguments.flag("tree"):
        if any(map(arguments.flag, ("all", "watch", "quiet"))) or any(
            map(arguments.values, ("attention", "state", "workspace"))
        ):
            raise COMMAND.wrong("--tree draws whole families: leave the other options than --json out, and give NAMEs")
        # Imported here because most lists are no trees.
        from substrat.cli import families

        families.show(arguments.words, as_json=arguments.json)
        return errors.DONE
    if arguments.flag("watch"):
        if arguments.json or arguments.flag("quiet"):
            raise COMMAND.wrong("--watch draws the table for a person: leave --json and --quiet out")
        # Imported here because most lists are printed once.
        from substrat.cli import watch

        return watch.run(lambda connection: wanted.of(connection, wanted.fields))
    # No object of an answer holds itself, and looking for such ones among ten thousand takes a tenth of the time.
    gc.disable()
    try:
        return _print(arguments, wanted)
    finally:
        gc.enable()


def _print(arguments: Arguments, wanted: _Wanted) -> int:
    quiet = arguments.flag("quiet")
    with Connection() as connection:
        agents, unknown = wanted.of(connection, ["name"] if quiet else None if arguments.json else wanted.fields)
        if not quiet:
            waiting.explain(connection, agents)
    if arguments.json:
        output.put_json([{"name": agent.get("name")} for agent in agents] if quiet else agents)
    elif quiet:
        sys.stdout.write("".join(f"{output.text_of(agent.get('name'))}\n" for agent in agents))
    elif agents or not unknown:
        _print_table(agents, whole=arguments.flag("all"))
    for problem in unknown:
        output.complain(alike.hinted(problem))
    return errors.NOT_FOUND if unknown else errors.DONE


def _print_table(agents: list[Agent], *, whole: bool) -> None:
    # A line below the table is the shell's next prompt.
    height = None if whole else output.terminal_height(sys.stdout)
    place = agent_rows.here(output.terminal_width(sys.stdout), height - 1 if height is not None else None)
    sys.stdout.write("\n".join([*agent_rows.laid_out(agents, place), ""]))


class _Wanted:
    """The agents that a command line asks for.

    Raises:
        UsageError: it names a state or a kind that there isn't.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._words = list(dict.fromkeys(arguments.words))
        self._kinds = _listed(arguments, "attention", "kind of attention", lambda: KINDS)
        self._states = _listed(arguments, "state", "state", _states)
        directory = arguments.value("workspace")
        self._directory = os.path.realpath(directory) if directory is not None else None
        is_picked = bool(self._words or self._kinds or self._states or directory)
        # A person who picks agents wants to see these, not their families.
        self.fields = [*_FIELDS, *(() if is_picked or arguments.flag("all") else ("parent", "family"))]
        """The members that the table needs."""

    def of(self, connection: Connection, fields: list[str] | None) -> tuple[list[Agent], list[errors.NotFound]]:
        """Ask for the agents.

        Args:
            connection: the conversation with the daemon.
            fields: the members that are needed; None: all.

        Returns:
            The agents, with more members than asked for, and an error for each NAME that there isn't.
        """
        if fields is not None:
            needed = ("id" if self._words else "", "attention" if self._kinds else "", "state" if self._states else "")
            fields = list(dict.fromkeys([*fields, *filter(None, needed), *(["workspace"] if self._directory else [])]))
        agents = connection.call_list("agent.list", fields=fields, names=self._names())
        named, unknown = self._named(agents) if self._words else (agents, [])
        return [agent for agent in named if self._fits(agent)], unknown

    def _names(self) -> list[str] | None:
        """Return the NAMEs if they are all that is asked for; None: all agents are."""
        if not self._words:
            return None
        # Imported here because most lists are of all agents.
        from substrat.cli import many

        return None if any(map(many.is_glob, self._words)) else self._words

    def _named(self, agents: list[Agent]) -> tuple[list[Agent], list[errors.NotFound]]:
        from substrat.cli import many

        globs = [word for word in self._words if many.is_glob(word)]
        names = [word for word in self._words if word not in globs]
        known = {agent.get(key) for agent in agents for key in ("name", "id")}
        unknown = [errors.NotFound(f"there is no agent {name!r}") for name in names if name not in known]
        wanted = {*names, *(name for glob in globs for name in many.fitting(glob, agents))}
        return [agent for agent in agents if {agent.get("name"), agent.get("id")} & wanted], unknown

    def _fits(self, agent: Agent) -> bool:
        if self._kinds and attention.kind(agent) not in self._kinds:
            return False
        if self._states and agent.get("state") not in self._states:
            return False
        if self._directory is None:
            return True
        return f"{agent.get('workspace')}/".startswith(f"{self._directory.rstrip('/')}/")


def _listed(arguments: Arguments, key: str, what: str, known: Callable[[], tuple[str, ...]]) -> list[str]:
    """Return the values of an option that takes several with commas.

    Raises:
        UsageError: one of them isn't known, or there is none.
    """
    given = arguments.values(key)
    words = [word.strip() for part in given for word in part.split(",") if word.strip()]
    if given and not words:
        raise COMMAND.wrong(f"--{key} names no {what}")
    for word in words:
        if word not in known():
            raise COMMAND.wrong(f"{word!r} is no {what}; there are {', '.join(known())}")
    return words


def _states() -> tuple[str, ...]:
    # Imported here because the table of methods is a third of all imports of the bare `ls`.
    from substrat.protocol import vocabulary

    return vocabulary.AGENT_STATES
