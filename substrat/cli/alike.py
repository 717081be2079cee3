"""Finds the agent that was probably meant where a name is mistyped: `fix` for `fxi`."""

from __future__ import annotations

import difflib

from substrat import errors
from substrat.cli.connection import Connection
from substrat.cli.output import NO_AGENT

_ALIKE = 0.66
"""The least likeness, as difflib counts it: of three letters one may be wrong, or two change places."""


def with_hint(sentence: str) -> str:
    """Add the name that was probably meant to the error about an unknown agent, if there is an agent of such a name."""
    name, quote, rest = sentence.removeprefix(NO_AGENT).partition("'")
    try:
        with Connection(timeout=1) as connection:
            known = [str(agent.get("name")) for agent in connection.call_list("agent.list", fields=["name"])]
    except errors.SubstratError:
        return sentence  # it is true without a hint
    close = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return f"{NO_AGENT}{name}{quote}: did you mean {close[0]!r}?{rest.removeprefix(':')}" if close else sentence
