"""Reads the MCP servers a run may use from `mcp.json` files; it starts nothing.

A file that can't be read, parsed or understood counts as empty, silently, as in the real program.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from substrat.standin.places import Places
    from substrat.standin.stream import Json

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ServerConfig:
    """One configured server.

    Args:
        name: Its name in the file.
        command: The program and its arguments; empty for a server that is reached by URL.
        environ: The variables that the configuration adds to its environment.
        cwd: Its directory, or nothing for the process's own.
    """

    def __init__(self, name: str, command: tuple[str, ...], environ: Mapping[str, str], cwd: str) -> None:
        self.name: Final = name
        self.command: Final = command
        self.environ: Final = environ
        self.cwd: Final = cwd


def find(places_: Places, environ: Mapping[str, str], *, approved: bool, warn: Callable[[str], None]) -> list[ServerConfig]:
    """The servers of this run: the user's, and the project's where they are approved.

    Args:
        places_: The run's directories.
        environ: The process's environment, for variables in the files.
        approved: `--approve-mcps`.
        warn: Takes a line for the log for each server that is left out.
    """
    user_path = os.path.join(places_.user_dir, "mcp.json")
    project_path = os.path.join(project_root(places_.workspace), ".cursor", "mcp.json")
    variables = dict(environ) | {"workspaceFolder": places_.workspace, "userHome": os.path.dirname(places_.user_dir)}
    servers = read_file(user_path, variables)
    if os.path.realpath(project_path) != os.path.realpath(user_path):
        for name, config in read_file(project_path, variables).items():
            if approved:
                servers[name] = config
            else:
                servers.pop(name, None)
                warn(f"MCP server {name} is not approved")
    return list(servers.values())


def project_root(workspace: str) -> str:
    """The nearest directory from the workspace upwards that has a `.git`; else the workspace."""
    directory = workspace
    while not os.path.exists(os.path.join(directory, ".git")):
        parent = os.path.dirname(directory)
        if parent == directory:
            return workspace
        directory = parent
    return directory


def read_file(path: str, variables: Mapping[str, str]) -> dict[str, ServerConfig]:
    """The servers of a file by name; none if any part of the file is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            servers = _object(_object(json.load(file)).get("mcpServers", {}))
            return {name: _config(name, _object(expand(given, variables))) for name, given in servers.items()}
    except (OSError, ValueError):
        return {}


def expand(value: object, variables: Mapping[str, str]) -> object:
    """Replace `${env:NAME}`, `${NAME}` and `${NAME:-default}` in every string of a value."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2] or "", value)
    if isinstance(value, list):
        return [expand(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: expand(item, variables) for key, item in value.items()}
    return value


def _config(name: str, given: Json) -> ServerConfig:
    if isinstance(given.get("url"), str):
        return ServerConfig(name, (), {}, "")
    args = given.get("args", [])
    if not isinstance(args, list):
        raise ValueError(f"the arguments of {name} are no list")  # noqa: TRY004 - any wrong file is one kind of error
    command = tuple(_text(word) for word in (given.get("command"), *args))
    environ = {variable: _text(value) for variable, value in _object(given.get("env", {})).items()}
    return ServerConfig(name, command, environ, str(given.get("cwd", "")))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is no text")  # noqa: TRY004
    return value


def _object(value: object) -> Json:
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - any wrong file is one kind of error
    return value
