"""A blocking conversation with the daemon over the operator socket, for one command; the Trio way is `substrat.client`.

Standard library only, and `_socket` instead of `socket`: that module's enumerations cost a third of what `ls` takes.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from collections import deque

from substrat import __version__, errors, paths
from substrat.cli import output
from substrat.protocol import framing, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

# The limit on a line protects the daemon from its clients. A page of a thousand events may be longer.
_LONGEST_ANSWER = 16 * framing.MAX_LINE
# Fewer than the daemon takes, so that a follower's long request fits in beside them.
WINDOW = framing.MAX_IN_FLIGHT // 2
SILENCE_S = 2.0
"""A daemon that is well answers in milliseconds; after this long a person wonders, and is told that it isn't their turn."""
_GRACE_S = 1.0
"""How much longer than `--timeout` the client waits: the daemon, which knows what it waited for, is to say so first."""

Params = dict[str, object]
Call = tuple[str, Params]


class Connection:
    """One conversation. Requests are written when an answer is asked for, `hello` with the first of them.

    Owns its socket: use it in a `with` statement.

    A daemon that answers nothing for 2 s when it should answer at once is told of on standard error, once; what it sends
    meanwhile that is no answer counts as nothing. A request whose answer may take long (`protocol.methods.WAITING`) is no
    such case, unless not even `hello` was answered; `slow_notice` is then written once, if the caller has set it.

    Args:
        path: the operator socket; by default the one the environment names.
        timeout: how long all of the conversation may take, in seconds; a second of grace comes on top.

    Raises:
        DaemonNotRunning: no daemon listens there.
        WaitTimedOut: the daemon has not even taken the connection in that time.
    """

    def __init__(self, path: str | None = None, timeout: float | None = None) -> None:
        self.path = path if path is not None else paths.operator_socket()
        self.server: dict[str, object] = {}
        self.slow_notice: str | None = None
        self._began = time.monotonic()
        self._timeout = timeout
        self._told = False
        # Whether a silence was looked into that nothing has ended yet, and since when it has lasted: what this process
        # does between two waits isn't the daemon's silence.
        self._looked = False
        self._silent_since = self._began
        self._answers: dict[int, dict[str, object]] = {}
        self._notifications: deque[Params] = deque()
        self._last = 0
        self._open()

    def _open(self) -> None:
        self._splitter = framing.LineSplitter(_LONGEST_ANSWER)
        self._lines: deque[bytes] = deque()
        self._asked: dict[int, str] = {}
        hello: Params = {"protocol": framing.PROTOCOL_VERSION, "client": f"substratctl {__version__}"}
        self._unsent = [framing.request(0, "hello", hello)]
        self._socket = self._connect()

    def reopen(self) -> None:
        """Connect again after `ConnectionLost`. What wasn't answered is to be asked for again; answers that came stay.

        Raises:
            DaemonNotRunning: no daemon listens there now.
            WaitTimedOut: the conversation's time is over.
        """
        self._socket.close()
        self.server = {}
        self.check_time()
        self._open()

    def time_left(self) -> float | None:
        """Return how long the conversation may go on, in seconds and without the grace; None is for ever.

        Half of the grace pays for what came before: a daemon that answers is given the whole of `--timeout` to wait.
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
        """Return what the daemon said about itself in its answer to `hello`."""
        self._begin_waiting()
        while not self.server:
            self._take_message()
        return self.server

    def submit(self, method: str, params: Params) -> int:
        """Queue a request.

        Returns:
            Its number, for `answer`.

        Raises:
            MessageTooLarge: it is longer than the daemon takes.
        """
        self._last += 1
        line = framing.request(self._last, method, {key: value for key, value in params.items() if value is not None})
        if len(line) > framing.MAX_LINE:
            raise errors.MessageTooLarge(
                f"the request has {len(line)} bytes and the daemon takes {framing.MAX_LINE}; put the text into a file "
                "in the workspace and name the file in the prompt"
            )
        self._unsent.append(line)
        self._asked[self._last] = method
        self._looked = False
        return self._last

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
        return _result(self._answers.pop(number))

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
        while not self._notifications and not (until is not None and until in self._answers):
            if patience is not None and not self._lines and not self._readable_within(patience):
                return None, True
            self._take_message()
        found = self._notifications.popleft() if self._notifications else None
        return found, not self._notifications and not self._lines

    def _readable_within(self, seconds: float) -> bool:
        """Wait until the socket has something to read; False when nothing came in so many seconds."""
        import select

        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def has_answer(self, number: int) -> bool:
        """Return whether the answer to a request has come."""
        return number in self._answers

    def fileno(self) -> int:
        """Return the socket's descriptor, for waiting until `take_in` has something to do."""
        return self._socket.fileno()

    def take_in(self) -> None:
        """Send what is queued, then take whatever has come, or wait for something to come."""
        self._begin_waiting()
        self._lines.extend(self._splitter.feed(self._receive()))
        while self._lines:
            self._take_message()

    def send_queued(self) -> None:
        """Send the requests that are queued, without waiting for an answer."""
        self._flush()

    def peer_uid(self) -> int:
        """Return the daemon's user (SO_PEERCRED, unix(7))."""
        found = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(found[4:8], sys.byteorder)

    def wait_for_end(self) -> None:
        """Wait until the daemon closes the connection."""
        try:
            while True:
                self._take_message()
        except errors.ConnectionLost:
            return

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
        while number not in self._answers:
            self._take_message()

    def _begin_waiting(self) -> None:
        """Send what is queued; the daemon's silence counts from now."""
        self._silent_since = time.monotonic()
        self._flush()

    def _flush(self) -> None:
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

    def _take_message(self) -> None:
        while not self._lines:
            self._lines.extend(self._splitter.feed(self._receive()))
        message = self._decoded(self._lines.popleft())
        if "method" in message:
            self._notifications.append(as_object("event", message.get("params", {})))
            return
        number = message.get("id")
        if number is None:
            _result(message)
        elif number == 0 and not self.server:
            self.server = as_object("hello", _result(message))
            self._end_silence()
        elif isinstance(number, int) and number in self._asked:
            self._answers[number] = message
            del self._asked[number]
            self._end_silence()

    def _end_silence(self) -> None:
        self._looked, self._silent_since = False, time.monotonic()

    def _decoded(self, line: bytes) -> dict[str, object]:
        try:
            message = text.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise errors.SubstratError(
                f"what listens on {self.path} isn't a substratd: it sent something else than the protocol"
            )
        return message

    def _receive(self) -> bytes:
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
        if not data:
            raise errors.ConnectionLost(
                f"the daemon at {self.path} closed the connection; agents go on, so look whether it was restarted"
            )
        return data

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
        """Say whether a silence of the daemon's is to be looked into."""
        return not self._told and not self._looked and bool(self._asked or not self.server)

    def _look_into_silence(self) -> None:
        """Find out whether the time is over, and after a silence tell of a daemon that should have answered.

        Raises:
            WaitTimedOut: the conversation's time is over.
        """
        from substrat.protocol import methods

        self.check_time()
        self._looked = True
        if not (self.server and methods.WAITING.issuperset(self._asked.values())):
            self.tell_of_silence()
        elif self.slow_notice is not None:
            output.note(self.slow_notice)
            self.slow_notice = None

    def tell_of_silence(self) -> None:
        """Tell of a daemon that should have answered, unless it was told before."""
        if not self._told:
            self._told = True
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
    return errors.DaemonNotRunning(
        f"can't reach {path}: {reason}; start one with 'substratd' or 'systemctl --user start substratd'"
    )


def _result(message: dict[str, object]) -> object:
    problem = message.get("error")
    if isinstance(problem, dict):
        raise errors.from_wire(int(problem.get("code", errors.SubstratError.code)), str(problem.get("message", "")))
    return message.get("result")


def _unexpected(method: str) -> errors.SubstratError:
    return errors.SubstratError(f"the daemon's answer to {method} has another form than expected; are both of one version?")
