"""codex as an `AgentProgram`: its names and places, and the functions of this folder. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.programs.codex import command_line, dialect, failures
from substrat.core.programs.program import AgentProgram, Login, ProgramPlaces

if TYPE_CHECKING:
    from substrat.core.programs.program import Object

_RULES = "AGENTS.md"


def _generate(companion: Object, rules: str) -> dict[str, str]:
    return {command_line.SETTINGS: command_line.settings(companion), _RULES: rules}


CODEX = AgentProgram(
    id="codex",
    name="codex",
    install="npm install -g @openai/codex",
    hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
    places=ProgramPlaces(
        home=".codex",
        settings=(".codex/auth.json",),
        variable="CODEX_HOME",
        moved=(("CODEX_HOME", ".codex", ""),),
        shown=((command_line.SETTINGS, command_line.SETTINGS), (_RULES, _RULES)),
    ),
    login=Login(("CODEX_API_KEY",), ".codex/auth.json", "codex login"),
    private=("CODEX_API_",),
    command=command_line.command,
    dispensable=command_line.DISPENSABLE,
    only_speaks=dialect.only_speaks,
    failure_of=failures.recognise,
    generate=_generate,
    session_file=command_line.session_file,
    has_hooks=True,
    usage_is_total=True,
)
