"""The companion: carries MCP messages between cursor-agent's stdio and the agent socket; it knows requests from answers.

It runs inside the sandbox, once per turn, as `python3 -I -S relay.py`, so it imports only cheap modules that need
nothing installed. When the daemon restarts it connects again, repeats the handshake and the unanswered requests, with the
same ids; when the daemon stays away it answers each request with an MCP error that says so.

A line that holds no message is answered here, and a batch is taken apart: the daemon gets its messages one by one, the
client gets their answers as one array. `read` is also how `mcp_server.conversation` reads, for clients that use the socket
themselves. The rules are JSON-RPC 2.0's (https://www.jsonrpc.org/specification, sections 4 to 6).
"""

from __future__ import annotations

import _json
import _socket
import posix
import select
import sys
import time

RETRY_SECONDS = 30.0
"""How long requests wait for a daemon that is away; cursor-agent gives a call 60 s."""
MAX_LINE = 4 * 1024 * 1024
"""The daemon's limit; a longer request is answered here, because the daemon would refuse it each time."""
GOODBYE_SECONDS = 1.5
"""How long answers may still come after the client has closed its side; cursor-agent waits 2 s before it signals."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
_MAX_HELD = 32 * 1024 * 1024
_CHUNK = 65536
_SERVER_GONE = -32000
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_ANSWER = b'{"jsonrpc":"2.0","id":'
_SHORT = 256
"""Bytes of an answer in which its id has ended, if it isn't an odd one: clients count, or use a UUID."""


class McpMessage:
    """One message of a line.

    Args:
        text: its JSON; empty when it is none.
        body: the same as Python has it; empty when it is no object.
        key: the id that its answer has, as JSON; None: it is not to be answered.
        refusal: the code and the sentence of the error that answers it, if it is no message at all.
    """

    __slots__ = ("body", "key", "place", "refusal", "text")

    def __init__(
        self, text: bytes, body: dict[str, object], key: bytes | None, refusal: tuple[int, str] | None = None
    ) -> None:
        self.text = text
        self.body = body
        self.key = key
        self.refusal = refusal
        self.place = -1


class Reply:
    """The answer to one line: a message, or an array for a batch, once all of it is there.

    Args:
        messages: the line's. Those to be answered get their places in the reply.
        is_batch: whether the line is an array.
    """

    def __init__(self, messages: list[McpMessage], *, is_batch: bool) -> None:
        self._is_batch = is_batch
        self._parts: list[bytes] = []
        for message in messages:
            if message.key is not None:
                message.place = len(self._parts)
                self._parts.append(b"")
        self._missing = len(self._parts)

    def put(self, message: McpMessage, answer: bytes) -> bytes:
        """Put in a message's answer.

        Returns:
            The line to send, empty while other answers are missing.
        """
        self._parts[message.place] = answer
        self._missing -= 1
        if self._missing:
            return b""
        return (b"[%b]" % b",".join(self._parts) if self._is_batch else answer) + b"\n"


class _Asked:
    """A request that waits for its answer."""

    __slots__ = ("message", "reply")

    def __init__(self, message: McpMessage, reply: Reply) -> None:
        self.message = message
        self.reply = reply


