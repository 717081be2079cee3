"""codex as an `AgentProgram`: its names and places, and the functions of this folder. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.programs.codex import command_line, failures, lines
from substrat.core.programs.cursor import answers, mcp_config, stream
from substrat.core.programs.cursor import command_line as cursor
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
    without_login=frozenset(),
    hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
    places=ProgramPlaces(
        home=".codex",
        chats="",
        settings=(".codex/auth.json",),
        workspace="",
        mcp=command_line.SETTINGS,
        rules=_RULES,
        instructions="",
        chat_file="",
        variable="CODEX_HOME",
        shown=((command_line.SETTINGS, command_line.SETTINGS), (_RULES, _RULES)),
    ),
    login=Login(("CODEX_API_KEY",), ".codex/auth.json", "codex login", lambda _: None),
    private=("CODEX_API_",),
    command=command_line.command,
    dispensable=command_line.DISPENSABLE,
    version_of=lambda _: None,
    is_session_id=command_line.is_session_id,
    chats_folder=cursor.chats_folder,
    chat_modules=(),
    mcp_config=mcp_config.merge,
    companion=mcp_config.companion,
    decode=stream.decode,
    decoder=stream.decoder,
    session_of=stream.session_of,
    result_of=lines.result_of,
    only_speaks=lines.only_speaks,
    failure_of=failures.recognise,
    failure_shown=lambda _answer, _passage: None,
    needs_last_passage=lambda _: False,
    result_text=answers.result_text,
    generate=_generate,
    session_file=command_line.session_file,
    usage_is_total=True,
)
