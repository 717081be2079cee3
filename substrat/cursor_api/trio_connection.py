"""A conversation with the daemon for one Trio task; it starts no task of its own and serves no other caller."""

from __future__ import annotations

import json
import os
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from substrat import __version__, errors, paths
from substrat.cursor_api.sandboxed import Answer, Call, Next, Step, Submit
from substrat.protocol import framing

if TYPE_CHECKING:
    from substrat.cursor_api.sandboxed import Steps

T = TypeVar("T")

_LONGEST_ANSWER = 16 * framing.MAX_LINE


class TrioConnection:
    """One conversation, made by `connect`. Owns its socket; of no use any more after a cancellation.

    Args:
        stream: the connected socket.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._splitter = framing.LineSplitter(_LONGEST_ANSWER)
        self._lines: deque[bytes] = deque()
        self._answers: dict[int, dict[str, Any]] = {}
        self._notifications: deque[dict[str, Any]] = deque()
        self._last = 0

    def close(self) -> None:
        """Close the socket."""
        self._stream.socket.close()

    async def drive(self, steps: Steps[T]) -> T:
        """Perform steps and return what they come to."""
        outcome: Any = None
        problem: errors.SubstratError | None = None
        while True:
            try:
                step = steps.send(outcome) if problem is None else steps.throw(problem)
            except StopIteration as done:
                found: T = done.value
                return found
            outcome, problem = None, None
            try:
                outcome = await self._perform(step)
            except errors.SubstratError as caught:
                problem = caught

    async def greet(self) -> None:
        """Open the conversation."""
        hello: dict[str, object] = {"protocol": framing.PROTOCOL_VERSION, "client": f"substrat.cursor_api {__version__}"}
        await self._perform(Call("hello", hello))

    async def _perform(self, step: Step) -> object:
        match step:
            case Call(method, params):
                return await self._answer(await self._submit(method, params))
            case Submit(method, params):
                return await self._submit(method, params)
            case Next(until):
                while not self._notifications and until not in self._answers:
                    await self._take_message()
                return self._notifications.popleft() if self._notifications else None
            case Answer(number):
                return await self._answer(number)

    async def _submit(self, method: str, params: dict[str, object]) -> int:
        self._last += 1
        line = framing.request(self._last, method, {key: value for key, value in params.items() if value is not None})
        if len(line) > framing.MAX_LINE:
            raise errors.MessageTooLarge(f"the request has {len(line)} bytes and the daemon takes {framing.MAX_LINE}")
        try:
            await self._stream.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise errors.ConnectionLost("the daemon closed the connection in the middle of a request") from None
        return self._last

    async def _answer(self, number: int) -> object:
        while number not in self._answers:
            await self._take_message()
        message = self._answers.pop(number)
        if isinstance(problem := message.get("error"), dict):
            raise _error(problem)
        return message.get("result")

    async def _take_message(self) -> None:
        while not self._lines:
            try:
                data = await self._stream.receive_some(1 << 16)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise errors.ConnectionLost("the daemon closed the connection; look whether it was restarted")
            self._lines.extend(self._splitter.feed(bytes(data)))
        message = json.loads(self._lines.popleft())
        if "method" in message:
            self._notifications.append(message.get("params", {}))
        elif message.get("id") is None:
            raise _error(message.get("error") or {})
        else:
            self._answers[message["id"]] = message


async def connect(path: str) -> TrioConnection:
    """Connect to the daemon.

    Args:
        path: the operator socket.

    Raises:
        DaemonNotRunning: nobody listens there.
    """
    directory = None
    try:
        short, directory = paths.short_socket_path(path)
        stream = await trio.open_unix_socket(short)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise errors.DaemonNotRunning(f"can't reach {path}: {reason}; start a daemon with 'substratd'") from None
    finally:
        if directory is not None:
            os.close(directory)
    connection = TrioConnection(stream)
    try:
        await connection.greet()
    except BaseException:
        connection.close()
        raise
    return connection


def _error(problem: dict[str, Any]) -> errors.SubstratError:
    return errors.from_wire(int(problem.get("code", errors.SubstratError.code)), str(problem.get("message", "")))
