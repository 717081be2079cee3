"""The proxy form's relay: a program of its own, run by path with `python -I -S` inside a sandbox; imports nothing of ours.

`netrelay.py PORT SOCKET PROGRAM ARGUMENTS…` listens at PORT of the sandbox's loopback, leaves a process behind that takes
each connection to the Unix socket SOCKET, and becomes PROGRAM, which keeps the pid and has no child it doesn't know. The
daemon listens at SOCKET and decides. While no daemon does, connections are reset.

The process left behind is the sandbox's first process's child, in a session of its own, and ends with the program. It moves
bytes in the kernel, holds nothing of the sandbox's open, and understands nothing of the bytes. It runs as the agent,
so the agent may kill it, and has no network then.

It stands before each turn's start, so it imports only small C modules; written for Python 3.10 (os.splice) and newer.
"""

import _signal  # type: ignore[import-not-found]  # signal itself takes a while to import
import _socket
import posix
import select
import sys
import time

LISTENING_AT = "127.0.0.1"
PORT = 61280
"""Where programs find it: above the ports of services and of outgoing connections (ip_local_port_range)."""
REFUSED = 125
"""The exit status when there is no network to be had; 126 and 127 are the shell's."""
BACKLOG = 128
"""Connections that the kernel holds until they are accepted, which takes the relay less than a millisecond."""
MOST = 512
"""Connections at once; further ones wait unaccepted. The daemon takes fewer, and tells of those that it refuses."""

_CHUNK = 1 << 20
"""Bytes moved at once: the size of a pipe that an ordinary user may have (pipe(7))."""
_CLOEXEC = posix.O_CLOEXEC | posix.O_NONBLOCK
_LINGER_NOT = (1).to_bytes(4, sys.byteorder) + bytes(4)
_SPARE_PIPES = 4
"""Pipes kept for the next bytes; each takes two descriptors."""
_HIGHEST = 1 << 20
"""Above every descriptor that a process may have by default (fs.nr_open)."""
_GONE = select.EPOLLHUP | select.EPOLLERR
_SPLICE = posix.SPLICE_F_MOVE | posix.SPLICE_F_NONBLOCK
_NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError)
_WEARY_SECONDS = 0.05
"""A pause while descriptors are used up: connections end meanwhile, and the relay doesn't spin."""


def main(arguments: list[str]) -> int:
    """Leave the relay behind and become the program; on failure print one line to stderr and return `REFUSED`."""
    port, path, *program = arguments
    try:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        listener.bind((LISTENING_AT, int(port)))
        listener.listen(BACKLOG)
        leave_behind(listener, path.encode())
    except OSError as problem:
        posix.write(2, f"substrat: no filtered network: relay: {problem.strerror}\n".encode())
        return REFUSED
    # Python ignores these, and an ignored signal stays ignored in the program (execve(2)).
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    found = become(program)
    posix.write(2, f"substrat: failed to execute {program[0]}: {found.strerror}\n".encode())
    return 127 if isinstance(found, _NO_SUCH_FILE) else 126


def become(program: list[str]) -> OSError:
    """Execute a program, looked for on PATH if it is named without a directory; returns why it can't be.

    The listener and the pidfd are closed by this: Python makes them so (PEP 446).
    """
    path = posix.environ.get(b"PATH", b"").decode(errors="surrogateescape")
    places = [""] if "/" in program[0] else [place + "/" for place in path.split(":") if place]
    found: OSError = FileNotFoundError(2, "No such file or directory")
    for place in places:
        try:
            posix.execv(place + program[0], program)
        except OSError as problem:
            # Of several places the one that has it and can't execute it is worth telling.
            if not isinstance(problem, _NO_SUCH_FILE) or len(places) == 1:
                found = problem
    return found


def leave_behind(listener: _socket.socket, path: bytes) -> None:
    """Fork the relay by way of a process that ends at once, so that it isn't the program's child."""
    program = posix.pidfd_open(posix.getpid())
    between = posix.fork()
    if between:
        posix.waitpid(between, 0)
        posix.close(program)
        return
    # From here on nothing may come back to `main`, which would execute the program a second time.
    try:
        posix.setsid()
        if posix.fork() == 0:
            let_go({listener.fileno(), program})
            SocketRelay(listener, path, program).run()
    finally:
        posix._exit(0)  # noqa: SLF001 - its name in `os` too


def let_go(kept: set[int]) -> None:
    """Close everything but some descriptors, and leave the directory and the standard descriptors to the program."""
    low = 0
    for descriptor in (*sorted(kept), _HIGHEST):
        posix.closerange(low, descriptor)
        low = descriptor + 1
    for number in range(3):
        if number not in kept:
            posix.open("/dev/null", posix.O_RDWR)
    posix.chdir("/")


class Side:
    """One end of a connection: the socket, and the bytes read from it and not yet written to the other end."""

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.number = sock.fileno()
        self.other: Side | None = None
        self.pipe: tuple[int, int] | None = None
        self.held = 0
        self.has_said_all = False
        self.is_over = False
        self.watched = -1  # the events it is registered for; -1: for none, not even for its end


