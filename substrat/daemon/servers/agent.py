"""Serves agents' sockets: a listener an agent, so that it is known who calls; `mcp_server.host` speaks MCP."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import structlog
import trio

from mcp_server import hook, host
from mcp_server.tools import CALLS_PER_SECOND
from substrat import __version__
from substrat.core.programs import lenient
from substrat.daemon.kernel import limits, sockets
from substrat.daemon.kernel.ratelimit import TokenBucket
from substrat.daemon.servers import ssh_agent as ssh_agents
from substrat.daemon.state.layout import SSH_AGENT_SOCKET
from substrat.daemon.state.storing import until_stored
from substrat.errors import MessageTooLarge, StateUnusable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import ModuleType

    from substrat.daemon.agents.turn_words import TurnWords
    from substrat.daemon.failpoints import Failpoints

log = structlog.get_logger("substrat.agent_socket")

MAX_CONNECTIONS = 16
"""A sandbox has a companion for each program in it that speaks MCP: a few, and each costs the daemon a descriptor."""
MAX_LINE = 4 * 1024 * 1024
"""As in `mcp_server.relay`: far more than a model writes in one call, and still read in milliseconds."""
_RELAY = re.compile(r"[!-~]{1,64}")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_LONGEST_ID = 64
"""Characters of a request's id that are stored with the answer as they are: usual ids are numbers and UUIDs."""
_RATE, _BURST = CALLS_PER_SECOND, 1000.0
"""Messages a second and a turn, connections among them: beyond that the agent waits, not the daemon, and its state grows
slowly."""
_SIZE = 16 * 1024
"""Bytes for which a message counts as one more: a prompt of a megabyte is as much work as some sixty short messages."""
_MAX_VALUES = 10_000
"""In a message: tools take a few strings, and ten thousand values are read in some milliseconds."""
_NO_JSON = b"{"
_HOOK_SECONDS = 10.0
"""The longest that a hook is served; it gives up by itself after a few seconds."""
_LONGEST_HELLO = 256
"""Bytes of our companion's first line, whose only text of any length is a name of 64."""


