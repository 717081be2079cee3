"""`merge`: lands agents' commits in a branch of the user's, after a look at files that the host would obey."""

from __future__ import annotations

import os
import shlex
import sys

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection, as_list
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.outage import Outage
from substrat.cli.table import COMMAND_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = Command(
    "merge",
    "NAME...",
    options=(
        Option("--into", value="BRANCH", about="the branch; default: the one that was checked out at the spawn"),
        Option("--squash", about="as one commit"),
        Option("--ff-only", about="only where the branch is an ancestor of the work"),
        Option("--message", "-m", value="TEXT", about="the message of the commit"),
        Option("--check", value="CMD", about="land only if this shell command succeeds on the merged files"),
        Option("--accept", value="FILE", about="a file or directory that you have looked at, or `.` for all; repeatable"),
        Option("--at", value="COMMIT", about="the commit at which you have looked; with another one nothing lands"),
    ),
    notes=(
        "Only commits land; uncommitted files stay in the clone. Several agents land one after the other, "
        f"the oldest first, each previewed on the landings before it. A conflict changes nothing. While a sandbox runs "
        f"that can write in the checkout, work is queued (status 1) and lands when that has ended. Without --at, --accept "
        f"counts on a terminal only, for the files that this command itself shows. Without --check an agent's own check "
        f"counts (spawn --check), and isn't run again where it has passed on the files that land. "
        f"{many.GLOB_NOTE}\n{many.JSON_NOTE} Refusals and notes, such as of a rebase under way, are on standard error."
    ),
)
_FINE = ("landed", "nothing")
_PATIENCE_S = 1.0
"""For so long a person waits without a word."""


def run(arguments: Arguments) -> int:
    """Land the work, and return the exit status: 0 when all of it landed or nothing was to land."""
    if arguments.flag("squash") and arguments.flag("ff-only"):
        raise COMMAND.wrong("--squash and --ff-only contradict each other: leave one of them out")
    can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    accepted, at = arguments.values("accept"), arguments.value("at")
    if at is not None and not _is_commit(at):
        raise COMMAND.wrong(f"--at takes a commit, at least 7 hexadecimal digits of it, not {at!r}")
    interrupt = None
    with Connection() as connection:
        named = many.named(connection, arguments.words)
        if (accepted or at) and len(named) > 1:
            return _refuse_several(named, accepted)
        names, status = _clones(connection, named)
        if not names:
            return status
        asked = _asked(arguments, names, (accepted if at else [], at), can_ask=can_ask)
        try:
            outcomes = _merge(connection, asked)
        except KeyboardInterrupt as pressed:  # the queue stays as it is
            interrupt = pressed
            with Connection() as another:
                outcomes = another.call_list("agent.merge", **asked, wait=False)
        held = [one for one in outcomes if one["outcome"] == "held"]
        if held and can_ask and interrupt is None:
            others = [one for one in outcomes if one["outcome"] != "held"]
            outcomes = others + _shown_first(connection, arguments, held, () if at else accepted)
    if arguments.json:
        many.put_json(arguments, [_shown(one) for one in outcomes], errors.DONE)
    _tell(outcomes, json=arguments.json)
    if interrupt is not None:
        sys.stdout.flush()
        raise interrupt
    return status if all(one["outcome"] in _FINE for one in outcomes) else errors.FAILED


def _tell(outcomes: list[dict[str, object]], *, json: bool) -> None:
    """Print each outcome; refusals and notes go to standard error."""
    for one in outcomes:
        if one["outcome"] == "queued":
            output.note(f"{one['agent']}: {one['text']}")
        elif one["outcome"] not in _FINE:
            output.complain(errors.Conflict(str(one["text"])))
            check = one.get("check")
            lines = str(check["output"]).splitlines() if isinstance(check, dict) and not json else []
            if len(lines) > 1:  # the sentence has the last one
                print(*(f"  {line}" for line in lines), sep="\n", file=sys.stderr)
        elif not json:
            print(output.text_of(one["text"]))
        notes = one.get("notes")
        for note in notes if isinstance(notes, list) else ():
            output.note(str(note))


