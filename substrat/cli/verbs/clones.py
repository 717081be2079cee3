"""`clones`: lists the private clones that are on disk, and removes those, or the refs, of agents that are over."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import COMMAND_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = Command(
    "clones",
    "[prune [NAME]...]",
    options=(
        Option("--sizes", about="look at all files for the sizes of now"),
        Option("--dry-run", about="with prune: say what would go, and remove nothing"),
        Option("--yes", about="with prune: don't ask"),
        Option("--refs", about="with prune: remove the refs of these agents from your repository, and no clone"),
        Option("--unlanded", about="with prune: also those with work that is in no branch of yours, or nowhere else"),
    ),
    notes=(
        "prune removes the clones of agents that have ended or are removed, all of them or those that are named. Each is "
        "kept once more before; the refs in refs/substrat/ of your repository stay. prune --refs removes these: all of a "
        "removed agent, and of one that has ended those of its turns, each once its work is in a branch of yours.\n"
        "SIZE is as of the last turn's end. WORK is in no branch yet: commits (+), uncommitted files (~), other branches "
        "and stashes (&). ONLY HERE is in the clone and nowhere else."
    ),
)
_MEMBERS = (
    "agent", "id", "path", "repository", "branch", "base", "head", "ahead", "behind", "files", "unlanded",
    "kept_only_here", "bytes",
)  # fmt: skip
_TITLES = ("AGENT", "STATE", "WORK", "SIZE", "ONLY HERE", "REPOSITORY")
_PRUNING = ("dry-run", "yes", "refs", "unlanded")
_WIDTH = 80

Answer = list[dict[str, object]]


def run(arguments: Arguments) -> int:
    """List the clones, or prune them, and return the exit status."""
    if arguments.words and arguments.words[0] == "prune":
        return _prune(arguments, arguments.words[1:])
    if arguments.words:
        raise COMMAND.wrong(f"it takes no name but after 'prune': '{COMMAND_NAME} clones prune {arguments.words[0]}'")
    if given := [key for key in _PRUNING if arguments.flag(key)]:
        raise COMMAND.wrong(f"--{given[0]} belongs to '{COMMAND_NAME} clones prune'")
    with Connection() as connection:
        clones = connection.call_list("clone.list", sizes=arguments.flag("sizes") or None)
    if arguments.json:
        output.put_json([{name: clone[name] for name in _MEMBERS} for clone in clones])
        return errors.DONE
    if not clones:
        output.note(f"no agent has a private clone: '{COMMAND_NAME} spawn --clone' makes one")
        return errors.DONE
    columns = output.terminal_width(sys.stdout)
    shown = output.cut(
        _TITLES, [_row(clone) for clone in clones], columns or _WIDTH, {"REPOSITORY": 12, "ONLY HERE": 14, "AGENT": 10}
    )
    sys.stdout.write(output.table(_TITLES, shown, colour=output.has_colour(sys.stdout), painted=1))
    for clone in clones:
        if clone.get("not_kept"):
            print(f"{output.text_of(clone['agent'])} couldn't be kept: {output.text_of(clone['not_kept'])}")
    return errors.DONE


def _row(clone: dict[str, object]) -> tuple[str, ...]:
    commits = f"+{clone['ahead']}" if any(one.endswith((" commit", " commits")) for one in _words(clone, "work")) else ""
    files = f"~{clone['files']}" if clone.get("files") else ""
    asides = sum(number for key, number in _kept(clone).items() if key in {"branches", "stashes"})
    work = " ".join(filter(None, (commits, files, f"&{asides}" if asides else ""))) or "-"
    only = ", ".join(_words(clone, "only_here")) or "-"
    return (
        output.text_of(clone["agent"]), output.text_of(clone["state"]), work, output.size(clone.get("bytes")),
        output.text_of(only), output.text_of(clone["repository"]),
    )  # fmt: skip


def _kept(clone: dict[str, object]) -> dict[str, int]:
    value = clone.get("kept_only_here")
    return value if isinstance(value, dict) else {}


def _words(found: dict[str, object], key: str) -> list[str]:
    value = found.get(key)
    return [str(word) for word in value] if isinstance(value, list) else []


# Pruning


def _prune(arguments: Arguments, names: Sequence[str]) -> int:
    dry_run, can_ask = arguments.flag("dry-run"), sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    if arguments.flag("sizes"):
        raise COMMAND.wrong(f"--sizes belongs to '{COMMAND_NAME} clones', without prune")
    if dry_run and arguments.flag("yes"):
        raise COMMAND.wrong("--dry-run and --yes contradict each other: leave one of them out")
    if not (dry_run or arguments.flag("yes") or can_ask):
        raise COMMAND.wrong("there is no terminal to ask on: --yes removes without asking, --dry-run says what would go")
    unlanded = True if arguments.flag("unlanded") else None
    method = "clone.prune_refs" if arguments.flag("refs") else "clone.prune"
    with Connection() as connection:
        found = connection.call_list(method, names=list(names) or None, unlanded=unlanded, dry_run=True)
        going = [one for one in found if one["outcome"] == "would-go"]
        if not dry_run and going and (arguments.flag("yes") or _agrees(arguments, going)):
            ids = list(dict.fromkeys(str(one["id"] or one["agent"]) for one in going))
            done = connection.call_list(method, names=ids, unlanded=unlanded)
            asked = {_key(one) for one in going}
            found = [one for one in found if one not in going] + [one for one in done if _key(one) in asked]
        elif not dry_run and going:
            output.note("nothing was removed")
            return errors.FAILED
    return _report(arguments, found, is_named=bool(names))


def _key(one: dict[str, object]) -> tuple[object, object, object]:
    """Return the members that tell a clone, or an agent's refs in a repository, from others."""
    return one["id"], one["agent"], one["path"]


def _agrees(arguments: Arguments, going: Answer) -> bool:
    """Show what would go, clone by clone or agent by agent, and ask whether it shall."""
    for one in going:
        print(_line(arguments, one))
    if arguments.flag("refs"):
        return output.agrees("Remove these refs?")
    return output.agrees(f"Remove {'this clone' if len(going) == 1 else f'these {len(going)} clones'}?")


def _report(arguments: Arguments, found: Answer, *, is_named: bool) -> int:
    """Say what went and what stays; a clone that was named and stays is a failure."""
    staying, of_refs = [one for one in found if one["outcome"] == "stays"], arguments.flag("refs")
    if arguments.json:
        output.put_json([
            {"agent": one["agent"], "path": one["path"], "removed": one["outcome"] == "pruned", "reason": one["text"],
             **({"refs": one["refs"]} if of_refs else {})}
            for one in found
        ])  # fmt: skip
    else:
        for one in found:
            if one["outcome"] != "stays":
                print(_line(arguments, one))
        for one in found:
            if one.get("refs") and not of_refs:
                print(f"the refs of {output.text_of(one['agent'])} stay: '{output.text_of(one['refs'])}' removes them")
        if not found:
            output.note(f"there {'are no refs' if of_refs else 'is no clone'} of an agent that has ended or is removed")
    for one in staying:
        output.note(f"{one['agent']} stays: {one['text']}")
    return errors.FAILED if staying and is_named else errors.DONE


def _line(arguments: Arguments, one: dict[str, object]) -> str:
    verb = "would go" if one["outcome"] == "would-go" else "removed"
    if one["outcome"] == "would-go" and not arguments.flag("refs"):
        return f"{output.text_of(one['agent'])}  {verb}: {output.text_of(one['path'])}, {output.text_of(one['text'])}"
    return f"{output.text_of(one['agent'])}  {verb}: {output.text_of(one['text'])}"
