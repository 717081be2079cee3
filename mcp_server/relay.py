"""The companion: carries MCP messages between cursor-agent's stdio and the agent socket; it understands none of them.

It runs inside the sandbox, once per turn, as `python3 -I -S relay.py`, so it may import only what costs nothing and needs
nothing installed. When the daemon restarts it connects again, repeats the handshake and what wasn't answered, with the
same ids; when the daemon stays away it answers each request with an MCP error that says so.
"""

from __future__ import annotations

import _socket
import posix
import select
import sys
import time

RETRY_SECONDS = 30.0
"""How long requests wait for a daemon that is away; cursor-agent gives a call 60 s."""
MAX_LINE = 4 * 1024 * 1024
"""What the daemon takes; a longer request is answered here, because saying it again and again would never help."""
GOODBYE_SECONDS = 1.5
"""How long answers may still come after the client has closed its side; cursor-agent waits 2 s before it signals."""
_MAX_HELD = 32 * 1024 * 1024
_CHUNK = 65536
_SERVER_GONE = -32000
_QUOTE = 0x22
_BACKSLASH = 0x5C


class Relay:
    """One conversation: what came in from the client, what still waits for an answer.

    Args:
        path: the agent socket.
    """

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.server: _socket.socket | None = None
        self.from_client = b""
        self.from_server = b""
        self.handshake: list[tuple[bytes | None, bytes]] = []
        self.unanswered: dict[bytes, bytes] = {}
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

    def patience(self) -> float | None:
        """Say how long to wait for something to be readable: not for ever when the daemon or the client is away."""
        if self.server is None:
            return 0.05
        return None if self.leave_at is None else max(0.0, self.leave_at - time.monotonic())

    def connect(self) -> None:
        """Connect to the daemon and say again what it has to know."""
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
        # The client has had the answers to these, so their second answers are for nobody.
        repeated = [(key, line) for key, line in self.handshake if key is None or key not in self.unanswered]
        self.answered_before = {key for key, _ in repeated if key is not None}
        hello = b'{"substrat":"companion","version":1,"relay":"' + self.name.encode() + b'"}\n'
        self.to_server(hello + b"".join(line for _, line in repeated) + b"".join(self.unanswered.values()))

    def read_client(self) -> None:
        """Pass on what the client wrote."""
        data = posix.read(0, _CHUNK)
        if not data:
            self.leave_at = time.monotonic() + GOODBYE_SECONDS
            return
        lines = (self.from_client + data).split(b"\n")
        self.from_client = lines.pop()
        if len(self.from_client) > _MAX_HELD:
            raise SystemExit("substrat-mcp-server: a message is longer than 32 MiB")
        for line in lines:
            if line.strip():
                self.take_client_line(line + b"\n")

    def take_client_line(self, line: bytes) -> None:
        """Remember what must be said again after a reconnection, and pass the line on."""
        method = member(line, b'"method"')
        key = member(line, b'"id"') if method is not None else None
        if len(line) > MAX_LINE:
            if key is not None:
                answer_error(key, b"this call is longer than 4 MiB: put the text into a file and send its name")
            return
        if method in {b'"initialize"', b'"notifications/initialized"'}:
            self.handshake.append((key, line))
        if key is not None:
            self.unanswered[key] = line
        self.to_server(line)

    def to_server(self, data: bytes) -> None:
        """Write to the daemon if it is there."""
        if self.server is None:
            return
        try:
            self.server.sendall(data)
        except OSError:
            self.lose_server()

    def read_server(self) -> None:
        """Pass on what the daemon wrote, except a second answer to the handshake."""
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
            key = member(line, b'"id"') if member(line, b'"method"') is None else None
            if key is not None and key in self.answered_before:
                self.answered_before.discard(key)
                continue
            if key is not None:
                self.unanswered.pop(key, None)
            write_all(line + b"\n")

    def lose_server(self) -> None:
        """Note that the daemon is away."""
        if self.server is not None:
            self.server.close()
        self.server = None
        self.away_since = time.monotonic()

    def give_up_if_away(self) -> None:
        """Answer what waits with an error when the daemon has been away for too long."""
        if self.away_since is None or time.monotonic() - self.away_since < RETRY_SECONDS:
            return
        text = b"substratd is not running, so this tool can't answer; go on without it and try again later"
        for key in list(self.unanswered):
            del self.unanswered[key]
            answer_error(key, text)


def member(line: bytes, name: bytes) -> bytes | None:
    """Return the value of a message's top-level member as its JSON text, up to its end or the line's.

    Args:
        line: one JSON object.
        name: the member's name, with its quotes. The message is read only as far as that needs.
    """
    depth = 0
    at = 0
    while at < len(line):
        char = line[at]
        if char == _QUOTE:
            end = string_end(line, at)
            if depth == 1 and line[at:end] == name:
                colon = after_space(line, end)
                if line[colon : colon + 1] == b":":
                    return scalar(line, after_space(line, colon + 1))
            at = end
            continue
        if char in b"{[":
            depth += 1
        elif char in b"}]":
            depth -= 1
        at += 1
    return None


def after_space(line: bytes, at: int) -> int:
    """Return the offset of what follows an offset and is no white space."""
    while at < len(line) and line[at] in b" \t\r\n":
        at += 1
    return at


def scalar(line: bytes, at: int) -> bytes | None:
    """Return the string or number that stands at an offset; None for `null`."""
    if line[at : at + 1] == b'"':
        return line[at : string_end(line, at)]
    end = at
    while end < len(line) and line[end] not in b",} \t\r\n":
        end += 1
    return None if line[at:end] == b"null" else line[at:end]


def string_end(line: bytes, at: int) -> int:
    """Return the offset after the JSON string that begins at an offset."""
    end = at
    while True:
        end = line.find(b'"', end + 1)
        if end < 0:
            return len(line)
        slashes = end - 1
        while line[slashes] == _BACKSLASH:
            slashes -= 1
        if (end - slashes) % 2:
            return end + 1


def answer_error(key: bytes, text: bytes) -> None:
    """Answer a request with an error of our own."""
    error = b'"error":{"code":%d,"message":"%b"}' % (_SERVER_GONE, text)
    write_all(b'{"jsonrpc":"2.0","id":%b,%b}\n' % (key, error))


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
    except BrokenPipeError:  # the client is gone, so there is nobody to tell
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
