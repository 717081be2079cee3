"""Every failure a person can cause: its sentence, its code on the wire and its exit status; not for internal bugs.

Standard library only: `substratctl` imports this at every start. A failure crosses the operator socket as
`{code, message, data: {type}}` and is rebuilt on the other side by `from_wire`.
"""

from __future__ import annotations

import os

DONE = 0
FAILED = 1
USAGE = 2
NO_DAEMON = 3
NOT_FOUND = 4
TURN_FAILED = 5
NEEDS_YOU = 6
TIMED_OUT = 124


class SubstratError(Exception):
    """A failure with a remedy.

    Args:
        message: one sentence that names the thing at fault and the remedy.
    """

    code = -32000
    exit_status = FAILED
    wire_name: str | None = None
    """Its name on the wire; None: that of its class."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ParseError(SubstratError):
    """The line isn't JSON."""

    code = -32700


class InvalidRequest(SubstratError):
    """The line is JSON but no JSON-RPC request."""

    code = -32600


class MethodNotFound(SubstratError):
    """No such method on this socket."""

    code = -32601


class InvalidParams(SubstratError):
    """A parameter is missing, unknown or of the wrong type."""

    code = -32602
    exit_status = USAGE


class InternalError(SubstratError):
    """A bug in the daemon; its log has the details under the id in the message."""

    code = -32603


class HelloRequired(SubstratError):
    """The first request on a connection must be `hello`."""

    code = -32001


class UnsupportedVersion(SubstratError):
    """The two ends share no protocol version."""

    code = -32002


class MessageTooLarge(SubstratError):
    """A line is over the size limit; the connection ends after this answer."""

    code = -32003


class TooManyRequests(SubstratError):
    """More requests in flight on one connection than allowed."""

    code = -32004


class NotFound(SubstratError):
    """No agent, turn or message of that name, or no optional library that a command needs."""

    code = -32010
    exit_status = NOT_FOUND


class NameTaken(SubstratError):
    """Another agent has that name."""

    code = -32011


class Refused(SubstratError):
    """The agent's state doesn't allow this now."""

    code = -32012


class WaitTimedOut(SubstratError):
    """The awaited event didn't happen in time."""

    code = -32013
    exit_status = TIMED_OUT


class LimitReached(SubstratError):
    """A budget or a size is used up."""

    code = -32014


class PolicyDenied(SubstratError):
    """A child asked for more than its parent has, or directories would be shared that may not be."""

    code = -32015


class WorkspaceUnusable(SubstratError):
    """The workspace can't be mounted for an agent."""

    code = -32020


class AgentProgramMissing(SubstratError):
    """There is no agent program, or it can't be executed."""

    code = -32021


class BubblewrapMissing(SubstratError):
    """There is no bubblewrap, or it is too old."""

    code = -32022


class NamespacesForbidden(SubstratError):
    """This machine doesn't let us make the namespaces a sandbox needs."""

    code = -32023


class SessionMissing(SubstratError):
    """A session's stored chat isn't where it was recorded, so resuming would silently start an empty one."""

    code = -32024


class SandboxFailed(SubstratError):
    """A part of the sandbox couldn't be set up."""

    code = -32025


class DescriptorsUsedUp(SandboxFailed):
    """There are no file descriptors left for a sandbox."""


class NotAvailable(SubstratError):
    """Something this version doesn't have yet."""

    code = -32026


class StorageFailed(SubstratError):
    """The state couldn't be written; nothing was changed."""

    code = -32027


class SessionDamaged(SubstratError):
    """A session's stored chat can't be read."""

    code = -32028


class CloneFailed(SubstratError):
    """An agent's private clone couldn't be made or set up, so its turn can't start."""

    code = -32029
    exit_status = TURN_FAILED


class OutOfBudget(SubstratError):
    """What an agent may use with its family is used up, so its turn waits until a person gives it more."""

    code = -32033
    exit_status = TURN_FAILED


class NotifyFailed(SubstratError):
    """The command that tells a person who needs them failed."""

    code = -32031


class Conflict(SubstratError):
    """An agent's work can't be landed: it conflicts with the target, or git refuses."""

    code = -32030


class CursorUnknown(SubstratError):
    """A cursor is another journal's, or is greater than the newest event's."""

    code = -32032


class DaemonNotRunning(SubstratError):
    """No daemon listens on the operator socket."""

    code = -32050
    exit_status = NO_DAEMON

    @classmethod
    def at(cls, path: str, reason: str) -> DaemonNotRunning:
        """Make the error for a socket that leads nowhere; systemd's command is named where that runs (sd_booted(3))."""
        service = " or 'systemctl --user start substratd'" if os.path.isdir("/run/systemd/system") else ""
        return cls(f"can't reach {path}: {reason}; start one with 'substratd'{service}")


class DaemonAlreadyRunning(SubstratError):
    """Another daemon holds the state directory."""

    code = -32051


class ConnectionLost(SubstratError):
    """The daemon went away in the middle of a request."""

    code = -32052
    exit_status = NO_DAEMON


class ConfigInvalid(SubstratError):
    """The configuration file has an error."""

    code = -32053
    exit_status = USAGE


class StateUnusable(SubstratError):
    """The state directory is damaged, newer than this version or not writable."""

    code = -32054


class UsageError(SubstratError):
    """The command line is wrong."""

    code = -32055
    exit_status = USAGE


def every_error() -> dict[int, type[SubstratError]]:
    """Return all error classes by wire code."""
    found = {SubstratError.code: SubstratError}
    for kind in SubstratError.__subclasses__():
        found[kind.code] = kind
    return found


def from_wire(code: int, message: str) -> SubstratError:
    """Rebuild the error an answer carries.

    Args:
        code: the JSON-RPC error code.
        message: its sentence.

    Returns:
        An instance of the class with that code, or of `SubstratError` for a code of a newer daemon.
    """
    return every_error().get(code, SubstratError)(message)
