"""The agent programs there are, and which of them an agent runs. Pure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat.core.programs.claude.claude import CLAUDE
from substrat.core.programs.codex.codex import CODEX
from substrat.core.programs.cursor import answers, command_line, cursor_agent, mcp_config, stream
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.agents.records import Agent
    from substrat.core.programs.program import AgentProgram

CURSOR = cursor_agent.CURSOR_AGENT
"""Cursor's own. Every sandbox covers its directory in the workspace, its chats lie among the user's, and it decodes stored
lines: its shape is that of all events."""
CHAT_MODULES = ("substrat/core/programs/cursor/chat_store.py",)
"""Files of ours that the reader of chats needs; it runs in a sandbox, because an agent can write to its chats."""
chats_folder, companion, mcp_config_of = command_line.chats_folder, mcp_config.companion, mcp_config.merge
decode, decoder, session_of, result_of = stream.decode, stream.decoder, stream.session_of, stream.result_of
model_of = stream.model_of
result_text = answers.result_text
PROGRAMS = {program.id: program for program in (CURSOR, CLAUDE, CODEX)}
"""An entry for each folder beside this file, by the name that people choose it by."""


MOVING = tuple(dict.fromkeys(variable for program in PROGRAMS.values() for variable, _, _ in program.places.moved))
"""Variables of a person's environment that move places of the programs, such as `CODEX_HOME`."""


def moved(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the places that an environment's variables have moved, and the directories where they are."""
    found: dict[str, str] = {}
    for program in PROGRAMS.values():
        for variable, place, below in program.places.moved:
            if os.path.isabs(directory := environ.get(variable, "")):
                found.setdefault(place, os.path.normpath(os.path.join(directory, below)))
    return tuple(found.items())


def on_host(path: str, home: str, moved: tuple[tuple[str, str], ...]) -> str:
    """Return where the host has a place of a program's, such as `.cursor/chats` of the home directory."""
    for place, directory in moved:
        if f"{path}/".startswith(f"{place}/"):
            return directory + path[len(place) :]
    return os.path.join(home, path)


def program_of(agent: Agent) -> AgentProgram:
    """Return the program that an agent runs."""
    return PROGRAMS[agent.settings.program]


def named(name: str) -> AgentProgram:
    """Return a program by its name, such as `cursor`; raises `InvalidParams` if there is no such program."""
    if name not in PROGRAMS:
        raise InvalidParams(named_wrong(name))
    return PROGRAMS[name]


def named_wrong(name: str) -> str:
    """Return the sentence about a name that no program has."""
    return f"there is no agent program {name[:40]!r}: choose {', '.join(list(PROGRAMS)[:-1])} or {list(PROGRAMS)[-1]}"
