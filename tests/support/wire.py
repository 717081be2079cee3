"""A raw connection to the operator socket: bytes in, bytes out, nothing of `substrat.client`."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any

from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


class Wire:
    """One connection to the operator socket; notifications that come before an answer are kept in `notifications`.

    Args:
        path: the socket.
        hello: whether the conversation is opened as it must be.
    """

    def __init__(self, path: Path, *, hello: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self._unread = b""
        self._number = 0
        self.notifications: list[dict[str, Any]] = []
        self.journals: list[str] = []
        try:
            # Blocking, or a full backlog would refuse it at once (connect(2), EAGAIN); SO_SNDTIMEO bounds that (unix(7)).
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
            self.socket.connect(str(path))
            self.socket.settimeout(PATIENCE)
            if hello:
                self.call("hello", protocol=1, client="test")
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: object) -> None:
        """Send messages, objects or lines without their newline, in one write."""
        lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        self.socket.sendall(b"".join(line + b"\n" for line in lines))

    def receive_line(self) -> bytes | None:
        """The next line, or None at the end of the connection."""
        while b"\n" not in self._unread:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                assert not self._unread, "half a line"
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def receive(self) -> Any:
        """The next message, or None at the end of the connection."""
        line = self.receive_line()
        return None if line is None else json.loads(line)

    def request(self, method: str, **params: object) -> dict[str, Any]:
        """A request with the next number; it isn't sent."""
        self._number += 1
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}

    def ask(self, method: str, **params: object) -> int:
        """Send a request without waiting for its answer; returns its id."""
        request = self.request(method, **params)
        self.send(request)
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request; answers to others that come before it are dropped."""
        while (message := self.receive()) is not None:
            if "id" not in message:
                self.notifications.append(message)
            elif message["id"] == number:
                return message
        raise ConnectionResetError("the connection ended before the answer")

    def call(self, method: str, **params: object) -> Any:
        """The result of a request that must succeed."""
        answer = self.answer(self.ask(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def refuse(self, method: str, **params: object) -> dict[str, Any]:
        """The error that a request is answered with."""
        answer = self.answer(self.ask(method, **params))
        assert "result" not in answer, answer
        return answer["error"]

    def refused(self, method: str, **params: object) -> str:
        """The name of the error that a request is answered with."""
        return self.refuse(method, **params)["data"]["type"]

    def exchange(self, message: object) -> Any:
        """Send a message as it is and return the next answer."""
        self.send(message)
        return self.receive()

    def error(self, message: object) -> tuple[Any, str]:
        """Send a message as it is; returns the answer's id and the name of its error."""
        answer = self.exchange(message)
        assert set(answer) == {"jsonrpc", "id", "error"}, answer
        return answer["id"], answer["error"]["data"]["type"]

    def event(self) -> dict[str, Any]:
        """The next event of the connection's only subscription; the journal's id of the first one goes to `journals`."""
        message = self.notifications.pop(0) if self.notifications else self.receive()
        assert message is not None, "the connection ended"
        assert message["method"] == "event"
        event = message["params"]["event"]
        if "journal" in event:
            self.journals.append(event.pop("journal"))
        return event

    def events_until(self, kind: str) -> list[dict[str, Any]]:
        """The next events up to one of a kind."""
        found = [self.event()]
        while found[-1]["kind"] != kind:
            found.append(self.event())
        return found

    def pages(self, **params: Any) -> list[dict[str, Any]]:
        """All events, page by page."""
        found: list[dict[str, Any]] = []
        cursor = params.pop("since", 0)
        while (page := self.call("events.read", since=cursor, **params))["events"]:
            found += page["events"]
            cursor = page["cursor"]
        return found
