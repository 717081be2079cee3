"""The HTTP status of each failure, and its form in an answer. Pure."""

from __future__ import annotations

from substrat import errors

_STATUSES: tuple[tuple[tuple[type[errors.SubstratError], ...], int], ...] = (
    ((errors.InvalidParams, errors.InvalidRequest, errors.ParseError, errors.UsageError), 400),
    ((errors.MessageTooLarge,), 413),
    ((errors.NotFound,), 404),
    ((errors.LimitReached, errors.TooManyRequests), 429),
    ((errors.DaemonNotRunning, errors.ConnectionLost), 503),
    ((errors.InternalError, errors.MethodNotFound, errors.HelloRequired, errors.UnsupportedVersion), 500),
)


def status(problem: errors.SubstratError) -> int:
    """Return the HTTP status of a failure; 409 where the state of things is against it."""
    for kinds, found in _STATUSES:
        if isinstance(problem, kinds):
            return found
    return 500 if type(problem) is errors.SubstratError else 409


def body(kind: str, message: str) -> dict[str, object]:
    """Return the answer that tells a failure."""
    return {"error": {"type": kind, "message": message}}
