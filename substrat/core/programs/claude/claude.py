"""Claude Code as an `AgentProgram`: its names and places, and the functions of this folder. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from substrat.core.programs.claude import command_line, dialect, failures
from substrat.core.programs.cursor import mcp_config
from substrat.core.programs.program import GENERATED, AgentProgram, Login, ProgramPlaces, hook

if TYPE_CHECKING:
    from substrat.core.programs.program import Object

_MCP, _RULES, _SETTINGS = "mcp.json", "rules.md", "settings.json"


def _command(program: str, _: str, model: str, session: str | None, without: frozenset[str]) -> tuple[str, ...]:
    mcp, rules, settings = (f"{GENERATED}/{name}" for name in (_MCP, _RULES, _SETTINGS))
    return command_line.command(program, mcp, rules, settings, model, session=session, without=without)


def _generate(companion: Object, rules: str) -> dict[str, str]:
    hooks = {event: [{"hooks": [hook(companion, event)]}] for event in command_line.HOOKS}
    return {_MCP: mcp_config.merge(None, companion)[0], _RULES: rules, _SETTINGS: json.dumps({"hooks": hooks})}


CLAUDE = AgentProgram(
    id="claude",
    name="claude",
    install="npm install -g @anthropic-ai/claude-code",
    hosts=("api.anthropic.com",),
    places=ProgramPlaces(
        home=".claude",
        settings=(".claude/.credentials.json",),
        variable="CLAUDE_CONFIG_DIR",
        moved=(("CLAUDE_CONFIG_DIR", ".claude", ""),),
    ),
    login=Login(("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"), ".claude/.credentials.json", "claude setup-token"),
    private=("ANTHROPIC_", "CLAUDE_CODE_OAUTH_"),
    command=_command,
    dispensable=command_line.DISPENSABLE,
    only_speaks=dialect.only_speaks,
    failure_of=failures.recognise,
    environment=command_line.ENVIRONMENT,
    generate=_generate,
    session_file=command_line.session_file,
    prompt=command_line.prompt,
    has_hooks=True,
)
