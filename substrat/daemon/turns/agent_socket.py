"""Says why an agent's socket can't be made; the socket itself is served by `servers.agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.kernel import descriptors
from substrat.daemon.state.storing import disk_is_full
from substrat.errors import DescriptorsUsedUp, StateUnusable, StorageFailed

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
    if descriptors.is_short(problem):
        return DescriptorsUsedUp(descriptors.sentence(problem))
    said = f"the agent's socket {path} can't be made: {problem.strerror}"
    if disk_is_full(problem):
        return StorageFailed(f"{said}; make room")
    return StateUnusable(f"{said}; move away what is in the place of its directory")