class SocketRelay:
    """Carries connections until the program has ended.

    Args:
        listener: where they come in.
        path: the Unix socket they are taken to.
        program: a pidfd of the program.
    """

    def __init__(self, listener: _socket.socket, path: bytes, program: int) -> None:
        self.listener = listener
        self.path = path
        self.program = program
        self.poll = select.epoll()
        self.sides: dict[int, Side] = {}
        self.pipes: list[tuple[int, int]] = []
        self.is_accepting = False

    def run(self) -> None:
        """Carry connections until the program has ended."""
        self.poll.register(self.program, select.EPOLLIN)
        while True:
            self.accept_while_there_is_room()
            for number, events in self.poll.poll():
                if number == self.program:
                    return
                if number == self.listener.fileno():
                    self.accept()
                elif number in self.sides:  # else its connection has ended in this round
                    self.serve(self.sides[number], events)

    def accept_while_there_is_room(self) -> None:
        """Look at the listener only while there may be another connection."""
        wanted = len(self.sides) < 2 * MOST
        if wanted != self.is_accepting:
            self.is_accepting = wanted
            if wanted:
                self.poll.register(self.listener.fileno(), select.EPOLLIN)
            else:
                self.poll.unregister(self.listener.fileno())

    def accept(self) -> None:
        """Take one connection to the daemon; without one it is reset."""
        try:
            descriptor, _ = self.listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - socket's own accept
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            # Descriptors are used up; the connection waits, and would wake us all the time.
            time.sleep(_WEARY_SECONDS)
            return
        inner = _socket.socket(fileno=descriptor)
        try:
            outer = self.connect()
            inner.setblocking(False)
            inner.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError:
            reset(inner)
            return
        sides = Side(inner), Side(outer)
        for side, other in (sides, sides[::-1]):
            side.other = other
            self.sides[side.number] = side
            self.watch(side)

    def connect(self) -> _socket.socket:
        """Connect to the daemon; one that is away, or has more waiting than it takes, is refused at once."""
        outer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        try:
            outer.connect(self.path)
        except OSError:
            outer.close()
            raise
        return outer

    def serve(self, side: Side, events: int) -> None:
        """Move all ready bytes from and to one end; a broken one ends the connection."""
        other = side.other
        assert other is not None
        try:
            if other.held:
                self.write(other)
            if not side.held:
                if not side.has_said_all:
                    self.read(side)
                # Gone while it could still be told something: it was cut off, which must not look like an end.
                if side.has_said_all and events & _GONE and not other.has_said_all:
                    raise ConnectionResetError
                self.pass_on_end(side)
        except OSError:
            self.end(side, other)
            return
        if side.has_said_all and other.has_said_all and not side.held and not other.held:
            self.end(side, other, all_said=True)
            return
        self.watch(side)
        self.watch(other)

    def read(self, side: Side) -> None:
        """Take the bytes of one end into a pipe, and pass them on."""
        if side.pipe is None:
            side.pipe = self.pipes.pop() if self.pipes else posix.pipe2(_CLOEXEC)
        try:
            side.held = posix.splice(side.number, side.pipe[1], _CHUNK, flags=_SPLICE)
        except BlockingIOError:
            self.give_back(side)
            return
        side.has_said_all = side.held == 0
        self.write(side)

    def write(self, side: Side) -> None:
        """Pass on the bytes of one end, as far as the other takes them."""
        assert side.other is not None
        assert side.pipe is not None
        try:
            while side.held:
                side.held -= posix.splice(side.pipe[0], side.other.number, side.held, flags=_SPLICE)
        except BlockingIOError:
            return
        self.give_back(side)

    def pass_on_end(self, side: Side) -> None:
        """Tell the other end, once, that there is nothing more to come."""
        assert side.other is not None
        if side.has_said_all and not side.is_over:
            side.is_over = True
            side.other.sock.shutdown(_socket.SHUT_WR)

    def give_back(self, side: Side) -> None:
        """Keep the pipe for others; one that isn't empty is closed."""
        if side.pipe is None:
            return
        if side.held == 0 and len(self.pipes) < _SPARE_PIPES:
            self.pipes.append(side.pipe)
        else:
            for descriptor in side.pipe:
                posix.close(descriptor)
        side.pipe = None

    def watch(self, side: Side) -> None:
        """Wait until an end is ready; one that has nothing to do isn't watched: its end would be reported all the time."""
        assert side.other is not None
        wanted = 0
        if not side.held and not side.has_said_all:
            wanted |= select.EPOLLIN
        if side.other.held:
            wanted |= select.EPOLLOUT
        if wanted == 0 and side.held:
            wanted = -1
        if wanted == side.watched:
            return
        if wanted == -1:
            self.poll.unregister(side.number)
        elif side.watched == -1:
            self.poll.register(side.number, wanted)
        else:
            self.poll.modify(side.number, wanted)
        side.watched = wanted

    def end(self, side: Side, other: Side, *, all_said: bool = False) -> None:
        """End a connection; one that is cut short is reset, so that no program takes it for whole."""
        for one in (side, other):
            self.sides.pop(one.number)
            self.give_back(one)
            if all_said:
                one.sock.close()
            else:
                reset(one.sock)


def reset(sock: _socket.socket) -> None:
    """Close a socket so that its other end learns that it was cut off."""
    sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _LINGER_NOT)
    sock.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
