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

_COMMENT_OR_STRING = r'(?s:"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/)'
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
        for name, definition in read_file(project_path, variables).items():
            if approved:
                servers[name] = definition
            else:
                servers.pop(name, None)
                warn(f"MCP server {name} is not approved")
    return [_config(name, definition) for name, definition in servers.items()]


def project_root(workspace: str) -> str:
    """The nearest directory from the workspace upwards that has a `.git`; else the workspace."""
    directory = workspace
    while not os.path.exists(os.path.join(directory, ".git")):
        parent = os.path.dirname(directory)
        if parent == directory:
            return workspace
        directory = parent
    return directory


def read_file(path: str, variables: Mapping[str, str]) -> dict[str, Json]:
    """The normalised definitions of a file by server name; none if any part of the file is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), variables)
    except (OSError, ValueError):
        return {}


def parse(text: str, variables: Mapping[str, str]) -> dict[str, Json]:
    """The normalised definitions in an `mcp.json` text.

    Raises:
        ValueError: It is not JSON with comments, or not of the right form.
    """
    plain = re.sub(_COMMENT_OR_STRING, lambda match: match[0] if match[0].startswith('"') else " ", text)
    servers = _object(_object(json.loads(plain), "the file").get("mcpServers", {}), "mcpServers")
    return {name: _normalise(name, expand(definition, variables)) for name, definition in servers.items()}


def expand(value: object, variables: Mapping[str, str]) -> object:
    """Replace `${env:NAME}`, `${NAME}` and `${NAME:-default}` in every string of a value."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2] or "", value)
    if isinstance(value, list):
        return [expand(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: expand(item, variables) for key, item in value.items()}
    return value


def _normalise(name: str, definition: object) -> Json:
    """The fields that count."""
    fields = _object(definition, name)
    is_local = "command" in fields
    expected: dict[str, type] = {"type": str, "command": str, "args": list, "env": dict, "cwd": str}
    if not is_local:
        expected = {"type": str, "url": str, "headers": dict}
    if not is_local and "url" not in fields:
        raise ValueError(f"{name} has neither a command nor a url")
    known = {key: fields[key] for key in expected if key in fields}
    for key, value in known.items():
        items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not isinstance(value, expected[key]) or not all(isinstance(item, str) for item in items):
            raise ValueError(f"{name}: {key} is of the wrong type")
    return known


def _object(value: object, name: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")  # noqa: TRY004 - any wrong file is one kind of error
    return value


def _config(name: str, definition: Json) -> ServerConfig:
    args, environ = definition.get("args"), definition.get("env")
    if "command" not in definition:
        return ServerConfig(name, (), {}, "")
    return ServerConfig(
        name,
        (str(definition["command"]), *(args if isinstance(args, list) else ())),
        environ if isinstance(environ, dict) else {},
        str(definition.get("cwd", "")),
    )
