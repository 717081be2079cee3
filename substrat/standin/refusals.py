"""The failures that come before a session, so that stdout stays empty; each with the real program's text and status.

A script asks for one with `/fail NAME [TIMES]`, wherever in the prompt the line stands.
"""

from __future__ import annotations

import json
import os

from substrat.standin import models, places
from substrat.standin.errors import LeaveError, MalformedActionError, RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from substrat.standin.places import Places
    from substrat.standin.script import PromptLine

_NO_LOGIN = "Error: Authentication required. Please run '{}' first, or set CURSOR_API_KEY environment variable."


def untrusted(workspace: str) -> str:
    """The text on stderr for a workspace without trust."""
    return f"""
⚠ Workspace Trust Required

  Cursor Agent can execute code and access files in this directory.
  Do you trust the contents of this directory?

    {workspace}

  To proceed, you can either:
    • Run 'agent' interactively to decide
    • Pass --trust, --yolo, or -f if you trust this directory"""


def in_use(chat_id: str) -> str:
    """The text on stderr when another process holds the chat."""
    return (
        f"Chat {chat_id} may still be running, but Cursor could not verify its persistent session: "
        f"Persistent chat ownership is currently changing for {chat_id}"
    )


def no_uuid(chat_id: str) -> str:
    """The text on stderr when a chat is named by something that can't be its id."""
    return f'Failed to claim persistent session for chat "{chat_id}": Persistent-session chat ID must be a UUID'


def taken(chat_id: str) -> str:
    """The text on stderr when a new chat is to have an id that there is already."""
    return f'Error: Session ID "{chat_id}" is already in use.'


def check(steps: Sequence[PromptLine], run_places: Places, chat_id: str) -> None:
    """Raise the first failure of a script that comes before the session.

    Raises:
        RefusalError: There is one.
        LeaveError: There is one that says nothing.
    """
    for step in steps:
        if step.action != "fail":
            continue
        try:
            name, times = parse(step.text, ())
        except MalformedActionError:
            continue  # said when the script gets there
        if name in BEFORE and is_due(run_places, step.text, times):
            raise BEFORE[name](run_places, chat_id)


def check_environment(name: str, run_places: Places) -> None:
    """Raise the failure that the environment asks for, if it is one that comes before the session.

    Raises:
        RefusalError: It is.
        LeaveError: It is, and it says nothing.
    """
    if name in BEFORE:
        raise BEFORE[name](run_places, "")


def parse(text: str, during: Collection[str]) -> tuple[str, int | None]:
    """The name and the number of times in the text after `/fail`.

    Args:
        text: The text after it.
        during: The names of the failures that come later than the start.

    Raises:
        MalformedActionError: There is no such failure, or the number is none.
    """
    name, _, times = text.strip().partition(" ")
    if name not in BEFORE and name not in during:
        raise MalformedActionError(f"NAME must be one of {', '.join((*BEFORE, *during))}")
    if times and not times.isdecimal():
        raise MalformedActionError("TIMES must be a whole number")
    return name, int(times) if times else None


def is_due(run_places: Places, text: str, times: int | None) -> bool:
    """Whether this run of the line fails; counted in the project's folder, which outlives the run."""
    if times is None:
        return True
    path = os.path.join(run_places.project, "standin-failures.json")
    value = places.read_json(path)
    counts = value if isinstance(value, dict) else {}
    so_far = counts.get(text, 0)
    places.write_file(path, json.dumps(counts | {text: so_far + 1}).encode())
    return bool(so_far < times)


BEFORE: dict[str, Callable[[Places, str], Exception]] = {
    "auth": lambda _places, _chat: RefusalError(_NO_LOGIN.format("agent login")),
    "auth-old": lambda _places, _chat: RefusalError(_NO_LOGIN.format("cursor-agent login")),
    "api-key": lambda _places, _chat: RefusalError("\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[0m"),
    "model": lambda _places, _chat: RefusalError(models.refusal("no-such-model")),
    "trust": lambda run_places, _chat: RefusalError(untrusted(run_places.workspace)),
    # Builds differ in the status.
    "trust-zero": lambda run_places, _chat: RefusalError(untrusted(run_places.workspace), 0),
    "busy": lambda _places, chat: RefusalError(in_use(chat)),
    "chat-id": lambda _places, chat: RefusalError(no_uuid(chat[:8])),
    "in-use": lambda _places, chat: RefusalError(taken(chat)),
    "option": lambda _places, _chat: RefusalError("error: unknown option '--approve-mcps'"),
    "admin": lambda _places, _chat: RefusalError(
        "Error: Your team administrator has disabled the 'Run Everything' option."
    ),
    "settings": lambda _places, _chat: RefusalError(
        "Error: ENOENT: no such file or directory, rename 'cli-config.json.tmp' -> 'cli-config.json'"
    ),
    # The end of a command line that is too long.
    "silent": lambda _places, _chat: LeaveError(0),
}
