"""The agent programs there are, and the one that agents run. Pure."""

from __future__ import annotations

from substrat.core.programs.cursor import cursor_agent

PROGRAMS = (cursor_agent.CURSOR_AGENT,)
"""An entry for each folder beside this file."""
PROGRAM = PROGRAMS[0]
"""The program of every agent: neither the configuration nor an agent's record names another."""
