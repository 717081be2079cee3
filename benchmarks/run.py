"""Measures speed and size and prints each figure beside a floor measured in the same run; `make bench`."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from harness import BIN, Figure, Wire, best, cpu_seconds, daemon, rss_mib, timed

HERE = os.path.dirname(os.path.abspath(__file__))
RELAY = os.path.join(os.path.dirname(HERE), "mcp_server", "relay.py")
HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
)
SDK_SERVER = """
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


class Server:
    """An MCP server on stdio, driven by hand."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)

    def until(self, number: int) -> None:
        while json.loads(self.process.stdout.readline()).get("id") != number:
            pass

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def call(self, number: int) -> float:
        began = time.perf_counter()
        params = '"params":{"name":"whoami","arguments":{}}'
        self.write(f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call",{params}}}\n'.encode())
        self.until(number)
        return time.perf_counter() - began

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def to_tools(command: list[str], environ: dict[str, str]) -> float:
    began = time.perf_counter()
    server = Server(command, environ)
    server.write(HANDSHAKE)
    server.until(1)
    took = time.perf_counter() - began
    server.close()
    return took


def mcp_figures() -> list[Figure]:
    with daemon() as running:
        wire = Wire(running.socket)
        wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="/tool whoami {}\n/sleep 600")
        agent = wire.call("agent.show", agent="a")
        door = f"{running.root}/run/agents/{agent['id']}/agent.sock"
        environ = {"SUBSTRAT_SOCKET": door, "PATH": "/usr/bin"}
        companion = ["/usr/bin/python3", "-I", "-S", RELAY]
        plain = [sys.executable, "-c", SDK_SERVER]
        wait_for_event(wire, "tool-call-completed")
        ours = best(lambda: to_tools(companion, environ))
        theirs = best(lambda: to_tools(plain, dict(os.environ)), 5)
        relay, sdk = Server(companion, environ), Server(plain, dict(os.environ))
        for server in (relay, sdk):
            server.write(HANDSHAKE)
            server.until(1)
        calls = [statistics.median(server.call(n) for n in range(10, 510)) * 1000 for server in (relay, sdk)]
        sizes = [rss_mib(server.process.pid) for server in (relay, sdk)]
        for server in (relay, sdk):
            server.close()
        wire.close()
    return [
        Figure(
            "companion: exec to tools/list", f"{ours:.0f} ms", f"SDK server {theirs:.0f} ms: {theirs / ours:.0f} x", "25 x"
        ),
        Figure("companion: memory", f"{sizes[0]:.1f} MiB", f"SDK server {sizes[1]:.0f} MiB", "< 12 MiB"),
        Figure("tool call, p50", f"{calls[0]:.2f} ms", f"SDK server itself {calls[1]:.2f} ms", "< 1 ms and < floor"),
    ]


def wait_for_event(wire: Wire, kind: str) -> None:
    cursor = 0
    while True:
        page = wire.call("events.read", since=cursor)
        cursor = page["cursor"]
        if any(event["kind"] == kind for event in page["events"]):
            return


def spawn_figure() -> Figure:
    """From the request to the agent program's first instruction, against bubblewrap alone."""
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as programs:
        mark = os.path.join(programs, "agent")
        with open(mark, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho x >first\n")
        os.chmod(mark, 0o755)
        with daemon(mark) as running:
            wire = Wire(running.socket)
            number = iter(range(1000))
            wire.call("agent.spawn", workspace=f"{running.root}/ws", name="warm", prompt="x")
            wire.call("agent.wait", agents=["warm"])
            explained = wire.call("agent.explain", agent="warm")
            command = ["sh", "-c", f"exec {explained['command']}"]

            def spawn() -> float:
                workspace = f"{running.root}/ws{next(number)}"
                os.mkdir(workspace)
                first = f"{workspace}/first"
                began = time.perf_counter()
                wire.send("agent.spawn", workspace=workspace, prompt="x")
                while not os.path.exists(first):
                    pass
                took = time.perf_counter() - began
                while "id" not in wire.read():
                    pass
                return took

            first = f"{running.root}/ws/first"

            def bare() -> float:
                if os.path.exists(first):
                    os.unlink(first)
                os.makedirs(f"{running.root}/ws/.cursor", exist_ok=True)
                began = time.perf_counter()
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                while not os.path.exists(first):
                    pass
                took = time.perf_counter() - began
                process.wait()
                return took

            os.makedirs(f"{running.root}/run/agents/{wire.call('agent.show', agent='warm')['id']}", exist_ok=True)
            ours, floor = best(spawn), best(bare)
            wire.close()
    return Figure("spawn: request to first instruction", f"{ours:.0f} ms", f"bare bwrap {floor:.0f} ms", "floor + 30 ms")


def ls_figure() -> Figure:
    with daemon() as running:
        environ = {**os.environ, "SUBSTRAT_SOCKET": running.socket}
        ours = best(lambda: timed([f"{BIN}/substratctl", "ls"], env=environ), 30)
    floor = best(lambda: timed([sys.executable, "-I", "-c", "pass"]), 30)
    return Figure(
        "substratctl ls, whole process", f"{ours:.0f} ms", f"python -I -c pass {floor:.0f} ms", "< 60 ms where floor is 15"
    )


def event_figure() -> Figure:
    """From the agent's write to a subscriber's read, by the clock inside the line."""
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as programs:
        agent = os.path.join(programs, "agent")
        with open(agent, "w", encoding="ascii") as file:
            file.write(
                "#!/usr/bin/python3\nimport sys, time\n"
                "for n in range(200):\n"
                '    print(\'{"type":"bench","at":%f}\' % time.time(), flush=True)\n'
                "    time.sleep(0.01)\n"
                'print(\'{"type":"result","subtype":"success","result":"x"}\', flush=True)\n'
            )
        os.chmod(agent, 0o755)
        with daemon(agent) as running:
            wire = Wire(running.socket)
            wire.call("events.subscribe")
            wire.send("agent.spawn", workspace=f"{running.root}/ws", prompt="x")
            delays = []
            while len(delays) < 200:
                message = wire.read()
                now = time.time()
                raw = message.get("params", {}).get("event", {}).get("raw") or {}
                if "at" in raw:
                    delays.append(now - raw["at"])
            wire.close()
    delays.sort()
    return Figure(
        "event: written to read, p50", f"{delays[100] * 1000:.1f} ms", f"p99 {delays[198] * 1000:.1f} ms", "< 5 ms"
    )


BACK_EVENTS = 300_000


def reading_back_figures() -> list[Figure]:
    """Every event of one long turn with a result of 1 MiB, read back page by page, and what others wait meanwhile."""
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as programs:
        agent = os.path.join(programs, "agent")
        with open(agent, "w", encoding="ascii") as file:
            file.write(
                "#!/usr/bin/python3\nimport json\n"
                'line = {"type": "assistant", "timestamp_ms": 1, "message": {"content": [{"type": "text", "text": "words " * 5}]}}\n'
                f"for n in range({BACK_EVENTS}):\n    print(json.dumps(line))\n"
                'print(json.dumps({"type": "result", "subtype": "success", "result": "x" * 2**20}))\n'
            )
        os.chmod(agent, 0o755)
        with daemon(agent) as running:
            wire = Wire(running.socket)
            spawned = wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="x")
            wire.call("agent.wait", agents=["a"])
            # In a process of its own: a thread would wait for this one's decoding, not for the daemon.
            probe = subprocess.Popen([sys.executable, "-c", PROBE, HERE, running.socket], stdout=subprocess.PIPE)
            began, cursor, count = time.perf_counter(), 0, 0
            while (page := wire.call("events.read", since=cursor))["events"]:
                cursor = page["cursor"]
                count += len(page["events"])
            ours = time.perf_counter() - began
            probe.terminate()
            longest = float(probe.communicate()[0]) * 1000
            if count < BACK_EVENTS:
                raise RuntimeError(f"only {count} events came back")
            began = time.perf_counter()
            with open(f"{running.root}/state/agents/{spawned['id']}/turns/1/stdout", "rb") as file:
                for line in file:
                    json.loads(line)
            floor = time.perf_counter() - began
            wire.close()
    return [
        Figure(
            f"reading back {BACK_EVENTS} events of a turn",
            f"{ours:.1f} s",
            f"json.loads of its lines {floor:.1f} s",
            "< 10 s",
        ),
        Figure("another request meanwhile, longest", f"{longest:.0f} ms", "-", "< 50 ms"),
    ]


