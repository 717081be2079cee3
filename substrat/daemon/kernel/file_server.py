"""The other end of `files`: a process that forks file workers, and the workers, which call functions for the daemon.

It is forked before the daemon has threads, locks or sockets, so a worker that the kernel holds up has none of them. A
message is its length, the number of descriptors that follow it, and that many bytes of pickle; both ends are the same
program.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = struct.Struct("=QI")
"""Of a message: how many bytes it has, and how many descriptors come after it."""
MOST_AT_ONCE = 253
"""Descriptors that the kernel sends with one byte (`SCM_MAX_FD`)."""
NAME = "substrat-files"
"""The name of the server and its workers in a list of processes (`/proc/PID/comm`, at most 15 bytes)."""
MARK = b"d"
"""The byte that descriptors come with."""
_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def start() -> socket.socket:
    """Fork the server, and return the connection to it; it ends with this connection.

    To be called before there are threads, and before anything is open that the daemon's end must close.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    try:
        ours.close()
        with open("/proc/self/comm", "w", encoding="ascii") as name:
            name.write(NAME)
        serve(theirs)
    finally:
        os._exit(0)


def ask_for_worker(server: socket.socket) -> socket.socket:
    """Have a worker forked, and return the connection to it; its first message is its pid, packed as a HEAD's length."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        try:
            socket.send_fds(server, [MARK], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
    return ours


def serve(daemon: socket.socket) -> None:
    """Fork a worker whenever the daemon asks for one, until it closes the connection."""
    # Those of a terminal or of systemd are the daemon's: it waits for its workers at its own end.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers
    while True:
        asked, received, _, _ = socket.recv_fds(daemon, len(MARK), 1)
        if not asked:
            return
        with socket.socket(fileno=received[0]) as connection:
            if os.fork() == 0:
                daemon.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _work(connection)
                return


def _work(connection: socket.socket) -> None:
    """Call one function after the other, until the daemon closes the connection."""
    connection.sendall(HEAD.pack(os.getpid(), 0))
    while head := _exactly(connection, HEAD.size):
        length, count = HEAD.unpack(head)
        function, arguments, opens = pickle.loads(_exactly(connection, length))  # noqa: S301 - the daemon's own words
        given = socket.recv_fds(connection, len(MARK), count)[1] if count else []
        opened: tuple[int, ...] = ()
        try:
            answer = function(*arguments, *given)
            opened = answer if opens else ()
            data = pickle.dumps((None if opens else answer, None))
        except Exception as problem:
            data = pickle.dumps((None, problem))
        try:
            connection.sendall(HEAD.pack(len(data), len(opened)) + data)
            for some in batches(opened):
                socket.send_fds(connection, [MARK], some)
        except BrokenPipeError:
            return  # nobody waits for it any more
        finally:
            for descriptor in (*opened, *given):
                os.close(descriptor)


def batches(descriptors: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Divide descriptors into as many as are sent at once."""
    for first in range(0, len(descriptors), MOST_AT_ONCE):
        yield descriptors[first : first + MOST_AT_ONCE]


def _exactly(connection: socket.socket, length: int) -> bytes:
    """Read so many bytes; none where the other end has closed the connection."""
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)