class Relay:
    """One conversation: the bytes that came from the client, and the requests that wait for an answer.

    Args:
        path: the agent socket.
    """

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.server: _socket.socket | None = None
        self.from_client = b""
        self.from_server = b""
        self.handshake: list[McpMessage] = []
        self.unanswered: list[_Asked] = []
        self.answered_before: set[bytes] = set()
        self.away_since: float | None = None
        self.leave_at: float | None = None
        # The daemon tells repeated calls from new ones by this and the call's id.
        self.name = posix.urandom(8).hex()

    def run(self) -> None:
        """Carry messages until the client has closed its side and everything is answered, or time is up."""
        self.connect()
        while self.leave_at is None or (self.unanswered and time.monotonic() < self.leave_at):
            readable = [] if self.leave_at is not None else [0]
            if self.server is not None:
                readable.append(self.server.fileno())
            ready = select.select(readable, [], [], self.patience())[0]
            if 0 in ready:
                self.read_client()
            if self.server is not None and self.server.fileno() in ready:
                self.read_server()
            if self.server is None:
                self.connect()
                self.give_up_if_away()
        self.give_up("no answer came before the client closed its side")

    def patience(self) -> float | None:
        """Say how long to wait for something to be readable: not for ever when the daemon or the client is away."""
        if self.server is None:
            return 0.05
        return None if self.leave_at is None else max(0.0, self.leave_at - time.monotonic())

    def connect(self) -> None:
        """Connect to the daemon, and repeat the handshake and the unanswered requests."""
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            server.connect(self.path)
        except OSError:
            server.close()
            if self.away_since is None:
                self.away_since = time.monotonic()
            return
        self.server = server
        self.from_server = b""
        self.away_since = None
        # The client has had the answers to these, so their second answers are dropped.
        waiting = [asked.message for asked in self.unanswered]
        repeated = [message for message in self.handshake if message not in waiting]
        self.answered_before = {message.key for message in repeated if message.key is not None}
        hello = b'{"substrat":"companion","version":1,"relay":"' + self.name.encode() + b'"}\n'
        self.to_server(hello + b"".join(message.text + b"\n" for message in (*repeated, *waiting)))

    def read_client(self) -> None:
        """Pass on the client's bytes."""
        data = posix.read(0, _CHUNK)
        lines = (self.from_client + data).split(b"\n")
        if data:
            self.from_client = lines.pop()
            if len(self.from_client) > _MAX_HELD:
                raise SystemExit("substrat-mcp-server: a message is longer than 32 MiB")
        else:
            self.leave_at = time.monotonic() + GOODBYE_SECONDS
        for line in lines:
            self.take_client_line(line)

    def take_client_line(self, line: bytes) -> None:
        """Answer malformed lines, remember the requests to repeat after a reconnection, and pass messages on."""
        messages, reply = read(line)
        for message in messages:
            if message.refusal is not None:
                self.settle(_Asked(message, reply), *message.refusal)
            elif len(message.text) > MAX_LINE:
                words = "this call is longer than 4 MiB: put the text into a file and send its name"
                self.settle(_Asked(message, reply), _SERVER_GONE, words)
            else:
                self.pass_on(message, reply)

    def pass_on(self, message: McpMessage, reply: Reply) -> None:
        """Send a message to the daemon, now or when it is there."""
        method = message.body.get("method")
        if method == ("initialize" if message.key is not None else "notifications/initialized"):
            self.handshake.append(message)
        if message.key is not None:
            self.unanswered.append(_Asked(message, reply))
        self.to_server(message.text + b"\n")

    def settle(self, asked: _Asked, code: int, words: str) -> None:
        """Answer a message with an error, if it is to be answered."""
        if asked.message.key is not None:
            write_all(asked.reply.put(asked.message, error(asked.message.key, code, words)))

    def to_server(self, data: bytes) -> None:
        """Write to the daemon if it is there."""
        if self.server is None:
            return
        try:
            self.server.sendall(data)
        except OSError:
            self.lose_server()

    def read_server(self) -> None:
        """Pass on the daemon's bytes, except a second answer to the handshake."""
        try:
            data = self.server.recv(_CHUNK) if self.server is not None else b""
        except OSError:
            data = b""
        if not data:
            self.lose_server()
            return
        lines = (self.from_server + data).split(b"\n")
        self.from_server = lines.pop()
        for line in lines:
            self.take_server_line(line)

    def take_server_line(self, line: bytes) -> None:
        """Pass a line on; an answer that belongs to a batch waits for the others."""
        key = answered_key(line)
        if key is not None and key in self.answered_before:
            self.answered_before.discard(key)
            return
        asked = next((asked for asked in self.unanswered if asked.message.key == key), None)
        if asked is None:
            write_all(line + b"\n")
            return
        self.unanswered.remove(asked)
        write_all(asked.reply.put(asked.message, line))

    def lose_server(self) -> None:
        """Note that the daemon is away."""
        if self.server is not None:
            self.server.close()
        self.server = None
        self.away_since = time.monotonic()

    def give_up_if_away(self) -> None:
        """Answer the waiting requests with an error when the daemon has been away for too long."""
        if self.away_since is None or time.monotonic() - self.away_since < RETRY_SECONDS:
            return
        self.give_up("substratd is not running, so this tool can't answer; go on without it and try again later")

    def give_up(self, words: str) -> None:
        """Answer the waiting requests with an error."""
        given_up, self.unanswered = self.unanswered, []
        for asked in given_up:
            self.settle(asked, _SERVER_GONE, words)


def read(line: bytes) -> tuple[list[McpMessage], Reply]:
    """Read a line: the messages in it, and the reply that waits for their answers.

    Each of the messages is a request (it has a `key`), a notification or an answer (it has none), or it has a `refusal`. A
    byte order mark is left out, an empty line has no messages.
    """
    line = line.removeprefix(_BOM).strip(_SPACE)
    if not line:
        return [], Reply([], is_batch=False)
    try:
        text = line.decode()
        if text[0] != "[":
            messages, is_batch = [_message(line, _parsed(text))], False
        else:
            messages, is_batch = [_message(part.encode(), body) for part, body in _elements(text)], True
            if not messages:
                messages, is_batch = [_refused(INVALID_REQUEST, "an empty batch holds no message")], False
    except StopIteration as place:
        messages, is_batch = [_refused(PARSE_ERROR, f"the line is no JSON: there is no value at character {place}")], False
    except RecursionError:
        messages, is_batch = [_refused(PARSE_ERROR, "the line can't be read: it is nested too deeply")], False
    except ValueError as problem:
        messages, is_batch = [_refused(PARSE_ERROR, f"the line is no JSON: {problem}")], False
    return messages, Reply(messages, is_batch=is_batch)


