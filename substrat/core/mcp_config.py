"""The `.cursor/mcp.json` an agent gets: the workspace's own servers and ours, merged; it reads and writes no files."""

from __future__ import annotations

import json
import re

SERVER_NAME = "substrat"

# A string (kept), a line comment or a block comment.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


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
        The file's text, and what was wrong with the workspace's own file, if anything. cursor-agent takes a broken file
        for an empty one and says nothing; we take it the same way and say so.
    """
    servers: dict[str, object] = {}
    problem = None
    if own is not None:
        try:
            found = json.loads(_without_comments(own))
            servers.update(found["mcpServers"])
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            problem = f"the workspace's .cursor/mcp.json can't be read and was left out: {error!r}"
    servers[SERVER_NAME] = ours
    return json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False) + "\n", problem


def _without_comments(text: str) -> str:
    return _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
