"""`substrat.Client`: the Python way in, on Trio; `substratctl` has a blocking one of its own.

One connection, many requests in flight. Each subscription has a connection of its own that only its consumer reads, so
a slow one fills a socket and nothing else: nothing piles up on either side, no event is lost, and requests (also those
the consumer makes for each event) are answered meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, cast

import trio

from substrat import __version__, errors, paths
from substrat.protocol import framing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from substrat.protocol.objects import (
        Agent,
        AgentAfterTurn,
        Event,
        InboxItem,
        Session,
        SessionMessage,
        ShownAgent,
        SpawnedAgent,
        Status,
        Turn,
        Usage,
    )

Object = dict[str, object]

_LONGEST_ANSWER = 16 * framing.MAX_LINE
_CHUNK = 64 * 1024
_GRACE_S = 1.0
"""How much longer than `timeout` a wait lasts here: the daemon, which knows what it waited for, is to say so first."""
_PAUSE_S = 0.05
"""Between attempts to reach a daemon whose socket isn't there, or whose queue of connections is full."""


class _Pending:
    """A request under way: set when its answer, or the end of the connection, has come."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Object | None = None


class Events:
    """The events of one subscription, in order; get one from `Client.events`.

    It has no task and no queue: the consumer reads the socket. One task at a time may wait for an event.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._splitter = framing.LineSplitter(_LONGEST_ANSWER)
        self._lines: deque[bytes] = deque()
        self._cursor = 0

    @property
    def cursor(self) -> int:
        """Where to subscribe again after a loss: the cursor of the last event that was received."""
        return self._cursor

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await self.receive()

    async def receive(self) -> Event:
        """Wait for the next event object. Cancelling it loses nothing.

        Raises:
            ConnectionLost: the daemon went away; a subscription never ends by itself.
        """
        while True:
            message = _decoded(await self._next_line())
            try:
                if message.get("method") == "event":
                    event = cast("Event", cast("Object", message["params"])["event"])
                    self._cursor = event["cursor"]
                    return event
            except (KeyError, TypeError, AttributeError) as problem:
                raise _foreign(problem) from None
            _result(message)

    async def start(self, params: Object) -> None:
        """Greet and subscribe in one packet, and wait for the two answers."""
        hello: Object = {"protocol": framing.PROTOCOL_VERSION, "client": f"substrat.Client {__version__}"}
        # Closed by the daemon already? Then reading tells why.
        with suppress(trio.BrokenResourceError):
            await self._stream.send_all(_request_line(0, "hello", hello) + _request_line(1, "events.subscribe", params))
        _result(_decoded(await self._next_line()))
        answer = _result(_decoded(await self._next_line()))
        if not isinstance(answer, dict) or not isinstance(answer.get("cursor"), int):
            raise _foreign(answer)
        self._cursor = answer["cursor"]

    async def _next_line(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._lines:
            try:
                data = await self._stream.receive_some(_CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise errors.ConnectionLost(
                    f"the daemon closed the subscription: check that it runs, then subscribe again since {self._cursor}"
                )
            self._lines.extend(self._splitter.feed(data))
        return self._lines.popleft()


class Client:
    """A conversation with the daemon; make one with `connect`.

    Every method raises the errors of `substrat.errors` that the daemon answers with, and `ConnectionLost` when it goes
    away. Agents are named by name or id; agent, turn and event objects are those of `docs/protocol.md`.
    """

    def __init__(self, path: str, stream: trio.SocketStream) -> None:
        self._path = path
        self._stream = stream
        self._sending = trio.Lock()
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._lost = False
        self._last_word: errors.SubstratError | None = None
        self.server: Object = {}

    @classmethod
    @asynccontextmanager
    async def connect(cls, socket: str | None = None, *, patience: float | None = None) -> AsyncIterator[Client]:
        """Open a conversation that lasts as long as the context.

        Args:
            socket: the operator socket; by default the one the environment names.
            patience: how many seconds the daemon has to take the connection and to answer `hello`; None is no limit.

        Raises:
            DaemonNotRunning: no daemon listens there, or it didn't answer in time.
        """
        path = socket if socket is not None else paths.operator_socket()
        began = trio.current_time()
        with _answered_within(path, patience):
            stream = await _open(path)
        client = cls(path, stream)
        failure: Exception | None = None
        async with client._stream, trio.open_nursery() as nursery:
            nursery.start_soon(client._read)
            try:
                with _answered_within(path, None if patience is None else began + patience - trio.current_time()):
                    await client._greet()
                yield client
            except Exception as problem:
                failure = problem
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _greet(self) -> None:
        who = f"substrat.Client {__version__}"
        self.server = cast("Object", await self.call("hello", protocol=framing.PROTOCOL_VERSION, client=who))

    async def call(self, method: str, **params: object) -> object:
        """Call any method of the protocol.

        Args:
            method: its name.
            params: its parameters; those that are None are left out.

        Returns:
            Its result.
        """
        self._number += 1
        number = self._number
        line = _request_line(number, method, _given(params))
        pending = self._pending[number] = _Pending()
        try:
            async with self._sending:
                await self._send(line)
            await pending.done.wait()
        finally:
            del self._pending[number]
        if pending.answer is None:
            raise self._gone()
        return _result(pending.answer)

    async def _send(self, line: bytes) -> None:
        """Send a whole line, or nothing.

        Raises:
            ConnectionLost: the connection has ended.
        """
        if self._lost:
            raise self._gone()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[await self._stream.socket.send(rest) :]
        except (OSError, trio.ClosedResourceError):
            # The daemon may have said why before it closed; the reader finds out, and answers all that is pending.
            return
        except trio.Cancelled:
            if len(rest) < len(line):
                # What came next would be read as this line's end.
                self._lost = True
                self._last_word = errors.ConnectionLost(
                    "a request was cancelled while it was being sent, which ends the connection: connect again"
                )
                with suppress(OSError):
                    self._stream.socket.shutdown(trio.socket.SHUT_WR)
            raise

    def _gone(self) -> errors.SubstratError:
        """Make the error for a connection that has ended: what the daemon said last, if it said why."""
        if self._last_word is not None:
            return type(self._last_word)(self._last_word.message)
        return errors.ConnectionLost("the daemon closed the connection: check that it runs, then connect again")

    async def spawn(
        self,
        workspace: str,
        *,
        name: str | None = None,
        model: str | None = None,
        network: str | None = None,
        allow: Sequence[str] | None = None,
        bind: Sequence[str] | None = None,
        bind_ro: Sequence[str] | None = None,
        prompt: str | None = None,
        session: str | None = None,
        env: Mapping[str, str] | None = None,
        ssh_agent: str | None = None,
    ) -> SpawnedAgent:
        """Create an agent; with a prompt its first turn starts, with a session it takes that chat over.

        Returns:
            The agent object.
        """
        hosts, shown, read = (list(given) if given is not None else None for given in (allow, bind, bind_ro))
        found = await self.call(
            "agent.spawn", workspace=workspace, name=name, model=model, network=network, allow=hosts, bind=shown,
            bind_ro=read, prompt=prompt, session=session, ssh_agent=ssh_agent,
            env=[f"{key}={value}" for key, value in env.items()] if env is not None else None,
        )  # fmt: skip
        return cast("SpawnedAgent", found)

    async def send(self, agent: str, prompt: str) -> int:
        """Queue a prompt. Returns the inbox item's number, for `wait_message`."""
        return cast("int", cast("Object", await self.call("agent.send", agent=agent, prompt=prompt))["message"])

    async def agents(self) -> list[Agent]:
        """Return all agent objects, oldest first."""
        return cast("list[Agent]", await self.call("agent.list"))

    async def show(self, agent: str) -> ShownAgent:
        """Return one agent object."""
        return cast("ShownAgent", await self.call("agent.show", agent=agent))

    async def wait(
        self,
        *agents: str,
        until: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = 0.0,
    ) -> list[Agent]:
        """Wait until each agent is in one of the states (default: neither queued nor running).

        Args:
            agents: names or ids.
            until: the states.
            timeout: the longest to wait, in seconds, also for a daemon that doesn't answer.
            reconnect: how many seconds a daemon that has gone away may take to come back. The wait then goes on over a
                connection of its own; for other calls this conversation has ended.

        Raises:
            WaitTimedOut: it took longer than `timeout` seconds.
            ConnectionLost: the daemon went away, and `reconnect` is 0.
            DaemonNotRunning: the daemon went away and didn't come back in time.
        """
        params: Object = {"agents": list(agents), "until": list(until) if until is not None else None}
        return cast("list[Agent]", await self._wait("agent.wait", params, timeout, reconnect))

    async def wait_message(
        self,
        agent: str,
        message: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = 0.0,
    ) -> AgentAfterTurn:
        """Wait until the turn that carries an inbox item (default: the newest prompt) has ended.

        `timeout`, `reconnect` and what is raised are those of `wait`.

        Returns:
            The agent object, whose `turn` is that turn.
        """
        params: Object = {"agent": agent, "message": message}
        return cast("AgentAfterTurn", await self._wait("agent.wait_message", params, timeout, reconnect))

    async def _wait(self, method: str, params: Object, seconds: float | None, reconnect: float) -> object:
        began = trio.current_time()
        with trio.move_on_after(float("inf") if seconds is None else max(0.0, seconds) + _GRACE_S):
            try:
                return await self.call(method, **params, timeout=seconds)
            except errors.ConnectionLost:
                if reconnect <= 0:
                    raise
            while True:
                left = None if seconds is None else max(0.0, began + seconds - trio.current_time())
                try:
                    async with _back_within(self._path, reconnect) as other:
                        return await other.call(method, **params, timeout=left)
                except errors.ConnectionLost:
                    continue  # it has gone away once more
        raise errors.WaitTimedOut(f"the daemon at {self._path} has not answered within {seconds:g} s")

    async def inbox(self) -> list[InboxItem]:
        """Everything that waits for the operator, oldest first, with whole texts: `id, from, time, text, kind`.

        What is answered or dismissed meanwhile is left out.
        """
        found: list[InboxItem] = []
        page: Object = {"after": 0, "more": True}
        while page["more"]:
            page = cast("Object", await self.call("inbox.list", after=page["after"]))
            for item in cast("list[Object]", page["items"]):
                with suppress(errors.NotFound, errors.Refused):
                    cut = item.pop("cut")
                    whole = await self.call("inbox.show", id=item["id"]) if cut else item
                    found.append(cast("InboxItem", whole))
        return found

    async def suspend(self, agent: str) -> Agent:
        """Stop the turn and keep the session; returns when the process is gone."""
        return cast("Agent", await self.call("agent.suspend", agent=agent))

    async def resume(self, agent: str, prompt: str | None = None) -> int | None:
        """Go on where it stopped. Returns the inbox item's number, None when nothing was left to do."""
        answer = cast("Object", await self.call("agent.resume", agent=agent, prompt=prompt))
        return cast("int | None", answer["message"])

    async def interrupt(self, agent: str) -> Agent:
        """Stop the turn."""
        return cast("Agent", await self.call("agent.interrupt", agent=agent))

    async def end(self, agent: str) -> Agent:
        """Finish the agent for good."""
        return cast("Agent", await self.call("agent.end", agent=agent))

    async def rm(self, agent: str) -> None:
        """Forget an agent that isn't running."""
        await self.call("agent.rm", agent=agent)

    async def turns(self, agent: str, after: int = 0) -> list[Turn]:
        """Return a page of an agent's turn objects after a number; an empty page is the end."""
        return cast("list[Turn]", cast("Object", await self.call("agent.turns", agent=agent, after=after))["turns"])

    async def usage(self, agent: str) -> Usage:
        """Return what an agent's turns used, and those of its family."""
        return cast("Usage", await self.call("agent.usage", agent=agent))

    async def sessions(self, workspace: str) -> list[Session]:
        """Return the chats of a workspace, newest first."""
        return cast("list[Session]", await self.call("session.list", workspace=workspace))

    async def read_session(self, workspace: str, session: str, after: int = 0) -> tuple[list[SessionMessage], int]:
        """Return a page of a chat's messages, and the number to read on after; an empty page is the end."""
        page = cast("Object", await self.call("session.read", workspace=workspace, session=session, after=after))
        return cast("list[SessionMessage]", page["messages"]), cast("int", page["after"])

    async def read_events(self, agent: str | None = None, since: int = 0) -> tuple[list[Event], int]:
        """Return a page of events after a cursor, and the cursor to read on from; an empty page is the end."""
        page = cast("Object", await self.call("events.read", agent=agent, since=since))
        return cast("list[Event]", page["events"]), cast("int", page["cursor"])

    @asynccontextmanager
    async def events(self, agent: str | None = None, since: int | None = None) -> AsyncIterator[Events]:
        """Follow events: `async with client.events() as events: async for event in events: ...`.

        Opens a connection of its own and closes it with the context. The loop ends by `break` or with `ConnectionLost`.

        Args:
            agent: only this agent's.
            since: the cursor to start after; None: only what comes from now on.
        """
        async with await _open(self._path) as stream:
            events = Events(stream)
            await events.start(_given({"agent": agent, "since": since}))
            yield events

    async def status(self) -> Status:
        """Return what the daemon says about itself."""
        return cast("Status", await self.call("daemon.status"))

    async def shutdown(self, *, suspend: bool = False) -> None:
        """Stop the daemon; turns go on unless every agent is suspended first."""
        await self.call("daemon.shutdown", suspend=suspend)

    async def _read(self) -> None:
        splitter = framing.LineSplitter(_LONGEST_ANSWER)
        try:
            while data := await self._stream.receive_some(_CHUNK):
                for line in splitter.feed(data):
                    self._take(_decoded(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # told to everybody who waits, below
        except errors.SubstratError as problem:
            self._last_word = problem
        finally:
            self._lost = True
            for pending in self._pending.values():
                pending.done.set()

    def _take(self, message: Object) -> None:
        number = message.get("id")
        if isinstance(number, int):
            # Nobody waits for the answer to a call that was cancelled.
            pending = self._pending.get(number)
            if pending is not None:
                pending.answer = message
                pending.done.set()
        elif "error" in message:
            # The daemon couldn't tell which request it was, so somebody would wait for ever.
            _result(message)
        elif "method" not in message:
            raise _foreign(message)


@contextmanager
def _answered_within(path: str, seconds: float | None) -> Iterator[None]:
    """Bound what is done inside.

    Raises:
        DaemonNotRunning: it took longer.
    """
    with trio.move_on_after(float("inf") if seconds is None else max(0.0, seconds)) as scope:
        yield
    if scope.cancelled_caught:
        raise errors.DaemonNotRunning(f"the daemon at {path} doesn't answer: look into its log, or start it again")


@asynccontextmanager
async def _back_within(path: str, seconds: float) -> AsyncIterator[Client]:
    """Connect to a daemon that is being started, again and again.

    Raises:
        DaemonNotRunning: it took longer than so many seconds.
    """
    deadline = trio.current_time() + seconds
    while True:
        connected = False
        try:
            async with Client.connect(path, patience=deadline - trio.current_time()) as client:
                connected = True
                yield client
                return
        except (errors.DaemonNotRunning, errors.ConnectionLost):
            if connected or trio.current_time() >= deadline:
                raise
        await trio.sleep(_PAUSE_S)


async def _open(path: str) -> trio.SocketStream:
    directory = None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.setblocking(False)
    connected = False
    try:
        spelling, directory = paths.short_socket_path(path)
        await trio.lowlevel.checkpoint()
        while not connected:
            try:
                connecting.connect(spelling)
                connected = True
            except BlockingIOError:
                # The daemon's queue of connections is full, and a socket that doesn't block can't wait for room
                # (connect(2)). Trio's own connect takes this for a connection under way.
                await trio.sleep(_PAUSE_S)
    except OSError as problem:
        raise errors.DaemonNotRunning(
            f"can't reach {path}: {problem.strerror or 'no daemon listens on it'}; start one with 'substratd' or "
            f"'systemctl --user start substratd'"
        ) from None
    finally:
        if not connected:
            connecting.close()
        if directory is not None:
            os.close(directory)
    return trio.SocketStream(trio.socket.from_stdlib_socket(connecting))


def _request_line(number: int, method: str, params: Object) -> bytes:
    """Encode a request.

    Raises:
        MessageTooLarge: it is longer than the daemon takes.
        ParseError: it holds what JSON can't: NaN, infinities, lone surrogates.
    """
    line = framing.request(number, method, params)
    if len(line) > framing.MAX_LINE:
        raise errors.MessageTooLarge(
            f"the request has {len(line)} bytes and the daemon takes {framing.MAX_LINE}; put the text into a file "
            "in the workspace and name the file in the prompt"
        )
    if any(mark in line for mark in (b"\\ud", b"NaN", b"Infinity")):
        # Refused here, because the daemon couldn't say which request it refuses.
        framing.decode(line)
    return line


def _given(params: Object) -> Object:
    return {key: value for key, value in params.items() if value is not None}


def _decoded(line: bytes) -> Object:
    try:
        message = json.loads(line)
    except ValueError as problem:
        raise _foreign(problem) from None
    if not isinstance(message, dict):
        raise _foreign(message)
    return message


def _foreign(what: object) -> errors.SubstratError:
    return errors.SubstratError(
        f"what listens there doesn't speak the protocol, or a newer one ({what!r:.80}): are both of one version?"
    )


def _result(answer: Object) -> object:
    failure = answer.get("error")
    if isinstance(failure, dict):
        raise errors.from_wire(int(failure.get("code", errors.SubstratError.code)), str(failure.get("message", "")))
    return answer.get("result")
