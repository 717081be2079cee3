"""The words of the protocol's objects: states, outcomes, networks and members, in the order of `docs/protocol.md`.

Standard library only: `substratctl` imports this at every start.
"""

from __future__ import annotations

from substrat import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT_STATES = ("idle", "queued", "running", "suspended", "failed", "ended")
OUTCOMES = ("success", "error", "interrupted", "timed_out", "lost")
PRIORITIES = ("high", "normal", "low")
NETWORKS = ("none", "filtered", "host")

AGENT_FIELDS = (
    "id", "name", "state", "session_id", "workspace", "program", "model", "network", "parent", "created_at", "unread",
    "turn", "attention", "reason", "family", "priority", "status", "activity", "clone", "check", "budget", "waits",
    "last", "tokens",
)  # fmt: skip
HEARD_AT, TOGETHER = "heard_at", "together"
"""The members that an agent object has only in a list that is asked for them."""
TURN_FIELDS = ("id", "number", "outcome", "started_at", "ended_at", "exit_code", "result", "usage", "error")
EVENT_FIELDS = ("cursor", "agent", "turn", "time", "kind", "text", "raw", "data", "cause")


def verdict_status(turn: Mapping[str, object], check: object = None) -> int:
    """Return the exit status that passes a turn's verdict on.

    Args:
        turn: the turn object.
        check: the agent object's `check`.
    """
    is_done = turn.get("outcome") == "success" and not is_refused(turn, check)
    return errors.DONE if is_done else errors.TURN_FAILED


def is_refused(turn: Mapping[str, object], check: object) -> bool:
    """Say whether an agent's check is of a turn and has not passed; the arguments are as for `verdict_status`."""
    return isinstance(check, dict) and check.get("turn") == turn.get("number") and check.get("state") != "passed"


def fields(source: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """Pick an object's documented members, in the document's order."""
    return {name: source[name] for name in names}
