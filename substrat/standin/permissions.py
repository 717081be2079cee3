"""Decides which tool calls a turn may make: print mode has no person to ask. Pure."""

from __future__ import annotations

import os
import re

from substrat.standin import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from substrat.standin.places import CliConfig, Places

ALLOWED, REJECTED, DENIED = "allowed", "rejected", "denied"

_SEPARATOR = r"\|\||&&|[;|&\n]"
_READ_ONLY = frozenset({"cat", "date", "echo", "find", "git", "grep", "head", "ls", "pwd", "sort", "tail", "true", "wc"})


def simple_commands(command: str) -> list[list[str]]:
    """A command line's simple commands as words; a rough reading that knows no quotes."""
    return [words for part in re.split(_SEPARATOR, command) if (words := part.split())]


def is_read_only(command: str) -> bool:
    """Whether a command line looks as if it changed nothing."""
    return ">" not in command and all(words[0] in _READ_ONLY for words in simple_commands(command))


class Permissions:
    """The permissions of one run.

    Args:
        settings: `cli-config.json`, for the calls that are allowed in general.
        run_places: Where the project's `cli.json` is.
        forced: `--force`; the project's denials hold all the same.
        mode: `ask`, `plan` or nothing.
    """

    def __init__(self, settings: CliConfig, run_places: Places, *, forced: bool, mode: str) -> None:
        project = places.read_json(os.path.join(run_places.workspace, ".cursor", "cli.json"))
        denied = project.get("permissions") if isinstance(project, dict) else None
        self._free: Final = forced or settings.get("approvalMode") == "unrestricted"
        self._mode: Final = mode
        self._allow: Final = _texts(settings.get("permissions", "allow"))
        self._deny: Final = _texts(settings.get("permissions", "deny")) | _texts(
            denied.get("deny") if isinstance(denied, dict) else None
        )

    def shell(self, command: str) -> str:
        """The verdict on a shell command."""
        rules = {f"Shell({words[0]})" for words in simple_commands(command)}
        if self._mode or rules & self._deny or "Shell(*)" in self._deny:
            return DENIED
        return ALLOWED if self._free or rules <= self._allow else REJECTED

    def mcp(self, server: str, tool: str) -> str:
        """The verdict on a call of an MCP tool."""
        names = {f"{server}:{tool}", f"{server}:*", "*:*"}
        rules = {f"Mcp({name})" for name in names}
        if rules & self._deny:
            return DENIED
        if self._mode:
            return REJECTED
        return ALLOWED if self._free or rules & self._allow else REJECTED

    def edit(self) -> str:
        """The verdict on a change of a file, which needs no `--force`."""
        return REJECTED if self._mode else ALLOWED


def _texts(value: object) -> frozenset[str]:
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
