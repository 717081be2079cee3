"""Claude Code as an `AgentProgram`: its names and places, and the functions of this folder. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.programs.claude import command_line, failures, lines
from substrat.core.programs.cursor import answers, mcp_config, stream
from substrat.core.programs.cursor import command_line as cursor
from substrat.core.programs.program import GENERATED, AgentProgram, Login, ProgramPlaces
from substrat.names import is_uuid

if TYPE_CHECKING:
    from substrat.core.programs.program import Object

_MCP, _RULES = "mcp.json", "rules.md"


def _command(program: str, _: str, model: str, session: str | None, without: frozenset[str]) -> tuple[str, ...]:
    mcp, rules = f"{GENERATED}/{_MCP}", f"{GENERATED}/{_RULES}"
    return command_line.command(program, mcp, rules, model, session=session, without=without)


def _generate(companion: Object, rules: str) -> dict[str, str]:
    return {_MCP: mcp_config.merge(None, companion)[0], _RULES: rules}


CLAUDE = AgentProgram(
    id="claude",
    name="claude",
    install="npm install -g @anthropic-ai/claude-code",
    without_login=frozenset(),
    hosts=("api.anthropic.com",),
    places=ProgramPlaces(
        home=".claude",
        chats="",
        settings=(".claude/.credentials.json",),
        workspace="",
        mcp=_MCP,
        rules=_RULES,
        instructions="",
        chat_file="",
        variable="CLAUDE_CONFIG_DIR",
    ),
    login=Login(
        ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"), ".claude/.credentials.json", "claude setup-token", lambda _: None
    ),
    private=("ANTHROPIC_", "CLAUDE_CODE_OAUTH_"),
    command=_command,
    dispensable=command_line.DISPENSABLE,
    version_of=lambda _: None,
    is_session_id=is_uuid,
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
    environment=command_line.ENVIRONMENT,
    generate=_generate,
    session_file=command_line.session_file,
    prompt=command_line.prompt,
)