def _shown_first(
    connection: Connection, arguments: Arguments, held: list[dict[str, object]], accepted: Sequence[str]
) -> list[dict[str, object]]:
    """Show a person the files that must be looked at, land the work if he agrees, and return the outcomes then."""
    if not _agrees(held, accepted):
        return [{**one, "text": f"{one['agent']}'s work isn't landed"} for one in held]
    # One after the other, each bound to the commit that was shown: another commit is shown anew.
    shown = ((str(one["agent"]), ([str(path) for path in _files(one)], str(one["head"]))) for one in held)
    again = (_merge(connection, _asked(arguments, [name], looked, can_ask=True)) for name, looked in shown)
    return [one for found in again for one in found]


def _clones(connection: Connection, names: list[str]) -> tuple[list[str], int]:
    """Return which of several names are agents with clones, after a line for each other one, and the exit status so far."""
    if len(names) == 1:
        return names, errors.DONE
    found, status = many.ask_objects(connection, "agent.show", names)
    in_place = [agent for agent in found if agent["clone"] is None]
    # The daemon says why: a single one is refused, and nothing of the others with it.
    _, refused = many.settle(connection.each(("agent.merge", {"agents": [agent["id"]]}) for agent in in_place))
    return [str(agent["id"]) for agent in found if agent["clone"] is not None], status or refused


def _is_commit(text: str) -> bool:
    return 7 <= len(text) <= 64 and not set(text) - set("0123456789abcdef")


def _refuse_several(names: list[str], accepted: list[str]) -> int:
    """Refuse an acceptance of several agents' work, with a command for each, and return the exit status."""
    status = output.complain(COMMAND.wrong("--accept and --at are about one agent's work: ask for each by itself"))
    options = [word for path in accepted for word in ("--accept", path)]
    for name in names:
        print(" ", shlex.join((COMMAND_NAME, "merge", name, *options)), file=sys.stderr)
    return status


def _asked(
    arguments: Arguments, names: list[str], looked: tuple[list[str], str | None], *, can_ask: bool
) -> dict[str, object]:
    """Return the parameters of a request; with an id of its own it may be made again after a restart of the daemon.

    `looked` has the files that a person has looked at, and the commit.
    """
    accepted, at = looked
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
        "at": at,
        "unattended": None if can_ask else True,
    }


def _merge(connection: Connection, asked: dict[str, object]) -> list[dict[str, object]]:
    outage = Outage(connection)
    while True:
        try:
            number = connection.submit("agent.merge", asked)
            connection.next_event(until=number, patience=_PATIENCE_S)
            if not connection.has_answer(number) and sys.stderr.isatty():
                _tell_steps(asked)
            return as_list("agent.merge", connection.answer(number))
        except errors.ConnectionLost:
            if connection.server:
                outage.over()
            outage.reconnect()


def _tell_steps(asked: dict[str, object]) -> None:
    """Tell a waiting person the present step of each agent's landing."""
    try:
        with Connection() as another:
            outcomes = another.call_list("agent.merge", **asked, wait=False)
    except errors.SubstratError:  # the daemon ends just now, and the wait for its answer tells it
        return
    for one in outcomes:
        if one["outcome"] == "queued":
            output.note(f"{one['agent']}: {one['text']}")


def _shown(outcome: dict[str, object]) -> dict[str, object]:
    """Return an outcome's members for scripts, to which files that must be looked at first are a refusal."""
    is_held, files = outcome["outcome"] == "held", _files(outcome)
    return {
        "agent": outcome["agent"],
        "into": outcome["into"],
        "outcome": "refused" if is_held else outcome["outcome"],
        "commit": None if is_held else outcome["commit"],
        "head": outcome.get("head"),
        "was": outcome.get("was"),
        "files": [] if is_held else files,
        "protected": files if is_held else [],
        "check": outcome.get("check"),
    }


def _files(outcome: dict[str, object]) -> list[object]:
    files = outcome.get("files")
    return files if isinstance(files, list) else []


def _agrees(held: list[dict[str, object]], accepted: Sequence[str]) -> bool:
    """Show the files that must be looked at, and ask whether they land, unless the command line has accepted them all."""
    for one in held:
        print(output.text_of(one["text"]))
    names = [str(path) for one in held for path in _files(one)]
    if names and all(
        any(name in {".", path} or path.startswith(f"{name.rstrip('/')}/") for name in accepted) for path in names
    ):
        return True
    return output.agrees("Land them all the same?")
