"""Builds cursor-agent's command line and names its folders of chats. Pure."""

from __future__ import annotations

import hashlib
import os

OPTIONS = (
    ("--print",),
    ("--output-format", "stream-json"),
    ("--stream-partial-output",),
    ("--trust",),
    ("--force",),
    ("--approve-mcps",),
    ("--sandbox", "disabled"),
)
"""The options of every turn besides its workspace, model and session."""

DISPENSABLE = frozenset({"--stream-partial-output", "--trust", "--approve-mcps", "--sandbox", "--workspace"})
"""Options that a version may not know and that a turn can do without: the program starts in the workspace, `--force`
trusts too, and a version without a sandbox of its own has none to switch off."""


def command(
    program: str, workspace: str, model: str, session: str | None, without: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the command that runs one turn; the prompt comes on standard input.

    Args:
        program: the agent program's path in the sandbox.
        workspace: the workspace's path in the sandbox; cursor-agent hashes it to find its chats.
        model: the model's slug. Without one, cursor-agent uses the one that was last written to its configuration.
        session: the chat to continue, or None for a new one.
        without: options that this version of the program was seen not to know.
    """
    resume = (("--resume", session),) if session else ()
    options = (*OPTIONS, ("--workspace", workspace), ("--model", model), *resume)
    return (program, *(word for option in options if option[0] not in without for word in option))


def chats_folder(workspace: str) -> str:
    """Return the name of a workspace's folder in `~/.cursor/chats`: the MD5 of its physical path."""
    return hashlib.md5(os.fsencode(workspace), usedforsecurity=False).hexdigest()
