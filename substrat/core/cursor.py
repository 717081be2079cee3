"""cursor-agent's command line and places: what it is called with and where it keeps chats; it calls nothing."""

from __future__ import annotations

import hashlib
import os
import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def command(program: str, workspace: str, model: str, session: str | None) -> tuple[str, ...]:
    """Return the command that runs one turn; the prompt comes on standard input.

    Args:
        program: the agent program's path in the sandbox.
        workspace: the workspace's path in the sandbox; cursor-agent hashes it to find its chats.
        model: the model's slug. Without one, cursor-agent uses whatever was last written to its configuration.
        session: the chat to continue, or None for a new one.
    """
    resume = ("--resume", session) if session else ()
    return (
        program, "--print", "--output-format", "stream-json", "--stream-partial-output", "--trust", "--force",
        "--approve-mcps", "--sandbox", "disabled", "--workspace", workspace, "--model", model, *resume,
    )  # fmt: skip


def is_session_id(text: str) -> bool:
    """Say whether a text is a UUID; what an agent prints becomes part of a path, so nothing else is accepted."""
    return _UUID.fullmatch(text) is not None


def chats_folder(workspace: str) -> str:
    """Return the name of a workspace's folder in `~/.cursor/chats`: the MD5 of its physical path."""
    return hashlib.md5(os.fsencode(workspace), usedforsecurity=False).hexdigest()
