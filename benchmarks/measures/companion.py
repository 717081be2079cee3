"""Measures the companion and the calls that go through it, beside a minimal stdio server made with the official SDK.

- *exec to tools/list*: from starting the process until `tools/list` is answered, with the handshake sent at once. The
  companion is answered by the daemon, the other server answers by itself. Both are started in turns.
- *memory*: resident memory of the two, each after a handshake.
- *tool call*: from writing a `tools/call` of `whoami` to reading its result, the median of 500. The companion's goes to
  the daemon and back; the SDK server's stays in its own process.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from harness import PATIENCE_S, Figure, FigureFailed, Wire, daemon, paired, rss_mib, wait_end

from substrat.daemon.sandboxes.program import find_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START, MEMORY, CALL = "companion: exec to tools/list", "companion: memory", "tool call, p50"
NAMES = (START, MEMORY, CALL)
SECONDS = 60.0  # for nine starts of each server and 500 calls; groups' limits are far above their usual times

RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "mcp_server", "relay.py")
_HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
)
_SDK_SERVER = """
import anyio, mcp_types as t
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
async def tools(c, p): return t.ListToolsResult(tools=[t.Tool(name="whoami", input_schema={"type": "object"})])
async def call(c, p): return t.CallToolResult(content=[t.TextContent(type="text", text="me")])
async def main():
    s = Server("bench", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (r, w): await s.run(r, w, s.create_initialization_options())
anyio.run(main)
"""


class _Server:
    """An MCP server on stdio, driven by hand.

    Args:
        name: its name in sentences.
        command: the command that starts it.
        environ: its environment.
    """

    def __init__(self, name: str, command: list[str], environ: dict[str, str]) -> None:
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        self._unread = b""
        self._poll = select.poll()
        assert self.process.stdout is not None
        self._poll.register(self.process.stdout, select.POLLIN)

    def shake_hands(self) -> None:
        """Begin the conversation, up to the list of tools."""
        self._write(_HANDSHAKE)
        self._until(1)

    def call(self, number: int) -> float:
        """Call a tool; returns the seconds until its result."""
        began = time.perf_counter()
        params = '"params":{"name":"whoami","arguments":{}}'
        self._write(f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call",{params}}}\n'.encode())
        answer = self._until(number)
        took = time.perf_counter() - began
        if "error" in answer or answer["result"].get("isError"):
            raise FigureFailed(f"{self.name} refused a tool call: {json.dumps(answer)[:300]}")
        return took

    def close(self) -> None:
        """End the server by closing its standard input."""
        self.process.stdin.close()
        wait_end(self.process, self.name)
        self.process.stdout.close()

    def _until(self, number: int) -> dict:
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if not newline:
                if not self._poll.poll(PATIENCE_S * 1000):
                    raise FigureFailed(f"{self.name} hasn't answered within {PATIENCE_S:g} s")
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise FigureFailed(f"{self.name} ended with {self.process.wait(PATIENCE_S)} instead of answering")
                self._unread += data
                continue
            self._unread = rest
            message = json.loads(line)
            if message.get("id") == number:
                return message

    def _write(self, data: bytes) -> None:
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise FigureFailed(f"{self.name} ended with {self.process.wait(PATIENCE_S)} instead of reading") from None


def measure() -> Iterator[Figure]:
    """Take the companion's figures."""
    with daemon() as running:
        wire = Wire(running.socket)
        wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="/tool whoami {}\n/sleep 600")
        _wait_for_event(wire, "tool-call-completed")
        agent = wire.call("agent.show", agent="a")
        socket_path = f"{running.root}/run/agents/{agent['id']}/agent.sock"

        def ours() -> _Server:
            command = [find_python()[0], "-I", "-S", RELAY]
            return _Server("the companion", command, {"SUBSTRAT_SOCKET": socket_path, "PATH": "/usr/bin"})

        def theirs() -> _Server:
            return _Server("the SDK server", [sys.executable, "-c", _SDK_SERVER], dict(os.environ))

        start, floor = paired(lambda: _to_tools(ours), lambda: _to_tools(theirs), 9)
        yield Figure(
            START, f"{start:.1f} ms, {floor / start:.0f} times faster", f"{floor:.0f} ms", "50 times faster",
            met=floor / start >= 50,
        )  # fmt: skip
        servers = [ours(), theirs()]
        for server in servers:
            server.shake_hands()
        sizes = [rss_mib(server.process.pid) for server in servers]
        yield Figure(MEMORY, f"{sizes[0]:.1f} MiB", f"{sizes[1]:.0f} MiB", "< 10 MiB", met=sizes[0] < 10)
        calls: tuple[list[float], list[float]] = ([], [])
        for number in range(10, 510):
            for server, taken in zip(servers, calls, strict=True):
                taken.append(server.call(number))
        call, floor = (statistics.median(taken) * 1000 for taken in calls)
        for server in servers:
            server.close()
        yield Figure(
            CALL, f"{call:.2f} ms, {call / floor:.2f} of floor", f"{floor:.2f} ms", "0.5 of floor", met=call <= floor / 2
        )
        wire.close()


def _to_tools(start: Callable[[], _Server]) -> float:
    began = time.perf_counter()
    server = start()
    server.shake_hands()
    took = time.perf_counter() - began
    server.close()
    return took


def _wait_for_event(wire: Wire, kind: str) -> None:
    subscription = wire.call("events.subscribe", since=0)["subscription"]
    while wire.read(f"an event {kind}").get("params", {}).get("event", {}).get("kind") != kind:
        pass
    wire.call("events.unsubscribe", subscription=subscription)
