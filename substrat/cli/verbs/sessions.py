"""`sessions`: lists the chats of a workspace, those of agents and those begun by hand; `export` shows one."""

from __future__ import annotations

import os
import re
import sys
import time

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

WORKSPACE = Option("--workspace", "-w", value="DIR", about="the directory the chats belong to; this one by default")
COMMAND = Command(
    "sessions",
    options=(WORKSPACE,),
    notes=(
        "`substratctl spawn --adopt SESSION` makes an agent that goes on with a chat that is free. The first "
        "letters of a SESSION do, where no other begins with them."
    ),
)
_TITLE_LENGTH = 40  # the rest of an 80-column line beside the other columns
_BEGINNING = re.compile(r"(?=.{4,35}$)[0-9a-fA-F]{1,8}(-[0-9a-fA-F]{0,12}){0,4}")
"""Part of a UUID, from four letters on: fewer are more likely a slip."""


def run(arguments: Arguments) -> int:
    """Print the chats, newest first, and return the exit status."""
    with Connection() as connection:
        chats = connection.call_list("session.list", workspace=workspace_of(arguments))
    if arguments.json:
        output.put_json(chats)
        return 0
    if not chats:
        output.note(f"there are no chats of {workspace_of(arguments)}")
        return 0
    now, rows = time.time(), []
    for chat in chats:
        damage = chat.get("damage")
        title = f"damaged: {damage}" if damage else str(chat.get("title") or "")
        rows.append((
            output.text_of(chat.get("session")), output.text_of(chat.get("agent")), output.text_of(chat.get("model")),
            output.age(chat.get("updated_at"), now), output.size(chat.get("size")), output.one_line(title, _TITLE_LENGTH),
        ))  # fmt: skip
    titles = ("SESSION", "AGENT", "MODEL", "USED", "SIZE", "TITLE")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"TITLE": 10, "MODEL": 8, "AGENT": 10})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout)))
    return 0


def whole_id(connection: Connection, workspace: str, word: str) -> str:
    """Return the id of the chat that a word means: an id, or the beginning of the only one of the workspace's.

    Raises:
        NotFound: no chat's id begins so.
        UsageError: several do.
    """
    if not _BEGINNING.fullmatch(word):
        return word
    chats = connection.call_list("session.list", workspace=workspace)
    found = [str(chat["session"]) for chat in chats if str(chat["session"]).startswith(word.lower())]
    if not found:
        raise errors.NotFound(
            f"no session of {workspace} begins with {word!r}: 'substratctl sessions -w {workspace}' lists those there are"
        )
    if len(found) > 1:
        raise errors.UsageError(
            f"{word!r} is the beginning of {len(found)} sessions, {', '.join(found[:3])}: give more of it"
        )
    return found[0]


def workspace_of(arguments: Arguments) -> str:
    """Return the directory that was named, or this one."""
    return os.path.abspath(arguments.value("workspace") or ".")
