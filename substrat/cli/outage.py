"""Bridges a restart of the daemon: connects again, and repeats requests that only read or wait."""

from __future__ import annotations

import time

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import WINDOW, Call, no_daemon

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.cli.connection import Connection

_PATIENCE_S = 30.0
"""A restart takes a second; after a crash systemd waits some more (`RestartSec`), and the daemon checks its database."""
_PAUSE_S = 0.05  # between two attempts: a person doesn't notice it, and connect(2) costs microseconds


class Outage:
    """The time from a lost connection to the next answer; one notice tells a person.

    Args:
        connection: the conversation; `reconnect` opens it again.
        before_notice: called before a notice is written to standard error, to end a line that is under way.
    """

    def __init__(self, connection: Connection, before_notice: Callable[[], object] = lambda: None) -> None:
        self._connection = connection
        self._before_notice = before_notice
        # When the outage, whose notice was written, ends in failure; None: there is no outage.
        self._deadline: float | None = None

    def over(self) -> None:
        """Note that the daemon has answered."""
        self._deadline = None

    def reconnect(self) -> None:
        """Connect again; a daemon that is dying or starting may close several connections, with one notice for all.

        Raises:
            DaemonNotRunning: no daemon came back.
            WaitTimedOut: the conversation's time is over.
        """
        if self._deadline is None:
            self._before_notice()
            output.note(f"the daemon closed the connection; waiting up to {_PATIENCE_S:g} s for it to come back")
            self._deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._connection.check_time()
            if time.monotonic() > self._deadline:
                raise no_daemon(self._connection.path, f"no daemon came back within {_PATIENCE_S:g} s")
            time.sleep(_PAUSE_S)
            try:
                self._connection.reopen()
            except errors.DaemonNotRunning:
                continue
            return


def wait_for_all(connection: Connection, calls: Sequence[Call]) -> list[object]:
    """Make requests that change nothing and wait, across restarts of the daemon; unanswered ones are made again.

    Args:
        connection: the conversation; the rest of its time is each request's `timeout`.
        calls: the requests.

    Returns:
        For each its result, or the `SubstratError` it was answered with.

    Raises:
        DaemonNotRunning: the daemon went away and none came back.
        WaitTimedOut: the conversation's time is over, and the daemon has not said so itself.
    """
    outcomes: dict[int, object] = {}
    outage = Outage(connection)
    while len(outcomes) < len(calls):
        try:
            _ask(connection, calls, outcomes)
        except errors.ConnectionLost:
            if connection.server:
                outage.over()
            outage.reconnect()
    return [outcomes[index] for index in range(len(calls))]


def _ask(connection: Connection, calls: Sequence[Call], outcomes: dict[int, object]) -> None:
    """Ask for the outcomes that aren't there yet."""
    under_way: list[tuple[int, int]] = []
    for index, (method, params) in enumerate(calls):
        if index in outcomes:
            continue
        under_way.append((index, connection.submit(method, {**params, "timeout": connection.time_left()})))
        if len(under_way) >= WINDOW:
            first, number = under_way.pop(0)
            outcomes[first] = connection.outcome(number)
    for index, number in under_way:
        outcomes[index] = connection.outcome(number)


def wait_for_one(connection: Connection, method: str, **params: object) -> object:
    """Make one request like those of `wait_for_all`, and return its result.

    Raises:
        SubstratError: the error it was answered with.
    """
    (outcome,) = wait_for_all(connection, [(method, params)])
    if isinstance(outcome, errors.SubstratError):
        raise outcome
    return outcome


def ask_once(connection: Connection, unknown: str, ask: Callable[[], object]) -> object:
    """Make requests that must not be made twice; the error says so when their outcome is unknown.

    Args:
        connection: the conversation.
        unknown: the fact that isn't known then, and how to find it out.
        ask: makes the requests; its result is returned.

    Raises:
        ConnectionLost: the daemon went away before it answered.
        WaitTimedOut: the conversation's time was over before it answered.
    """
    try:
        return ask()
    except errors.ConnectionLost:
        raise errors.ConnectionLost(
            f"the daemon at {connection.path} closed the connection before it answered; {unknown}"
        ) from None
    except errors.WaitTimedOut as problem:
        raise errors.WaitTimedOut(f"{problem.message}; {unknown}") from None
