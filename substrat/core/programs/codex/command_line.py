"""Builds codex's command line and settings, and says where it keeps a session. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from substrat.core.programs.program import hook

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILE = "substrat"
SETTINGS = f"{PROFILE}.config.toml"
"""The file with our settings in codex's directory. It counts before `config.toml` there, which stays the agent's own."""

DISPENSABLE = frozenset({"--skip-git-repo-check", "--dangerously-bypass-hook-trust"})
"""Options that a version may not know and that a turn can do without in most workspaces."""

DEFAULT_MODEL = "auto"
"""The model's name that leaves the choice to the program; codex has no such model."""

# web_search, agents and goals are tools beside the companion's, and request_user_input asks a person who isn't there.
# plugins and analytics ask hosts besides the model's. Without a network codex would try to connect for ever; with
# bounded tries the turn fails after half a minute, and the daemon's own pauses decide.
_SWITCHED_OFF = """\
web_search = "disabled"

[agents]
enabled = false

[analytics]
enabled = false

[features]
goals = false
plugins = false
unbounded_connection_retries = false

[tools.experimental_request_user_input]
enabled = false
"""


def command(
    program: str, workspace: str, model: str, session: str | None, without: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the command that runs one turn; the prompt comes on standard input.

    Args:
        program: the agent program's path in the sandbox.
        workspace: the workspace's path in the sandbox.
        model: the model's name, or `auto` for codex's own choice.
        session: the session to continue, or None for a new one; codex takes an id that is no UUID for a name, and begins
            a new session without a word when it knows none of that name.
        without: options that this version of the program was seen not to know.
    """
    options = [
        ("--json",), ("--dangerously-bypass-approvals-and-sandbox",), ("--dangerously-bypass-hook-trust",),
        ("--skip-git-repo-check",), ("--profile", PROFILE), ("--cd", workspace),
    ]  # fmt: skip
    if model != DEFAULT_MODEL:
        options.append(("--model", model))
    resume = ("resume", session) if session is not None else ()
    return (program, "exec", *(word for option in options if option[0] not in without for word in option), *resume, "-")


def settings(companion: Mapping[str, Any]) -> str:
    """Return the text of `SETTINGS`.

    Args:
        companion: the companion's entry, with `command`, `args` and `env`.
    """
    # JSON's strings, and lists of them, are TOML's too, but for the character DEL, which no path of ours has.
    server = "".join(f"{key} = {_json(companion[key])}\n" for key in ("command", "args"))
    env = "".join(f"{name} = {_json(value)}\n" for name, value in companion["env"].items())
    after = "".join(f"{key} = {_json(value)}\n" for key, value in hook(companion, "PostToolUse").items())
    hooks = f"[[hooks.PostToolUse]]\n[[hooks.PostToolUse.hooks]]\n{after}"
    return f"{_SWITCHED_OFF}\n{hooks}\n[mcp_servers.substrat]\n{server}\n[mcp_servers.substrat.env]\n{env}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def session_file(session: str) -> str:
    """Return the pattern of the file that holds a session, relative to codex's own directory.

    An example: `sessions/2026/11/29/rollout-2026-11-29T12-49-45-01a2275a-b288-71a3-8824-697726bb0558.jsonl`.

    Args:
        session: the session's UUID.
    """
    return f"sessions/*/*/*/rollout-*-{session}.jsonl"
