"""`tasks`: lists the parts of families' work, adds some from a file, lets one be tried again, skips one."""

from __future__ import annotations

import json
import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "tasks",
    "[NAME]",
    options=(
        Option("--add", value="FILE", about="add the tasks of a TOML file, its tables [[tasks]], to NAME's family"),
        Option("--retry", value="ID", about="let a task be claimed again, and take it from its agent"),
        Option("--skip", value="ID", about="skip a task, and those that need it"),
    ),
    notes=(
        "NAME is any agent of the family; without it the tasks of all families are listed. docs/families.md has an "
        "example of a file. Agents claim tasks with claim_task, each the oldest that is ready."
    ),
)

_PAGE = 500
_ORDER = ("blocked", "ready", "claimed", "succeeded", "failed", "skipped")


def run(arguments: Arguments) -> int:
    """Change the tasks if asked to, list them, and return the exit status."""
    name = arguments.words[0] if arguments.words else None
    asked = [(key, value) for key in ("add", "retry", "skip") if (value := arguments.value(key)) is not None]
    if len(asked) > 1 or (asked and name is None):
        raise COMMAND.wrong("--add, --retry and --skip stand alone, and need NAME, an agent of the family")
    with Connection() as connection:
        if not asked:
            found = _all(connection, name)
        elif asked[0][0] == "add":
            found = connection.call_list("task.add", agent=name, tasks=json.dumps(_read(asked[0][1])))
        else:
            found = [connection.call_object(f"task.{asked[0][0]}", agent=name, task=asked[0][1])]
    if arguments.json:
        output.put_json(found)
    elif not found:
        output.note("nothing is added: they are there already" if asked else "there are no tasks")
    else:
        _print(found)
    return errors.DONE


def _all(connection: Connection, name: str | None) -> list[dict[str, object]]:
    """Return all tasks, page by page: descriptions may be long."""
    found: list[dict[str, object]] = []
    while True:
        after = found[-1]["number"] if found else 0
        page = connection.call_list("task.list", agent=name, after=after, limit=_PAGE)
        found += map(dict, page)
        if len(page) < _PAGE:
            return found


def _read(path: str) -> list[dict[str, object]]:
    """Return the tasks of a file."""
    import tomllib
    from dataclasses import asdict

    from substrat.core.families import tasks

    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise errors.UsageError(f"{path} is no TOML: {problem}") from None
    except OSError as problem:
        raise errors.UsageError(f"{path} can't be read: {problem.strerror}") from None
    listed = tables.get("tasks")
    if not (isinstance(listed, list) and listed) or len(tables) > 1:
        raise errors.UsageError(f"{path} has tables [[tasks]], and nothing else")
    try:
        return [asdict(task) for task in tasks.read(listed)]
    except errors.InvalidParams as problem:
        raise errors.UsageError(f"{path}: {problem.message}") from None


def _print(found: list[dict[str, object]]) -> None:
    rows = [
        (
            output.text_of(one.get("family")), output.text_of(one.get("id")), output.text_of(one.get("state")),
            _who(one), output.one_line(_about(one)),
        )
        for one in found
    ]  # fmt: skip
    titles = ("FAMILY", "TASK", "STATE", "AGENT", "TITLE")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"TASK": 8, "TITLE": 12})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout)))
    states = [output.text_of(one.get("state")) for one in found]
    output.note(", ".join(f"{states.count(state)} {state}" for state in _ORDER if state in states))


def _who(task: dict[str, object]) -> str:
    """Return the agent that has a task, or had it, with the number of its attempt where that isn't the first."""
    name, attempts = task.get("claimed_by"), task.get("attempts")
    again = f" ({attempts} of {task.get('max_attempts')})" if isinstance(attempts, int) and attempts > 1 else ""
    return f"{name or '-'}{again}"


def _about(task: dict[str, object]) -> str:
    """Return a task's title, and what it waits for, or why it has failed or is skipped."""
    title, needs = output.text_of(task.get("title")), task.get("needs")
    if task.get("state") == "blocked" and isinstance(needs, list):
        return f"{title} (needs {', '.join(map(str, needs))})"
    if task.get("state") in {"failed", "skipped"} and task.get("result"):
        return f"{title}: {output.text_of(task.get('result'))}"
    return title
