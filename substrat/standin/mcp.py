"""An MCP client over stdio with cursor-agent's habits: start, list tools, call; it knows nothing of turns.

Servers are connected at the start of a turn while the turn goes on; a turn that needs one waits for it. A server that fails
is left out with a line in the log, and only there. Calls to a server never overlap, because the script is sequential.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from substrat.standin import processes, stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Final

    from substrat.standin.mcpconfig import ServerConfig
    from substrat.standin.reactor import Reactor
    from substrat.standin.stream import Json

PROTOCOL = "2025-11-25"
ACCEPTED_PROTOCOLS = (PROTOCOL, "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")
CONNECT_SECONDS = 60.0
CALL_SECONDS = 60.0
STOP_SECONDS = 2.0
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

STARTING, READY, FAILED = "starting", "ready", "failed"


class McpServer:
    """A running MCP server, or one that failed.

    Args:
        config: How to start it.
        reactor: Serves its pipes.
        warn: Takes a line for the log.
    """

    def __init__(self, config: ServerConfig, reactor: Reactor, warn: Callable[[str], None]) -> None:
        self.name: Final = config.name
        self.state = STARTING
        self.tools: dict[str, Json] = {}
        self.ended = True
        self._config = config
        self._reactor = reactor
        self._warn = warn
        self._pid = 0
        self._stdin: int | None = None
        self._outputs: set[int] = set()
        self._unread = bytearray()
        self._scanned = 0
        self._unsent = bytearray()
        self._last_id = -1
        self._waiting: dict[int, Callable[[Json], None]] = {}

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the program and begin the handshake; a failure shows in `state`."""
        if not self._config.command:
            self._fail("servers that are reached by URL are not part of the stand-in")
            return
        own = {name: environ[name] for name in _INHERITED if name in environ} | dict(self._config.environ)
        stdin, self._stdin = os.pipe2(os.O_CLOEXEC)
        out, stdout = os.pipe2(os.O_CLOEXEC)
        err, stderr = os.pipe2(os.O_CLOEXEC)
        self._outputs = {out, err}
        try:
            stdio = (stdin, stdout, stderr)
            self._pid = processes.spawn(self._config.command, own, self._config.cwd or ".", stdio, new_session=False)
        except OSError as error:
            self._close_outputs()
            self._fail(f"it could not be started: {error}")
            return
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        self.ended = False
        for fd in (self._stdin, out, err):
            os.set_blocking(fd, False)
        self._reactor.watch(out, lambda: self._read(out))
        self._reactor.watch(err, lambda: self._discard(err))
        self._reactor.watch_child(self._pid, self._child_ended)
        handshake: Json = {"protocolVersion": PROTOCOL, "capabilities": {"elicitation": {"form": {}}}}
        self._request("initialize", handshake | {"clientInfo": {"name": "Cursor", "version": "1.0.0"}}, self._initialized)

    def call(self, tool: str, arguments: Json, seconds: float) -> Json:
        """Call a tool and wait for the answer.

        Returns:
            The JSON-RPC answer, `result` or `error`; a call that got none has an `error` made up here.
        """
        answers: list[Json] = []
        number = self._request("tools/call", {"name": tool, "arguments": arguments}, answers.append)
        if not self._reactor.run_until(lambda: bool(answers), seconds):
            self._waiting.pop(number, None)
            self._notify("notifications/cancelled", {"requestId": number, "reason": "McpError: Request timed out"})
            return {"error": {"code": -32001, "message": "MCP error -32001: Request timed out"}}
        return answers[0]

    def close_stdin(self) -> None:
        """The first step of stopping it."""
        if self._stdin is not None:
            self._reactor.forget(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def kill(self, number: int) -> None:
        """A further step of stopping it."""
        if not self.ended:
            os.kill(self._pid, number)

    def _initialized(self, answer: Json) -> None:
        result = answer.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version not in ACCEPTED_PROTOCOLS:
            self._fail(f"it answered initialize with {_shorten(answer)}")
            return
        self._notify("notifications/initialized", None)
        self._request("tools/list", {}, self._listed)

    def _listed(self, answer: Json) -> None:
        result = answer.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            self._fail(f"it answered tools/list with {_shorten(answer)}")
            return
        self.tools = {tool["name"]: tool for tool in tools if isinstance(tool, dict) and "name" in tool}
        self.state = READY

    def _request(self, method: str, params: Json, on_answer: Callable[[Json], None]) -> int:
        self._last_id += 1
        self._waiting[self._last_id] = on_answer
        self._send({"method": method, "params": params, "jsonrpc": "2.0", "id": self._last_id})
        if self.ended:
            self._drop_waiting()
        return self._last_id

    def _notify(self, method: str, params: Json | None) -> None:
        message: Json = {"method": method} if params is None else {"method": method, "params": params}
        self._send(message | {"jsonrpc": "2.0"})

    def _send(self, message: Json) -> None:
        if self._stdin is not None:
            self._unsent += stream.encode(message) + b"\n"
            self._write()

    def _write(self) -> None:
        if self._stdin is None:
            return
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin, self._unsent)]
        except BlockingIOError:
            self._reactor.watch_writable(self._stdin, self._write)
            return
        except BrokenPipeError:
            self._unsent.clear()  # its end is noticed on its output
        self._reactor.watch_writable(self._stdin, None)

    def _read(self, fd: int) -> None:
        data = _read_some(fd)
        if data is None:
            return
        if not data:
            self._close_output(fd)
            self._fail("its output ended")
            self._drop_waiting()
            return
        self._unread += data
        while (end := self._unread.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            self._scanned = 0
            self._take(line)
        self._scanned = len(self._unread)

    def _discard(self, fd: int) -> None:
        data = _read_some(fd)
        if data == b"":
            self._close_output(fd)
        elif data:
            self._warn(f"MCP server {self.name} says: {data.decode('utf-8', 'replace').rstrip()}")

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._warn(f"MCP server {self.name} printed what is no message: {_shorten(line)}")
            return
        if not isinstance(message, dict):
            return
        if "method" not in message:
            answered = self._waiting.pop(message.get("id", -1), None)
            if answered is not None:
                answered(message)
        elif "id" in message:
            refused = {"code": -32601, "message": "Method not found"}
            self._send({"error": refused, "jsonrpc": "2.0", "id": message["id"]})

    def _fail(self, reason: str) -> None:
        if self.state != FAILED:
            self.state = FAILED
            self._warn(f"MCP server {self.name} failed: {reason}")

    def _drop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for dropped in waiting.values():
            dropped({"error": {"code": -32000, "message": "MCP error -32000: Connection closed"}})

    def _child_ended(self, _status: int) -> None:
        self.ended = True
        self.close_stdin()

    def _close_output(self, fd: int) -> None:
        self._reactor.forget(fd)
        os.close(fd)
        self._outputs.discard(fd)

    def _close_outputs(self) -> None:
        for fd in list(self._outputs):
            self._close_output(fd)
        self.close_stdin()


class Servers:
    """The servers of a turn."""

    def __init__(self, configs: Sequence[ServerConfig], reactor: Reactor, warn: Callable[[str], None]) -> None:
        self._servers: Final = [McpServer(config, reactor, warn) for config in configs]
        self._reactor = reactor
        self._warn = warn
        self._deadline = time.monotonic() + CONNECT_SECONDS

    def start(self, environ: Mapping[str, str]) -> None:
        """Start all of them; they connect while the caller goes on."""
        for server in self._servers:
            server.start(environ)

    def wait_connected(self) -> None:
        """Wait until each is ready or has failed; one that is neither in time is left out."""
        left = max(0.0, self._deadline - time.monotonic())
        if not self._reactor.run_until(lambda: all(server.state != STARTING for server in self._servers), left):
            for server in self._servers:
                if server.state == STARTING:
                    server.state = FAILED
                    self._warn(f"MCP server connection timed out after {CONNECT_SECONDS * 1000:.0f}ms: {server.name}")

    def ready(self) -> list[McpServer]:
        """Those that can be called."""
        return [server for server in self._servers if server.state == READY]

    def find(self, name: str) -> tuple[McpServer, str] | None:
        """The server that has a tool, by the tool's name or by `<server>-<tool>`, and the tool's own name."""
        for server in self.ready():
            if name in server.tools:
                return server, name
        for server in self.ready():
            tool = name.removeprefix(f"{server.name}-")
            if tool != name and tool in server.tools:
                return server, tool
        return None

    def stop(self) -> None:
        """End all of them, politely first; afterwards none is left, not even as a zombie."""
        for server in self._servers:
            server.close_stdin()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._reactor.run_until(self._all_ended, STOP_SECONDS):
                return
            for server in self._servers:
                server.kill(number)
        self._reactor.run_until(self._all_ended)

    def _all_ended(self) -> bool:
        return all(server.ended for server in self._servers)


def _read_some(fd: int) -> bytes | None:
    """The bytes that can be read, empty at the end; None if there are none yet."""
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, 65536)
    return None


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "…"
