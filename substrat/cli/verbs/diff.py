"""`diff`: shows what agents have changed in their private clones, as of the end of their last turns."""

from __future__ import annotations

import sys

from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "diff",
    "NAME...",
    options=(
        Option("--wip", about="uncommitted files too"),
        Option("--turn", value="N", about="the changes of turn N alone, uncommitted files too"),
        Option("--stat", about="the files with their numbers of lines"),
        Option("--name-only", about="the files' names"),
    ),
    notes=f"Compares with the commit that the clone started at. {many.JSON_NOTE}",
)
_MEMBERS = ("agent", "from", "to", "files", "added", "deleted")
_SIGNS = {"added": "A", "deleted": "D", "modified": "M", "renamed": "R", "copied": "C", "type-changed": "T"}


def run(arguments: Arguments) -> int:
    """Print the differences, and return the exit status."""
    stat, names = arguments.flag("stat"), arguments.flag("name-only")
    if arguments.flag("wip") and arguments.flag("turn"):
        raise COMMAND.wrong("--turn N counts uncommitted files anyway: leave --wip out")
    wanted: dict[str, object] = {"wip": True if arguments.flag("wip") else None, "turn": arguments.whole("turn")}
    wants_text = not (arguments.json or stat or names)
    with Connection() as connection:
        found, status = many.ask_objects(
            connection, "agent.diff", arguments.words, **{key: value for key, value in wanted.items() if value is not None},
            **({"text": True} if wants_text else {}),
        )  # fmt: skip
        empty = [one.get("agent") for one in found if not one.get("files") and not any(wanted.values())]
        uncommitted = _uncommitted(connection, empty) if empty and not arguments.json else {}
    if arguments.json:
        many.put_json(arguments, [{name: one[name] for name in _MEMBERS} for one in found], status)
        return status
    colour = output.has_colour(sys.stdout)
    for one in found:
        sys.stdout.write(many.title(one.get("agent"), more=len(arguments.words) > 1, colour=colour))
        files = one.get("files")
        for file in files if isinstance(files, list) else ():
            if names:
                print(output.text_of(file["path"]))
            elif stat:
                print(_stat(file))
        if stat:
            lines = "line" if one.get("added") == 1 else "lines"
            print(f"{output.text_of(one.get('added'))} {lines} added, {output.text_of(one.get('deleted'))} deleted")
        if wants_text:
            _put_patch(str(one.get("text", "")), colour=colour)
            if one.get("cut"):
                output.note(f"{one['cut']} bytes more: git diff {one['from']} {one['to']} shows all of it")
        if number := uncommitted.get(one.get("agent")):
            name, files = output.text_of(one["agent"]), "1 file" if number == 1 else f"{number} files"
            output.note(f"{name} has committed nothing; 'substratctl diff {name} --wip' shows {files}")
    return status


def _uncommitted(connection: Connection, names: list[object]) -> dict[object, object]:
    """Return how many uncommitted files agents have, by their names, as of their last turns."""
    agents = connection.call_list("agent.list", fields=["name", "clone"], names=names)
    works = {agent["name"]: agent.get("clone") for agent in agents}
    return {name: work.get("files") for name, work in works.items() if isinstance(work, dict)}


def _stat(file: dict[str, object]) -> str:
    old = f"{output.text_of(file['old_path'])} => " if file.get("old_path") else ""
    counts = "binary" if file.get("binary") else f"+{file['added']} -{file['deleted']}"
    return f"{_SIGNS.get(str(file['status']), '?')}  {old}{output.text_of(file['path'])}  {counts}"


def _put_patch(text: str, *, colour: bool) -> None:
    """Write a patch; on a terminal with its codes made visible, because an agent wrote the lines."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    for line in text.splitlines():
        shown = output.neutralise(line)
        paint = output.GREEN if line.startswith("+") else output.RED if line.startswith("-") else ""
        print(output.paint(shown, paint, on=colour) if paint else shown)
