"""Runs a client of the benchmarks as a process of its own: `clients.py KIND SOCKET [COUNT]`.

Each prints `begun` when it has begun, goes on until its standard input is closed, and then prints its result:

- `prober` asks for the list of agents every 10 ms; it prints the longest wait for an answer, in seconds.
- `followers` subscribes COUNT times, on a connection each; it prints how many events came, and within how many seconds.
"""

from __future__ import annotations

import os
import select
import sys
import time

from harness import FigureFailed, Wire


def main(kind: str, path: str, count: str = "1") -> None:
    """Run a client until standard input is closed."""
    if kind == "prober":
        probe(path)
    else:
        follow(path, int(count))


def probe(path: str) -> None:
    """Ask again and again."""
    wire, longest = Wire(path), 0.0
    stop = select.poll()
    stop.register(0, select.POLLIN | select.POLLHUP)
    print("begun", flush=True)
    while not stop.poll(10):
        began = time.perf_counter()
        wire.call("agent.list")
        longest = max(longest, time.perf_counter() - began)
    print(longest)


def follow(path: str, count: int) -> None:
    """Receive every event on many connections at once, undecoded, so that this process isn't the bottleneck."""
    wires = [Wire(path) for _ in range(count)]
    for wire in wires:
        wire.call("events.subscribe")
        wire.socket.setblocking(False)
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    for wire in wires:
        poll.register(wire.socket, select.EPOLLIN)
    buffer, events = bytearray(1 << 20), 0
    print("begun", flush=True)
    began, ends = time.perf_counter(), False
    while not ends:
        for descriptor, _ in poll.poll():
            ends = ends or descriptor == 0
            if descriptor:
                size = os.readv(descriptor, [buffer])
                if not size:
                    raise FigureFailed("the daemon closed a follower's connection")
                events += buffer.count(b"\n", 0, size)
    print(events, time.perf_counter() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
