"""Finds the agent that was probably meant where a name is mistyped: `fix` for `fxi`."""

from __future__ import annotations

from substrat import errors

_NO_AGENT = "there is no agent '"
"""So begins the error about an agent that there isn't, the daemon's and this program's own."""
_ALIKE = 0.66
"""The least likeness, as difflib counts it: of three letters one may be wrong, or two change places."""


def hinted(problem: errors.SubstratError) -> errors.SubstratError:
    """Add the name that was probably meant to the error about an unknown agent, if there is an agent of such a name."""
    if not problem.message.startswith(_NO_AGENT):
        return problem
    # Imported here because most names are those of agents.
    import difflib

    from substrat.cli.connection import Connection

    name, quote, rest = problem.message.removeprefix(_NO_AGENT).partition("'")
    try:
        with Connection(timeout=1) as connection:
            known = [str(agent.get("name")) for agent in connection.call_list("agent.list", fields=["name"])]
    except errors.SubstratError:
        return problem  # it is true without a hint
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
        return type(problem)(f"{_NO_AGENT}{name}{quote}: did you mean {close[0]!r}?{rest.removeprefix(':')}")
    return problem
