"""Merges the workspace's own MCP servers and ours into the `.cursor/mcp.json` that an agent gets. Pure."""

from __future__ import annotations

import json
import re

SERVER_NAME = "substrat"

# A string (kept), a line comment or a block comment; an unclosed one goes on to the end, so that no text is scanned
# twice.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


def companion(python: str, script: str, agent_id: str, socket: str) -> dict[str, object]:
    """Return our server's entry.

    Args:
        python: the interpreter's path in the sandbox.
        script: the companion's path in the sandbox.
        agent_id: only for people who read the file; who is calling is decided by the socket.
        socket: the agent socket's path in the sandbox.
    """
    return {
        "command": python,
        "args": ["-I", "-S", script, "--agent-id", agent_id],
        "env": {"SUBSTRAT_SOCKET": socket},
    }


def merge(own: str | None, ours: dict[str, object]) -> tuple[str, str | None]:
    """Add our server to the workspace's own ones.

    Args:
        own: the workspace's `mcp.json`, JSON with comments, or None.
        ours: our server's entry; it wins over one of the same name.

    Returns:
        The file's text, and the problem with the workspace's own file, None when there is none. cursor-agent takes a broken
            file
        for an empty one and says nothing; we take it the same way and say so.
    """
    if own is None:
        return _text({SERVER_NAME: ours}), None
    try:
        return _text({**_servers(own), SERVER_NAME: ours}), None
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        problem = f"the workspace's .cursor/mcp.json can't be read and was left out: {error!r}"
        return _text({SERVER_NAME: ours}), problem


def _servers(own: str) -> dict[str, object]:
    servers = json.loads(_without_comments(own))["mcpServers"]
    if not isinstance(servers, dict):
        raise TypeError("mcpServers is no object")
    return servers


def _text(servers: dict[str, object]) -> str:
    return json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_comments(text: str) -> str:
    return _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
