"""cursor-agent as an `AgentProgram`: its names and places, and the functions of this folder. Pure."""

from __future__ import annotations

import os

from substrat.core.programs.cursor import answers, command_line, failures, login_file, stream
from substrat.core.programs.program import AgentProgram, Login, ProgramPlaces


def version_of(path: str) -> str | None:
    """Return the version that a program's path names: `…/versions/2026.01.02-abc/cursor-agent` is `2026.01.02-abc`."""
    above, version = os.path.split(os.path.dirname(path))
    return version if os.path.basename(above) == "versions" else None


CURSOR_AGENT = AgentProgram(
    id="cursor",
    name="cursor-agent",
    # The installer that Cursor names (cursor.com/docs/cli/installation); it puts the program into ~/.local/bin.
    install="curl https://cursor.com/install -fsS | bash",
    hosts=("*.cursor.sh", "*.cursor.com", "*.cursor-cdn.com", "*.cursorapi.com"),
    places=ProgramPlaces(
        home=".cursor",
        settings=(".config/cursor",),
        chats=".cursor/chats",
        workspace=".cursor",
        mcp="mcp.json",
        rules="rules/substrat.mdc",
        instructions="rules/substrat-instructions.mdc",
        chat_file="store.db",
        moved=(
            ("CURSOR_CONFIG_DIR", ".cursor/chats", "chats"),
            ("XDG_CONFIG_HOME", ".cursor/chats", "cursor/chats"),
            ("XDG_CONFIG_HOME", ".config/cursor", "cursor"),
        ),
    ),
    login=Login(
        ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"), ".config/cursor/auth.json", "cursor-agent login", login_file.account
    ),
    private=("CURSOR_",),
    command=command_line.command,
    dispensable=command_line.DISPENSABLE,
    only_speaks=stream.only_speaks,
    failure_of=failures.recognise,
    names_failed_results=False,
    failure_shown=answers.failure_shown,
    needs_last_passage=answers.needs_last_passage,
    version_of=version_of,
    without_login=frozenset({"cursor-agent-standin"}),
    prints_prompt=True,
)
