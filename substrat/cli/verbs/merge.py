"""`merge`: lands agents' commits in a branch of the user's, after a look at files that the host would obey."""

from __future__ import annotations

import os
import sys

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.outage import Outage
from substrat.cli.table import VERBS

COMMAND = Command(
    "merge",
    VERBS["merge"],
    "NAME...",
    least=1,
    most=None,
    options=(
        Option("--into", value="BRANCH", about="the branch; default: the one that was checked out at the spawn"),
        Option("--squash", about="as one commit"),
        Option("--ff-only", about="only where the branch is an ancestor of the work"),
        Option("--message", "-m", value="TEXT", about="the message of the commit"),
        Option("--check", value="CMD", about="land only if this shell command succeeds on the merged files"),
        Option("--accept", value="FILE", about="a file or directory that you have looked at, or `.` for all; repeatable"),
    ),
    notes=(
        "Only commits land; uncommitted files stay in the clone. Several agents land one after the other, "
        f"the oldest first, each previewed on what landed before it. A conflict changes nothing. While a sandbox runs that "
        f"can write in the checkout, work is queued (status 1) and lands when that has ended. "
        f"{many.GLOB_NOTE}\n{many.JSON_NOTE} Refusals and notes, such as of a rebase under way, are on standard error."
    ),
)
_FINE = ("landed", "nothing")


def run(arguments: Arguments) -> int:
    """Land the work, and return the exit status: 0 when all of it landed or nothing was to land."""
    if arguments.flag("squash") and arguments.flag("ff-only"):
        raise COMMAND.wrong("--squash and --ff-only contradict each other: leave one of them out")
    can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    accepted = arguments.values("accept")
    interrupt = None
    with Connection() as connection:
        names, status = _clones(connection, many.named(connection, arguments.words))
        if not names:
            return status
        asked = _asked(arguments, names, accepted, can_ask=can_ask)
        try:
            outcomes = _merge(connection, asked)
        except KeyboardInterrupt as pressed:  # the queue stays as it is
            interrupt = pressed
            with Connection() as another:
                outcomes = [one for one in another.call_list("agent.merge", **asked, wait=False) if isinstance(one, dict)]
        held = [one for one in outcomes if one["outcome"] == "held"]
        if held and can_ask and interrupt is None and _agrees(held):
            looked = [*accepted, *(str(path) for one in held for path in _files(one))]
            again = _merge(connection, _asked(arguments, [str(one["agent"]) for one in held], looked, can_ask=True))
            outcomes = [one for one in outcomes if one["outcome"] != "held"] + again
    if arguments.json:
        check = arguments.value("check")
        many.put_json(arguments, [{**_shown(one), "check": check} for one in outcomes], errors.DONE)
    for one in outcomes:
        if one["outcome"] == "queued":
            output.note(f"{one['agent']}: {one['text']}")
        elif one["outcome"] not in _FINE:
            output.complain(errors.Conflict(str(one["text"])))
        elif not arguments.json:
            print(output.text_of(one["text"]))
        notes = one.get("notes")
        for note in notes if isinstance(notes, list) else ():
            output.note(str(note))
    if interrupt is not None:
        sys.stdout.flush()
        raise interrupt
    return status if all(one["outcome"] in _FINE for one in outcomes) else errors.FAILED


def _clones(connection: Connection, names: list[str]) -> tuple[list[str], int]:
    """Return which of several names are agents with clones, after a line for each other one, and the exit status so far."""
    if len(names) == 1:
        return names, errors.DONE
    found, status = many.ask_objects(connection, "agent.show", names)
    in_place = [agent for agent in found if agent["clone"] is None]
    # The daemon says why: a single one is refused, and nothing of the others with it.
    _, refused = many.settle(connection.each(("agent.merge", {"agents": [agent["id"]]}) for agent in in_place))
    return [str(agent["id"]) for agent in found if agent["clone"] is not None], status or refused


def _asked(arguments: Arguments, names: list[str], accepted: list[str], *, can_ask: bool) -> dict[str, object]:
    """Return the parameters of a request; with an id of its own it may be made again after a restart of the daemon."""
    return {
        "agents": names,
        "outcomes": True,
        "request": os.urandom(16).hex(),
        "into": arguments.value("into"),
        "squash": True if arguments.flag("squash") else None,
        "ff_only": True if arguments.flag("ff-only") else None,
        "message": arguments.value("message"),
        "check": arguments.value("check"),
        "accept": accepted or None,
        "unattended": None if can_ask else True,
    }


def _merge(connection: Connection, asked: dict[str, object]) -> list[dict[str, object]]:
    outage = Outage(connection)
    while True:
        try:
            found = connection.call_list("agent.merge", **asked)
        except errors.ConnectionLost:
            if connection.server:
                outage.over()
            outage.reconnect()
        else:
            return [one for one in found if isinstance(one, dict)]


def _shown(outcome: dict[str, object]) -> dict[str, object]:
    """Return an outcome's members for scripts, to which files that must be looked at first are a refusal."""
    is_held, files = outcome["outcome"] == "held", _files(outcome)
    return {
        "agent": outcome["agent"],
        "into": outcome["into"],
        "outcome": "refused" if is_held else outcome["outcome"],
        "commit": None if is_held else outcome["commit"],
        "files": [] if is_held else files,
        "protected": files if is_held else [],
    }


def _files(outcome: dict[str, object]) -> list[object]:
    files = outcome.get("files")
    return files if isinstance(files, list) else []


def _agrees(held: list[dict[str, object]]) -> bool:
    """Show the files that must be looked at, and ask whether they land."""
    for one in held:
        print(output.text_of(one["text"]))
    return output.agrees("Land them all the same?")
