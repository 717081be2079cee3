"""Holds a blocking conversation with the daemon for one command; the Trio way is `substrat.client`.

Standard library only, and `_socket` instead of `socket`: that module's enumerations cost a third of the time of `ls`.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from collections import deque

from substrat import __version__, errors, paths
from substrat.cli import output
from substrat.protocol import framing
from substrat.protocol.conversation import ClientConversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

WINDOW = framing.MAX_IN_FLIGHT // 2
"""Requests under way at once: fewer than the daemon takes, so that a follower's long request fits in beside them."""
SILENCE_S = 2.0
"""A daemon that is well answers in milliseconds; after this long a person wonders, and a notice names the daemon."""
_GRACE_S = 1.0
"""How much longer than `--timeout` the client waits: the daemon's own answer, which names the agent, goes first."""

Params = dict[str, object]
Call = tuple[str, Params]


class Connection:
    """One conversation. Requests are written when an answer is asked for, `hello` with the first of them.

    Owns its socket: use it in a `with` statement.

    A daemon that answers nothing for 2 s when it should answer at once is reported on standard error, once. Events that it
    sends meanwhile are no answers. Requests whose answers may take long (`protocol.methods.WAITING`) are no such case,
    unless not even `hello` was answered; `slow_notice` is then written once, if the caller has set it.

    Args:
        path: the operator socket; by default the one the environment names.
        timeout: how long all of the conversation may take, in seconds; a second of grace comes on top.

    Raises:
        DaemonNotRunning: no daemon listens there.
        WaitTimedOut: the daemon has not even taken the connection in that time.
    """

    def __init__(self, path: str | None = None, timeout: float | None = None) -> None:
        self.path = path if path is not None else paths.operator_socket()
        self.slow_notice: str | None = None
        self._began = time.monotonic()
        self._timeout = timeout
        self._reported = False
        # Whether a silence was looked into that nothing has ended yet, and since when it has lasted: the time that this
        # process takes between two waits isn't the daemon's silence.
        self._looked = False
        self._silent_since = self._began
        self._conversation = ClientConversation(f"substratctl {__version__}", self.path)
        self._open()

    def _open(self) -> None:
        self._unsent = [self._conversation.hello()]
        self._socket = self._connect()

    @property
    def server(self) -> Params:
        """The daemon's answer to `hello`; empty before it has come."""
        return self._conversation.server

    def reopen(self) -> None:
        """Connect again after `ConnectionLost`; answers that came stay, the other requests must be made again.

        Raises:
            DaemonNotRunning: no daemon listens there now.
            WaitTimedOut: the conversation's time is over.
        """
        self._socket.close()
        self._conversation.restart()
        self.check_time()
        self._open()

    def time_left(self) -> float | None:
        """Return how long the conversation may go on, in seconds and without the grace; None is for ever.

        Half of the grace pays for the time before: a daemon that answers is given the whole of `--timeout` to wait.
        """
        if self._timeout is None:
            return None
        used = time.monotonic() - self._began
        return self._timeout if used < _GRACE_S / 2 else max(0.0, self._timeout - used)

    def check_time(self) -> None:
        """Raise when the conversation's time and its grace are over.

        Raises:
            WaitTimedOut: they are.
        """
        if self._timeout is not None and time.monotonic() >= self._began + self._timeout + _GRACE_S:
            raise errors.WaitTimedOut(f"the daemon at {self.path} has not answered within {self._timeout:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def greet(self) -> dict[str, object]:
        """Wait for the daemon's answer to `hello` and return it."""
        self._begin_waiting()
        while not self.server:
            self._receive()
        return self.server

    def submit(self, method: str, params: Params) -> int:
        """Queue a request.

        Returns:
            Its number, for `answer`.

        Raises:
            MessageTooLarge: it is longer than the daemon takes.
            ParseError: it holds a value that JSON lacks.
        """
        number, line = self._conversation.request(method, params)
        self._unsent.append(line)
        self._looked = False
        return number

    def answer(self, number: int) -> object:
        """Wait for the answer to a request.

        Raises:
            SubstratError: the error it was answered with.
            ConnectionLost: the daemon went away before.
        """
        self._wait_for(number)
        return self.take_answer(number)

    def take_answer(self, number: int) -> object:
        """Return an answer that has come.

        Raises:
            SubstratError: the error the request was answered with.
            KeyError: it hasn't come.
        """
        return self._conversation.take_answer(number)

    def call(self, method: str, **params: object) -> object:
        """Make a request and wait for its answer; parameters that are None are left out."""
        return self.answer(self.submit(method, params))

    def call_object(self, method: str, **params: object) -> dict[str, object]:
        """Make a request whose result is an object."""
        return as_object(method, self.call(method, **params))

    def call_list(self, method: str, **params: object) -> list[dict[str, object]]:
        """Make a request whose result is a list of objects."""
        return as_list(method, self.call(method, **params))

    def each(self, calls: Iterable[Call]) -> list[object]:
        """Make many requests at once.

        Returns:
            For each its result, or the `SubstratError` it was answered with.
        """
        results: list[object] = []
        under_way: deque[int] = deque()
        for method, params in calls:
            under_way.append(self.submit(method, params))
            if len(under_way) >= WINDOW:
                results.append(self.outcome(under_way.popleft()))
        results.extend(self.outcome(number) for number in under_way)
        return results

    def next_event(self, until: int | None = None, patience: float | None = None) -> tuple[Params | None, bool]:
        """Wait for a notification.

        Args:
            until: the number of a request whose answer ends the waiting.
            patience: how long to wait for anything at all, in seconds; None is for ever.

        Returns:
            The notification's parameters, or None when the answer came or nothing did; and whether reading on would block.
        """
        self._begin_waiting()
        events = self._conversation.notifications
        while not events and not (until is not None and self.has_answer(until)):
            if patience is not None and not self._readable_within(patience):
                return None, True
            self._receive()
        found = events.popleft() if events else None
        return found, not events

    def _readable_within(self, seconds: float) -> bool:
        """Wait until the socket has something to read; False when nothing came in so many seconds."""
        import select

        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def has_answer(self, number: int) -> bool:
        """Return whether the answer to a request has come."""
        return self._conversation.has_answer(number)

    def fileno(self) -> int:
        """Return the socket's descriptor, for waiting until `take_in` has something to do."""
        return self._socket.fileno()

    def take_in(self) -> None:
        """Send queued requests, then take the bytes that have come, or wait for some."""
        self._begin_waiting()
        self._receive()

    def peer_uid(self) -> int:
        """Return the daemon's user (SO_PEERCRED, unix(7))."""
        found = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(found[4:8], sys.byteorder)

    def outcome(self, number: int) -> object:
        """Wait for the answer to a request, and return its result or the `SubstratError` it was answered with.

        Raises:
            ConnectionLost: the daemon went away before.
            WaitTimedOut: the conversation's time is over.
        """
        try:
            self._wait_for(number)
        except (errors.ConnectionLost, errors.WaitTimedOut):
            raise
        except errors.SubstratError as problem:
            return problem
        try:
            return self.take_answer(number)
        except errors.SubstratError as problem:
            return problem

    def _wait_for(self, number: int) -> None:
        self._begin_waiting()
        while not self.has_answer(number):
            self._receive()

    def _begin_waiting(self) -> None:
        """Send queued requests; the daemon's silence counts from now."""
        self._silent_since = time.monotonic()
        self.send_queued()

    def send_queued(self) -> None:
        """Send the requests that are queued, without waiting for an answer."""
        if not self._unsent:
            return
        rest = memoryview(b"".join(self._unsent))
        self._unsent.clear()
        try:
            while rest:
                self._set_patience()
                try:
                    rest = rest[self._socket.send(rest) :]
                except TimeoutError:
                    self._look_into_silence()
        except (BrokenPipeError, ConnectionResetError):
            # The daemon may have said why before it closed; reading tells, or ends in ConnectionLost.
            return

    def _receive(self) -> None:
        """Take in some bytes, as soon as there are any.

        Raises:
            ConnectionLost: the daemon went away.
            WaitTimedOut: the conversation's time is over.
        """
        self._conversation.check()
        data = None
        while data is None:
            # A daemon that always sends something leaves no wait to time out.
            self.check_time()
            if self._is_awaited() and time.monotonic() >= self._silent_since + SILENCE_S:
                self._look_into_silence()
            self._set_patience()
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                self._look_into_silence()
            except ConnectionResetError:
                data = b""
        if self._conversation.receive(data):
            self._looked, self._silent_since = False, time.monotonic()
        else:
            self._conversation.check()

    # Time

    def _set_patience(self) -> None:
        """Set how long the next system call may block."""
        bounds = [self._began + self._timeout + _GRACE_S - time.monotonic()] if self._timeout is not None else []
        if self._is_awaited():
            bounds.append(self._silent_since + SILENCE_S - time.monotonic())
        patience = max(0.001, min(bounds)) if bounds else None  # 0 would mean not to wait at all
        if patience != self._socket.gettimeout():
            self._socket.settimeout(patience)

    def _is_awaited(self) -> bool:
        """Return whether a silence of the daemon's must be looked into."""
        return not self._reported and not self._looked and bool(self._conversation.pending or not self.server)

    def _look_into_silence(self) -> None:
        """Find out whether the time is over, and after a silence report a daemon that should have answered.

        Raises:
            WaitTimedOut: the conversation's time is over.
        """
        from substrat.protocol import methods

        self.check_time()
        self._looked = True
        if not (self.server and methods.WAITING.issuperset(self._conversation.pending.values())):
            self.report_silence()
        elif self.slow_notice is not None:
            output.note(self.slow_notice)
            self.slow_notice = None

    def report_silence(self) -> None:
        """Report a daemon that should have answered, once."""
        if not self._reported:
            self._reported = True
            output.note(f"the daemon at {self.path} has not answered for {SILENCE_S:g} s; still waiting")

    def _connect(self) -> _socket.socket:
        found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        directory = None
        try:
            short, directory = paths.short_socket_path(self.path)
            while True:
                left = self.time_left()
                # connect(2) blocks while the queue of the listening socket is full. A socket with a timeout of Python's
                # own would not wait for room at all, so the kernel is given the bound (SO_SNDTIMEO, socket(7)).
                _bound_sending(found, SILENCE_S if left is None else min(SILENCE_S, left + _GRACE_S / 2))
                try:
                    found.connect(short)
                    break
                except BlockingIOError:
                    self._look_into_silence()
            _bound_sending(found, 0.0)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            found.close()
            raise no_daemon(self.path) from None
        except OSError as problem:
            found.close()
            raise no_daemon(self.path, (problem.strerror or str(problem)).lower()) from None
        except errors.SubstratError:
            found.close()
            raise
        finally:
            if directory is not None:
                os.close(directory)
        return found


def _bound_sending(sock: _socket.socket, seconds: float) -> None:
    """Set how long connecting and sending may block in the kernel; 0 is for ever."""
    whole = int(seconds)
    parts = (whole, int((seconds - whole) * 1e6) or (not whole and seconds > 0))
    # A struct timeval: two longs.
    size = 8 if sys.maxsize > 2**32 else 4
    value = b"".join(int(part).to_bytes(size, sys.byteorder) for part in parts)
    sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, value)


def as_object(method: str, result: object) -> dict[str, object]:
    """Check that a result is an object."""
    if not isinstance(result, dict):
        raise _unexpected(method)
    return result


def as_list(method: str, result: object) -> list[dict[str, object]]:
    """Check that a result is a list of objects."""
    if not isinstance(result, list) or not all(isinstance(item, dict) for item in result):
        raise _unexpected(method)
    return result


def no_daemon(path: str, reason: str = "no daemon listens on it") -> errors.DaemonNotRunning:
    """Make the error for a socket that leads nowhere."""
    return errors.DaemonNotRunning.at(path, reason)


def _unexpected(method: str) -> errors.SubstratError:
    return errors.SubstratError(f"the daemon's answer to {method} has another form than expected; are both of one version?")