@attrs.define(eq=False)
class AgentServer:
    """Opens agents' sockets.

    Args:
        failpoints: the instants at which tests kill the daemon.
        call: performs a tool call: agent id, turn id (None: a command of the operator's calls), tool, arguments, the call's
            identity (None: it has none).
        called: notes that a turn's companion has been called for the first time.
        words: says what waits for agents in the middle of their turns.
        ssh_agent_of: returns the socket of the person's ssh-agent that an agent may use; None: it may use none.
        has_tasks: says whether an agent sees the tools for tasks.
    """

    _failpoints: Failpoints
    _call: Callable[[str, str | None, str, dict[str, Any] | None, str | None], Awaitable[tuple[str, bool]]]
    _called: Callable[[str], None]
    _words: TurnWords
    _ssh_agent_of: Callable[[str], str | None]
    _has_tasks: Callable[[str], bool]
    _newer: ModuleType | None = attrs.field(init=False, default=None)
    _importing: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    async def serve(
        self, agent: str, turn: str | None, path: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen on an agent's socket, and on the one for its ssh-agent if it has one, until cancelled; then remove both.

        Args:
            agent: the agent's id.
            turn: the turn that is running; None: a command of the operator's in the agent's sandbox.
            path: the socket's path.
            task_status: called when it listens.

        Raises:
            StateUnusable: the socket can't be made at its path.
        """
        directory = os.path.dirname(path)
        if os.path.islink(directory):
            raise StateUnusable(f"{directory} is a link, and the agent's socket would be made elsewhere: move it away")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._failpoints.before("agent socket made")
        listener = sockets.listen(path, 0o600)
        ssh_agent, ssh_path = self._ssh_agent_of(agent), os.path.join(directory, SSH_AGENT_SOCKET)
        try:
            ssh_listener = sockets.listen(ssh_path, 0o600) if ssh_agent is not None else None
        except BaseException:
            listener.socket.close()
            raise
        self._failpoints.after("agent socket made")
        task_status.started()
        pace = TokenBucket(_RATE, _BURST)
        hooks = _Hooks(self._words, turn) if turn is not None else None
        accept = partial(sockets.accept_forever, spares_reserve=True, limiter=pace)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept, listener, MAX_CONNECTIONS, partial(self._serve_one, agent, turn, hooks, pace))
                if ssh_agent is not None and ssh_listener is not None:
                    nursery.start_soon(accept, ssh_listener, MAX_CONNECTIONS, partial(ssh_agents.serve_one, ssh_agent))
        finally:
            self._failpoints.before("agent socket removed")
            for made in (path, ssh_path):
                with suppress(OSError):  # another process has removed it, or there was none
                    os.unlink(made)
            self._failpoints.after("agent socket removed")

    async def _serve_one(
        self,
        agent: str,
        turn: str | None,
        hooks: _Hooks | None,
        pace: TokenBucket,
        stream: trio.SocketStream,
        greeted: Callable[[], None],
    ) -> None:
        lines = sockets.lines(stream, MAX_LINE)
        first = await anext(lines, None)
        if first is None:
            return
        greeted()
        relay = _relay_name(first)

        async def call(name: str, arguments: dict[str, Any] | None, request: str) -> tuple[str, bool]:
            answer = await self._call(agent, turn, name, arguments, _identity(relay, request))
            self._failpoints.at("tool to be answered")
            return answer

        try:
            if first == hook.HELLO:
                async with aclosing(lines):
                    if hooks is not None:
                        await hooks.serve_one(lines, stream)
                return
            messages = self._noting(turn, pace, lines if relay else _chain(first, lines))
            has_tasks = partial(self._has_tasks, agent)
            send = stream.send_all
            await host.serve(__version__, messages, send, call, pace.wait, self._import_newer, has_tasks=has_tasks)
        except* MessageTooLarge as group:
            log.info("a companion was cut off", agent=agent, reason=str(group.exceptions[0]))
        except* trio.BrokenResourceError:
            log.debug("a companion went away", agent=agent)

    async def _noting(self, turn: str | None, pace: TokenBucket, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass messages on, and note the first one: a companion without a caller sends none."""
        is_first = True
        async for message in messages:
            await pace.wait(1 + len(message) // _SIZE)
            if lenient.has_more_values(message, _MAX_VALUES):
                # Answered like a line that is no JSON: if the connection ended, our companion would repeat it over another.
                log.debug("a message with too many values was left out", turn=turn, bytes=len(message))
                yield _NO_JSON
                continue
            if is_first and turn is not None:
                await until_stored(partial(self._called, turn))
            is_first = False
            yield message

    async def _import_newer(self) -> ModuleType:
        """Import the server for clients of the newer revision, when the first of them comes."""
        async with self._importing:
            if self._newer is None:
                self._newer = await host.import_newer()
                limits.freeze_heap()
        return self._newer


@attrs.define(eq=False)
class _Hooks:
    """Answers the hooks of one turn, one after the other, so that no words are handed to two of them.

    Args:
        words: says what waits, and notes what was handed over.
        turn: the turn.
    """

    _words: TurnWords
    _turn: str
    _newest: int = attrs.field(init=False, default=0)
    _one: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    async def serve_one(self, lines: AsyncIterator[bytes], stream: trio.SocketStream) -> None:
        """Send the words that wait, or an empty line, and note that they were handed over once the hook says so."""
        with trio.move_on_after(_HOOK_SECONDS):
            async with self._one:
                words = self._words.waiting(self._turn, self._newest)
                await stream.send_all(json.dumps(words.text).encode() + b"\n" if words.text else b"\n")
                if not words.text or await anext(lines, None) != hook.GIVEN:
                    return
                self._newest = words.newest
                await until_stored(partial(self._words.note, self._turn, words.prompts))


def _relay_name(line: bytes) -> str | None:
    """Return our companion's name from its first line, such as `{"substrat": "companion", "relay": "7f3a"}`.

    None: the line is MCP already.
    """
    if len(line) > _LONGEST_HELLO:
        return None
    try:
        hello = json.loads(line)
    except (ValueError, RecursionError):
        return None
    name = hello.get("relay") if isinstance(hello, dict) and hello.get("substrat") == "companion" else None
    return name if isinstance(name, str) and _RELAY.fullmatch(name) else None


def _identity(relay: str | None, request: str) -> str | None:
    """Return the name that a repeated call shares with the first; it is stored, so it is short and Unicode.

    `7f3a:12` for the request 12; a hash replaces an id that is long or has half of a surrogate pair.
    """
    if relay is None:
        return None
    if len(request) <= _LONGEST_ID and not _HALF_PAIR.search(request):
        return f"{relay}:{request}"
    return f"{relay}:{hashlib.sha256(request.encode('utf-8', 'surrogatepass')).hexdigest()}"


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line
