"""One client's side of the protocol without a socket: requests become bytes, and bytes become answers and events.

    conversation = ClientConversation("a script 1.0", path)
    number, line = conversation.request("agent.list", {})
    socket.sendall(conversation.hello() + line)
    while not conversation.has_answer(number):
        conversation.check()
        conversation.receive(socket.recv(65536))
    agents = conversation.take_answer(number)

Standard library only: `substratctl` imports this at every start.
"""

from __future__ import annotations

from collections import deque

from substrat import errors
from substrat.protocol import framing, text

LONGEST_ANSWER = 16 * framing.MAX_LINE
"""The daemon's lines have no limit (P-FRAME-6); this bounds one that never ends. A page of a thousand events is shorter."""

Object = dict[str, object]


class ClientConversation:
    """The state of one connection: its requests without an answer, answers, events, and the end.

    Answers and events stay here until they are taken. The first thing that ends the conversation is its `problem`: the
    daemon closed the connection, refused the greeting or a line, or isn't a daemon.

    Args:
        client: the program's name and version, which `hello` tells.
        path: the operator socket, for messages.
    """

    def __init__(self, client: str, path: str) -> None:
        self._client = client
        self._path = path
        self._last = 0
        self._answers: dict[int, Object] = {}
        self.notifications: deque[Object] = deque()
        self._begin()

    def _begin(self) -> None:
        self._splitter = framing.LineSplitter(LONGEST_ANSWER)
        self.pending: dict[int, str] = {}
        self.server: Object = {}
        self.problem: errors.SubstratError | None = None

    def restart(self) -> None:
        """Begin anew over another connection: unanswered requests and untaken events are forgotten; answers that came stay.

        A subscription to the other connection begins after the last event that was taken.
        """
        self.notifications.clear()
        self._begin()

    def hello(self) -> bytes:
        """Return the first request of a connection; `server` has its answer when it has come."""
        return framing.request(0, "hello", {"protocol": framing.PROTOCOL_VERSION, "client": self._client})

    def request(self, method: str, params: Object) -> tuple[int, bytes]:
        """Make a request.

        Args:
            method: its method.
            params: its parameters; those that are None are left out.

        Returns:
            Its number, and the line to send.

        Raises:
            MessageTooLarge: it is longer than the daemon takes.
            ParseError: it holds a value that JSON lacks: NaN, an infinity, half of a surrogate pair.
        """
        line = framing.request(self._last + 1, method, {key: value for key, value in params.items() if value is not None})
        if len(line) > framing.MAX_LINE:
            raise errors.MessageTooLarge(
                f"the request has {len(line)} bytes and the daemon takes {framing.MAX_LINE}; put the text into a file "
                "in the workspace and name the file in the prompt"
            )
        if any(mark in line for mark in (b"\\ud", b"NaN", b"Infinity")):
            # Refused here, because the daemon couldn't say which request it refuses.
            framing.decode(line)
        self._last += 1
        self.pending[self._last] = method
        return self._last, line

    def receive(self, data: bytes) -> bool:
        """Take in bytes from the daemon.

        Args:
            data: the bytes; none: the daemon has closed the connection.

        Returns:
            Whether an answer was among them.
        """
        awaited = self._awaited()
        try:
            if self.problem is None and not data:
                raise errors.ConnectionLost(
                    f"the daemon at {self._path} closed the connection; agents go on: check that it runs, then connect "
                    "again"
                )
            if self.problem is None:
                for line in self._splitter.feed(data):
                    self._take(line)
        except errors.SubstratError as problem:
            self.problem = problem
        return self._awaited() < awaited

    def has_answer(self, number: int) -> bool:
        """Return whether the answer to a request has come."""
        return number in self._answers

    def take_answer(self, number: int) -> object:
        """Return the result of a request whose answer has come.

        Raises:
            SubstratError: the error it was answered with.
            KeyError: its answer hasn't come, or was taken before.
        """
        return _result(self._answers.pop(number))

    def forget(self, number: int) -> None:
        """Drop a request, whose answer is of no use any more."""
        self.pending.pop(number, None)
        self._answers.pop(number, None)

    def check(self) -> None:
        """Raise the problem that has ended the conversation, if there is one: no further answer or event will come.

        Raises:
            ConnectionLost: the daemon closed the connection.
            SubstratError: the daemon refused the greeting or a line, or isn't a daemon.
        """
        if self.problem is not None:
            raise type(self.problem)(self.problem.message)

    def _awaited(self) -> int:
        return len(self.pending) + (not self.server)

    def _take(self, line: bytes) -> None:
        message = self._decoded(line)
        number = message.get("id")
        if number is None and isinstance(message.get("error"), dict):
            # The daemon couldn't tell which request it refuses, so one of them would wait for ever.
            _result(message)
        if "method" in message:
            self._take_notification(message)
        elif not self.server:
            self._take_greeting(message)
        elif isinstance(number, int) and self.pending.pop(number, None) is not None:
            self._answers[number] = message
        # Another answer is for a request that was forgotten.

    def _take_notification(self, message: Object) -> None:
        if message["method"] != "event":
            return  # new in a later version (P-STAB-2)
        if not isinstance(params := message.get("params"), dict):
            raise self._foreign()
        self.notifications.append(params)

    def _take_greeting(self, message: Object) -> None:
        """Take the answer to `hello`, which is a daemon's first answer."""
        if message.get("id") != 0:
            raise self._foreign()
        server = _result(message)
        if not isinstance(server, dict) or not server:
            raise self._foreign()
        if server.get("protocol") != framing.PROTOCOL_VERSION:
            raise errors.UnsupportedVersion(
                f"the daemon at {self._path} speaks version {server.get('protocol')!r:.20} of the protocol and this client "
                f"version {framing.PROTOCOL_VERSION}: bring both to one version"
            )
        self.server = server

    def _decoded(self, line: bytes) -> Object:
        try:
            message = text.loads(line)
        except (ValueError, RecursionError):
            raise self._foreign() from None
        if not isinstance(message, dict):
            raise self._foreign()
        return message

    def _foreign(self) -> errors.SubstratError:
        if self.server:
            return errors.SubstratError(
                f"the daemon at {self._path} sent a line that is none of the protocol's: are both of one version?"
            )
        return errors.SubstratError(
            f"the program that listens on {self._path} isn't a substratd: it sent a line that is none of the protocol's"
        )


def _result(message: Object) -> object:
    problem = message.get("error")
    if not isinstance(problem, dict):
        return message.get("result")
    code = problem.get("code")
    raise errors.from_wire(code if isinstance(code, int) else errors.SubstratError.code, str(problem.get("message", "")))