PROBE = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
from harness import Wire
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
wire, longest = Wire(sys.argv[2]), 0.0
try:
    while True:
        began = time.perf_counter()
        wire.call("agent.list")
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.01)
finally:
    print(longest)
"""


def crowd_figures() -> list[Figure]:
    """A thousand idle agents, a hundred turns at once, a hundred followers of fifty agents."""
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as root:
        with daemon(root=root) as running:
            empty = rss_mib(running.pid)
            wire = Wire(running.socket)
            for n in range(1000):
                wire.call("agent.spawn", workspace=f"{root}/ws", name=f"idle-{n}")
            full = rss_mib(running.pid)
            wire.close()
        with daemon(root=root) as running:
            restored = running.ready_after
    with daemon() as running:
        startup = running.ready_after
        wire = Wire(running.socket)
        names = [f"busy-{n}" for n in range(100)]
        began = time.perf_counter()
        for name in names:
            os.mkdir(f"{running.root}/{name}")
            wire.call("agent.spawn", workspace=f"{running.root}/{name}", name=name, prompt="/tool whoami {}\n/sleep 8")
        agents = wire.call("agent.list")
        wire.call("agent.wait", agents=names)
        took = time.perf_counter() - began
        outcomes = [agent["turn"]["outcome"] for agent in wire.call("agent.list")]
        busy = rss_mib(running.pid)
        assert len(agents) == len(names)
        wire.close()
        followers = follow_figure(running)
    return [
        Figure("daemon: exec to ready", f"{startup * 1000:.0f} ms", "", "< 500 ms"),
        Figure("1,000 idle agents: daemon memory each", f"{(full - empty) * 1024 / 1000:.1f} KiB", "", "< 4 KiB"),
        Figure("1,000 agents: exec to ready", f"{restored * 1000:.0f} ms", f"empty {startup * 1000:.0f} ms", "+ 1 s"),
        Figure(
            "100 turns at once (8 s sleep each)", f"{outcomes.count('success')} succeeded in {took:.0f} s, daemon {busy:.0f} MiB",
            "", "all; < 150 MiB",
        ),
        followers,
    ]  # fmt: skip


def follow_figure(running) -> Figure:
    """Processor time of the daemon while fifty agents speak ten times a second and a hundred clients listen."""
    stop = threading.Event()
    counts = [0] * 100

    def follow(index: int) -> None:
        wire = Wire(running.socket)
        wire.call("events.subscribe")
        wire._socket.settimeout(0.5)
        while not stop.is_set():
            try:
                counts[index] += wire._socket.recv(1 << 20).count(b"\n")
            except TimeoutError:
                continue
        wire.close()

    threads = [threading.Thread(target=follow, args=(index,)) for index in range(100)]
    for thread in threads:
        thread.start()
    wire = Wire(running.socket)
    prompt = "\n".join(["/emit 1 40\n/sleep 0.1"] * 60)
    for n in range(50):
        wire.call("agent.send", agent=f"busy-{n}", prompt=prompt)
    before, began = cpu_seconds(running.pid), time.perf_counter()
    wire.call("agent.wait", agents=[f"busy-{n}" for n in range(50)])
    used, took = cpu_seconds(running.pid) - before, time.perf_counter() - began
    stop.set()
    for thread in threads:
        thread.join()
    wire.close()
    return Figure(
        "100 followers of 50 agents", f"{used / took:.2f} cores ({sum(counts) / took:.0f} events/s sent)", "", "< 1 core"
    )


def main() -> None:
    figures = [*mcp_figures(), spawn_figure(), ls_figure(), event_figure(), *reading_back_figures(), *crowd_figures()]
    widths = [max(len(figure[column]) for figure in figures) for column in range(3)]
    for figure in figures:
        print("  ".join(text.ljust(width) for text, width in zip(figure[:3], widths, strict=True)), f" goal: {figure.goal}")


if __name__ == "__main__":
    socket.setdefaulttimeout(120)
    main()
