"""Measures the page's server.

- *first byte*: from connecting until the first byte of the page has come; the floor is a bare exchange with a socket of
  this machine's that answers at once.
- *event to a browser*: 200 lines of one agent, one every 10 ms, from the agent's clock just before it writes a line to that
  of a reader of server-sent events; the floor is a subscriber of the operator socket in the same run.
- *200 clients*: the same for 50 lines, one every 100 ms, sent to 200 readers at once, until the last one has the line.
- *processor time*: 100 readers of server-sent events and 100 of WebSockets are sent 2,000 lines, about 1,000 a second; the
  server's processor time for each line and reader. The floor is a bare send(2) of such an event, in the same run.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from harness import PATIENCE_S, Figure, FigureFailed, Wire, cpu_seconds, daemon, finish, program, wait_readable

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, EVENT, MANY = "page: first byte, p50", "event: written to browser, p50", "event to 200 browsers, the last one, p50"
COST = "page: processor time for an event and reader, 200 readers"
NAMES = (FIRST, EVENT, MANY, COST)
SECONDS = 60.0
_ASKED = 50
_CLIENTS = 200
_FAST = 2000
_MARK = b'"type":"bench"'
_UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
_TICKER = """#!/usr/bin/python3
import sys, time
count, pause = sys.stdin.read().split()[-2:]
for n in range(int(count)):
    print('{"type":"bench","at":%f}' % time.time(), flush=True)
    time.sleep(float(pause))
print('{"type":"result","subtype":"success","result":"x"}', flush=True)
"""


class _Web(NamedTuple):
    """A running server."""

    pid: int
    port: int
    token: str

    def connect(self, path: str, accept: str = "*/*", further: str = "") -> socket.socket:
        """Send a GET, with further lines of its head, and return the connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
        connection.sendall(f"{head}Accept: {accept}\r\n{further}\r\n".encode())
        return connection


@contextmanager
def _web(operator: str) -> Iterator[_Web]:
    environment = {**os.environ, "SUBSTRAT_SOCKET": operator}
    command = [os.path.join(os.path.dirname(sys.executable), "substratctl"), "web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            wait_readable(process.stdout.fileno(), "the page's address")
            port = int(process.stdout.readline().decode().rpartition(":")[2].strip("/\n") or 0)
            with open(os.path.join(os.path.dirname(operator), "web.token"), encoding="ascii") as file:
                yield _Web(process.pid, port, file.read().strip())
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def measure() -> Iterator[Figure]:
    """Take the figures."""
    with program(_TICKER) as agent, daemon(agent) as running, _web(running.socket) as web:
        took, floor = _first_bytes(web)
        yield Figure(FIRST, f"{took:.1f} ms", f"a bare exchange {floor:.1f} ms", "< 10 ms", met=took < 10)
        wire = Wire(running.socket)
        wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a")
        (browser,), subscriber = _delays(wire, web, running.socket, 1, "200 0.01")
        met = browser < subscriber + 20
        yield Figure(EVENT, f"{browser:.1f} ms", f"socket {subscriber:.1f} ms", "< floor + 20 ms", met=met)
        delays, subscriber = _delays(wire, web, running.socket, _CLIENTS, "50 0.1")
        last = max(delays)
        yield Figure(MANY, f"{last:.0f} ms", f"socket {subscriber:.1f} ms", "< 200 ms", met=last < 200)
        cost, floor = _cost(wire, web)
        yield Figure(
            COST, f"{cost:.2f} µs", f"a send of its bytes {floor:.2f} µs", "< 5 µs: 1,000 events/s in a core", met=cost < 5
        )
        finish(wire, ["a"])
        wire.close()


def _first_bytes(web: _Web) -> tuple[float, float]:
    """Return the median times until the first byte of the page and of a bare answer, in ms."""
    with socket.create_server(("127.0.0.1", 0)) as bare:

        def serve() -> None:
            for _ in range(_ASKED):
                connection, _ = bare.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"x")

        serving = threading.Thread(target=serve)
        serving.start()
        ours: list[float] = []
        floors: list[float] = []
        for _ in range(_ASKED):
            for port, found in ((web.port, ours), (bare.getsockname()[1], floors)):
                began = time.perf_counter()
                with web._replace(port=port).connect("/") as connection:
                    connection.recv(1)
                found.append((time.perf_counter() - began) * 1000)
        serving.join()
    return median(ours), median(floors)