def _parsed(text: str) -> object:
    value, end = _scan(text, 0)
    if end != len(text):
        raise ValueError(f"more follows after character {end}")
    return value


def _elements(text: str) -> list[tuple[str, object]]:
    """Return an array's elements, each as its JSON and as Python has it."""
    found: list[tuple[str, object]] = []
    at = _after_space(text, 1)
    if text[at : at + 1] != "]":
        while True:
            value, end = _scan(text, at)
            found.append((text[at:end], value))
            at = _after_space(text, end)
            if text[at : at + 1] != ",":
                break
            at = _after_space(text, at + 1)
    if text[at:] != "]":
        raise ValueError(f"the array doesn't end at character {at}")
    return found


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\t", "\r", "\n"}:
        at += 1
    return at


def _message(text: bytes, body: object) -> McpMessage:
    if not isinstance(body, dict):
        return _refused(INVALID_REQUEST, "a message must be an object")
    key = id_text(body.get("id"))
    if "method" in body:
        if "id" not in body:
            if is_well_formed(body):
                return McpMessage(text, body, None)
            return _refused(INVALID_REQUEST, "a notification needs a method, jsonrpc 2.0, and an object if it has params")
        if key is None:
            return _refused(INVALID_REQUEST, "a request's id must be a string or a number")
        return McpMessage(text, body, key)
    if "result" in body or "error" in body:
        return McpMessage(text, body, None)
    return _refused(INVALID_REQUEST, "the message has no method", key)


def _refused(code: int, words: str, key: bytes | None = None) -> McpMessage:
    return McpMessage(b"", {}, b"null" if key is None else key, (code, words))


def is_well_formed(body: dict[str, object]) -> bool:
    """Say whether a request or a notification is well-formed JSON-RPC, apart from its id."""
    params = body.get("params")
    return (
        body.get("jsonrpc") == "2.0"
        and isinstance(body.get("method"), str)
        and (params is None or isinstance(params, dict | list))
    )


def id_text(value: object) -> bytes | None:
    """Return an id as JSON; None if the value can't be one."""
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value).encode()
    if isinstance(value, bool) or not isinstance(value, int | float) or value in {float("inf"), float("-inf")}:
        return None
    return repr(value).encode()


def answered_key(line: bytes) -> bytes | None:
    """Return the id that a line of the daemon's answers; None if it is no answer.

    An answer as the daemon writes it, such as `{"jsonrpc":"2.0","id":7,"result":…}`, isn't read any further than that: a
    quote inside an id is written with a backslash.
    """
    if line.startswith(_ANSWER):
        for name in (b',"result":', b',"error":'):
            key, found, _ = line[len(_ANSWER) : len(_ANSWER) + _SHORT].partition(name)
            if found:
                return key
    messages, _ = read(line)
    if len(messages) != 1 or "method" in messages[0].body:
        return None
    return id_text(messages[0].body.get("id"))


def error(key: bytes, code: int, words: str) -> bytes:
    """Return an error as a message.

    Args:
        key: the id it answers, as JSON.
        code: the error's number.
        words: one sentence.
    """
    text = _json.encode_basestring_ascii(words).encode()
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b}}' % (key, code, text)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def _scan(text: str, at: int) -> tuple[object, int]:
    """Read the value that begins at a character; returns it, and where it ends."""
    try:
        return _scanner(text, at)
    except SystemError:
        # Before Python 3.12 the scanner looks its exception up among the imported modules, and fails so if it isn't there.
        import json.decoder  # noqa: F401

        return _scanner(text, at)


class _Options:
    """How JSON is read: by the standard library's own scanner, whose Python half takes too long to import."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)


_scanner = _json.make_scanner(_Options)  # type: ignore[arg-type]


def write_all(data: bytes) -> None:
    """Write to the client."""
    while data:
        data = data[posix.write(1, data) :]


def main() -> int:
    """Run the companion; the agent socket is named by `SUBSTRAT_SOCKET`."""
    path = posix.environ.get(b"SUBSTRAT_SOCKET")
    if not path:
        sys.stderr.write("substrat-mcp-server: SUBSTRAT_SOCKET isn't set; it is started by cursor-agent in a sandbox\n")
        return 2
    try:
        Relay(path).run()
    except BrokenPipeError:  # the client is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
