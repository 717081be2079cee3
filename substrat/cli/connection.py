"""A blocking conversation with the daemon over the operator socket, for one command; the Trio way is `substrat.client`.

Standard library only, and `_socket` instead of `socket`: that module's enumerations cost a third of what `ls` takes.
"""

from __future__ import annotations

import _socket
import json
import os
import sys
from collections import deque

from substrat import __version__, errors, paths
from substrat.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

# The limit on a line protects the daemon from its clients. A page of a thousand events may be longer.
_LONGEST_ANSWER = 16 * framing.MAX_LINE
# Fewer than the daemon takes, so that a follower's long request fits in beside them.
_WINDOW = framing.MAX_IN_FLIGHT // 2

Params = dict[str, object]
Call = tuple[str, Params]


class Connection:
    """One conversation. Requests are written when an answer is asked for, `hello` with the first of them.

    Owns its socket: use it in a `with` statement.

    Args:
        path: the operator socket; by default the one the environment names.

    Raises:
        DaemonNotRunning: nobody listens there.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path if path is not None else paths.operator_socket()
        self.server: dict[str, object] = {}
        self._socket = _connect(self.path)
        self._splitter = framing.LineSplitter(_LONGEST_ANSWER)
        self._lines: deque[bytes] = deque()
        self._answers: dict[int, dict[str, object]] = {}
        self._notifications: deque[Params] = deque()
        self._last = 0
        hello: Params = {"protocol": framing.PROTOCOL_VERSION, "client": f"substratctl {__version__}"}
        self._unsent = [framing.request(0, "hello", hello)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def greet(self) -> dict[str, object]:
        """Return what the daemon said about itself in its answer to `hello`."""
        self._flush()
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
        return self._last

    def answer(self, number: int) -> object:
        """Wait for the answer to a request.

        Raises:
            SubstratError: the error it was answered with.
            ConnectionLost: the daemon went away before.
        """
        self._flush()
        while number not in self._answers:
            self._take_message()
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
            if len(under_way) >= _WINDOW:
                results.append(self._outcome(under_way.popleft()))
        results.extend(self._outcome(number) for number in under_way)
        return results

    def next_event(self, until: int | None = None) -> tuple[Params | None, bool]:
        """Wait for a notification.

        Args:
            until: the number of a request whose answer ends the waiting.

        Returns:
            The notification's parameters or None when the answer came, and whether reading on would block.
        """
        self._flush()
        while not self._notifications and not (until is not None and until in self._answers):
            self._take_message()
        found = self._notifications.popleft() if self._notifications else None
        return found, not self._notifications and not self._lines

    def has_answer(self, number: int) -> bool:
        """Return whether the answer to a request has come."""
        return number in self._answers

    def fileno(self) -> int:
        """Return the socket's descriptor, for waiting until `take_in` has something to do."""
        return self._socket.fileno()

    def take_in(self) -> None:
        """Send what is queued, then take whatever has come, or wait for something to come."""
        self._flush()
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

    def _outcome(self, number: int) -> object:
        try:
            return self.answer(number)
        except errors.ConnectionLost:
            raise
        except errors.SubstratError as problem:
            return problem

    def _flush(self) -> None:
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent.clear()
            try:
                self._socket.sendall(data)
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
        elif number == 0:
            self.server = as_object("hello", _result(message))
        elif isinstance(number, int):
            self._answers[number] = message

    def _decoded(self, line: bytes) -> dict[str, object]:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise errors.SubstratError(
                f"what listens on {self.path} isn't a substratd: it sent something else than the protocol"
            )
        return message

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            raise errors.ConnectionLost(
                f"the daemon at {self.path} closed the connection; agents go on, so look whether it was restarted"
            )
        return data


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


def _connect(path: str) -> _socket.socket:
    found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    directory = None
    try:
        short, directory = paths.short_socket_path(path)
        found.connect(short)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        found.close()
        raise no_daemon(path) from None
    except OSError as problem:
        found.close()
        raise no_daemon(path, (problem.strerror or str(problem)).lower()) from None
    finally:
        if directory is not None:
            os.close(directory)
    return found


def _result(message: dict[str, object]) -> object:
    problem = message.get("error")
    if isinstance(problem, dict):
        raise errors.from_wire(int(problem.get("code", errors.SubstratError.code)), str(problem.get("message", "")))
    return message.get("result")


def _unexpected(method: str) -> errors.SubstratError:
    return errors.SubstratError(f"the daemon's answer to {method} has another form than expected; are both of one version?")