def _delays(wire: Wire, web: _Web, operator: str, clients: int, script: str) -> tuple[list[float], float]:
    """Return the median delay of each client, and that of a subscriber of the operator socket, in ms.

    Raises:
        FigureFailed: lines are missing.
    """
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        subscriber = Wire(operator)
        subscriber.call("events.subscribe")
        readers = [opened.enter_context(web.connect("/api/v1/events", "text/event-stream")) for _ in range(clients)]
        for reader in readers:
            reader.recv(65536)  # the head: it has subscribed
        wire.call("agent.send", agent="a", prompt=script)
        heard: dict[int, list[float]] = {reader.fileno(): [] for reader in readers}
        rests = dict.fromkeys(heard, b"")
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        own: list[float] = []
        reading = threading.Thread(target=_read, args=(subscriber, own))
        reading.start()
        open_readers, deadline = set(heard), time.monotonic() + PATIENCE_S
        while open_readers:
            if time.monotonic() > deadline:
                raise FigureFailed(f"{len(open_readers)} of {clients} clients haven't heard of the turn's end")
            for key, _ in selector.select(1.0):
                now = time.time()
                *lines, rests[key.fd] = (rests[key.fd] + os.read(key.fd, 1 << 16)).split(b"\n")
                for line in lines:
                    if b'"type":"bench"' in line:
                        heard[key.fd].append((now - _written(line)) * 1000)
                    elif b'"kind":"turn:ended"' in line:
                        open_readers.discard(key.fd)
        reading.join()
        subscriber.close()
    count = int(script.split(maxsplit=1)[0])
    if missing := [found for found in (*heard.values(), own) if len(found) != count]:
        raise FigureFailed(f"{len(missing[0])} of {count} lines came as events")
    return [median(found) for found in heard.values()], median(own)


def _cost(wire: Wire, web: _Web) -> tuple[float, float]:
    """Return the server's processor time for an event and reader, and that of a bare send, in µs.

    Raises:
        FigureFailed: lines are missing, or the readers haven't heard of all.
    """
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        events = [web.connect("/api/v1/events", "text/event-stream") for _ in range(_CLIENTS // 2)]
        messages = [web.connect("/api/v1/stream?gathered=true", further=_UPGRADE) for _ in range(_CLIENTS // 2)]
        for reader in (*events, *messages):
            opened.enter_context(reader)
            reader.recv(65536)  # the head: it has subscribed
            selector.register(reader, selectors.EVENT_READ)
        heard, rests = dict.fromkeys(selector.get_map(), 0), dict.fromkeys(selector.get_map(), b"")
        before, deadline = cpu_seconds(web.pid), time.monotonic() + PATIENCE_S
        wire.call("agent.send", agent="a", prompt=f"{_FAST} 0.001")
        while min(heard.values()) < _FAST:
            if time.monotonic() > deadline:
                raise FigureFailed(f"a client has heard of {min(heard.values())} of {_FAST} lines")
            for key, _ in selector.select(1.0):
                data = rests[key.fd] + os.read(key.fd, 1 << 18)
                heard[key.fd] += data.count(_MARK)
                rests[key.fd] = data[1 - len(_MARK) :]
        used = cpu_seconds(web.pid) - before
        if max(heard.values()) > _FAST:
            raise FigureFailed(f"a client has heard of {max(heard.values())} of {_FAST} lines")
    page = wire.call("events.read", since=-2, limit=1)
    return used / _FAST / _CLIENTS * 1e6, _bare_send(json.dumps(page["events"][0]).encode())


def _bare_send(data: bytes) -> float:
    """Return the processor time of a send to a connection of the loopback whose other end reads, in µs."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sending:
        receiving, used = server.accept()[0], 0.0
        with receiving:
            for _ in range(200):
                began = time.process_time()
                for _ in range(50):
                    sending.send(data)
                used += time.process_time() - began
                receiving.recv(50 * len(data), socket.MSG_WAITALL)
    return used / 200 / 50 * 1e6


def _read(wire: Wire, delays: list[float]) -> None:
    """Read the lines of a subscription until the turn's end."""
    while True:
        event = wire.read("an event").get("params", {}).get("event", {})
        if event.get("kind") == "turn:ended":
            return
        if "at" in (event.get("raw") or {}):
            delays.append((time.time() - event["raw"]["at"]) * 1000)


def _written(line: bytes) -> float:
    return float(json.loads(line.removeprefix(b"data: ").strip())["raw"]["at"])
