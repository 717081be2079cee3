"""The hook that claude and codex run after each tool call: it hands over the words that wait for the agent.

It runs inside the sandbox as `python3 -I -S hook.py SOCKET EVENT`, and imports what is built into Python or nearly so. It
asks the daemon over the agent socket, prints the words in the form that both programs read, and tells the daemon so. The
daemon forgets the words only then: if either of them dies in between, they come twice rather than never.
"""

import _socket
import posix
import sys

HELLO = b'{"substrat": "hook"}'
"""Its first line: no companion and no client of MCP begins so."""
GIVEN = b"given"
"""Its second line, when the words are printed."""
_PATIENCE = 2.0
"""Seconds for each step: the turn waits meanwhile."""
_FORM = b'{"hookSpecificOutput":{"hookEventName":"%b","additionalContext":%b}}\n'


def hand_over(path: str, event: str) -> None:
    """Print what waits, if anything does.

    Args:
        path: the agent socket.
        event: the hook's own event, such as `PostToolUse`.
    """
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.settimeout(_PATIENCE)
    server.connect(path)
    server.sendall(HELLO + b"\n")
    words = b""
    while not words.endswith(b"\n"):
        part = server.recv(65536)
        if not part:
            return
        words += part
    if words.strip():
        output = _FORM % (event.encode(), words.strip())
        while output:
            output = output[posix.write(1, output) :]
        server.sendall(GIVEN + b"\n")


if __name__ == "__main__":
    try:
        hand_over(sys.argv[1], sys.argv[2])
    except OSError:
        sys.exit(0)  # The daemon is away: the words wait, and the turn must not suffer.
