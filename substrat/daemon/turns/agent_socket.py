"""Says why an agent's socket can't be made; the socket itself is served by `servers.agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.turns import shortage
from substrat.errors import StateUnusable

if TYPE_CHECKING:
    from substrat.errors import SubstratError


def refusal(path: str, problem: OSError | StateUnusable) -> SubstratError:
    """Say why an agent's socket can't be made, with a remedy.

    Args:
        path: where it should be.
        problem: the error.
    """
    if isinstance(problem, StateUnusable):
        return problem
    said = f"the agent's socket {path} can't be made: {problem.strerror}"
    return shortage.error(problem, said) or StateUnusable(f"{said}; move away what is in the place of its directory")
