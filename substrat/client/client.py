"""The daemon's methods as methods of a Trio class, `Client`; many requests may be in flight at once."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, cast

import trio

from substrat import __version__, errors, paths
from substrat.client.stream import CHUNK, PAUSE_S, Events, open_stream
from substrat.protocol.conversation import ClientConversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from substrat.protocol.objects import (
        AgentAfterTurnObject,
        AgentObject,
        EventObject,
        InboxItemObject,
        SessionMessageObject,
        SessionObject,
        SpawnedAgentObject,
        StatusObject,
        TurnObject,
        UsageObject,
        WholeAgentObject,
    )

Object = dict[str, object]

_GRACE_S = 1.0
"""How much longer than `timeout` a wait lasts here: the daemon's own answer, which names the agent, goes first."""


class Client:
    """A conversation with the daemon; make one with `connect`.

    Every method raises the errors of `substrat.errors` that the daemon answers with, and `ConnectionLost` when it goes
    away. Agents are named by name or id; agent, turn and event objects are those of `docs/protocol.md`.
    """

    def __init__(self, path: str, stream: trio.SocketStream) -> None:
        self._path = path
        self._stream = stream
        self._conversation = ClientConversation(f"substrat.Client {__version__}", path)
        self._sending = trio.Lock()
        self._news = trio.Event()
        self._broken: errors.SubstratError | None = None

    @property
    def server(self) -> Object:
        """The daemon's answer to `hello`."""
        return self._conversation.server

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
            stream = await open_stream(path)
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
        async with self._sending:
            await self._send(self._conversation.hello())
        await self._until(lambda: bool(self.server))

    async def call(self, method: str, **params: object) -> object:
        """Call any method of the protocol.

        Args:
            method: its name.
            params: its parameters; those that are None are left out.

        Returns:
            Its result.
        """
        number, line = self._conversation.request(method, params)
        try:
            async with self._sending:
                await self._send(line)
            await self._until(lambda: self._conversation.has_answer(number))
            return self._conversation.take_answer(number)
        finally:
            self._conversation.forget(number)

    async def _until(self, done: Callable[[], bool]) -> None:
        """Wait for news from the daemon until there are those that are waited for.

        Raises:
            SubstratError: the connection has ended before.
        """
        while not done():
            if self._conversation.problem is not None:
                self._raise_end()
            await self._news.wait()

    async def _send(self, line: bytes) -> None:
        """Send a whole line, or nothing.

        Raises:
            ConnectionLost: the connection has ended.
        """
        if self._broken is not None or self._conversation.problem is not None:
            self._raise_end()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[await self._stream.socket.send(rest) :]
        except (OSError, trio.ClosedResourceError):
            # The daemon may have said why before it closed; the reader finds out, and ends all waits.
            return
        except trio.Cancelled:
            if len(rest) < len(line):
                # The next line would be read as this one's end.
                self._broken = errors.ConnectionLost(
                    "a request was cancelled while it was being sent, which ends the connection: connect again"
                )
                with suppress(OSError):
                    self._stream.socket.shutdown(trio.socket.SHUT_WR)
            raise

    def _raise_end(self) -> None:
        """Raise the error that has ended the connection."""
        if self._broken is not None:
            raise errors.ConnectionLost(self._broken.message)
        self._conversation.check()

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
        priority: str | None = None,
        env: Mapping[str, str] | None = None,
        ssh_agent: str | None = None,
    ) -> SpawnedAgentObject:
        """Create an agent; with a prompt its first turn starts, with a session it takes that chat over.

        Returns:
            The agent object.
        """
        hosts, shown, read = (list(given) if given is not None else None for given in (allow, bind, bind_ro))
        found = await self.call(
            "agent.spawn", workspace=workspace, name=name, model=model, network=network, allow=hosts, bind=shown,
            bind_ro=read, prompt=prompt, session=session, ssh_agent=ssh_agent, priority=priority,
            env=[f"{key}={value}" for key, value in env.items()] if env is not None else None,
        )  # fmt: skip
        return cast("SpawnedAgentObject", found)

    async def send(self, agent: str, prompt: str) -> int:
        """Queue a prompt. Returns the inbox item's number, for `wait_message`."""
        return cast("int", cast("Object", await self.call("agent.send", agent=agent, prompt=prompt))["message"])

    async def agents(self) -> list[AgentObject]:
        """Return all agent objects, oldest first."""
        return cast("list[AgentObject]", await self.call("agent.list"))

    async def show(self, agent: str) -> WholeAgentObject:
        """Return one agent object."""
        return cast("WholeAgentObject", await self.call("agent.show", agent=agent))

    async def wait(
        self,
        *agents: str,
        until: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = 0.0,
    ) -> list[AgentObject]:
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
        return cast("list[AgentObject]", await self._wait("agent.wait", params, timeout, reconnect))

    async def wait_message(
        self,
        agent: str,
        message: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = 0.0,
    ) -> AgentAfterTurnObject:
        """Wait until the turn that carries an inbox item (default: the newest prompt) has ended.

        `timeout`, `reconnect` and the errors are those of `wait`.

        Returns:
            The agent object, whose `turn` is that turn.
        """
        params: Object = {"agent": agent, "message": message}
        return cast("AgentAfterTurnObject", await self._wait("agent.wait_message", params, timeout, reconnect))

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

    async def inbox(self) -> list[InboxItemObject]:
        """Everything that waits for the operator, oldest first, with whole texts: `id, from, time, text, kind`.

        Items that are answered or dismissed meanwhile are left out.
        """
        found: list[InboxItemObject] = []
        page: Object = {"after": 0, "more": True}
        while page["more"]:
            page = cast("Object", await self.call("inbox.list", after=page["after"]))
            for item in cast("list[Object]", page["items"]):
                with suppress(errors.NotFound, errors.Refused):
                    cut = item.pop("cut")
                    whole = await self.call("inbox.show", id=item["id"]) if cut else item
                    found.append(cast("InboxItemObject", whole))
        return found

    async def suspend(self, agent: str) -> AgentObject:
        """Stop the turn and keep the session; returns when the process is gone."""
        return cast("AgentObject", await self.call("agent.suspend", agent=agent))

    async def resume(self, agent: str, prompt: str | None = None) -> int | None:
        """Go on where it stopped. Returns the inbox item's number, None when nothing was left to do."""
        answer = cast("Object", await self.call("agent.resume", agent=agent, prompt=prompt))
        return cast("int | None", answer["message"])

    async def interrupt(self, agent: str) -> AgentObject:
        """Stop the turn."""
        return cast("AgentObject", await self.call("agent.interrupt", agent=agent))

    async def end(self, agent: str) -> AgentObject:
        """Finish the agent for good."""
        return cast("AgentObject", await self.call("agent.end", agent=agent))

    async def rm(self, agent: str) -> None:
        """Forget an agent that isn't running."""
        await self.call("agent.rm", agent=agent)

    async def turns(self, agent: str, after: int = 0) -> list[TurnObject]:
        """Return a page of an agent's turn objects after a number; an empty page is the end."""
        return cast("list[TurnObject]", cast("Object", await self.call("agent.turns", agent=agent, after=after))["turns"])

    async def usage(self, agent: str) -> UsageObject:
        """Return the tokens of an agent's turns, and of its family's."""
        return cast("UsageObject", await self.call("agent.usage", agent=agent))

    async def sessions(self, workspace: str) -> list[SessionObject]:
        """Return the chats of a workspace, newest first."""
        return cast("list[SessionObject]", await self.call("session.list", workspace=workspace))

    async def read_session(self, workspace: str, session: str, after: int = 0) -> tuple[list[SessionMessageObject], int]:
        """Return a page of a chat's messages, and the number to read on after; an empty page is the end."""
        page = cast("Object", await self.call("session.read", workspace=workspace, session=session, after=after))
        return cast("list[SessionMessageObject]", page["messages"]), cast("int", page["after"])

    async def read_events(self, agent: str | None = None, since: int = 0) -> tuple[list[EventObject], int]:
        """Return a page of events after a cursor, and the cursor to read on from; an empty page is the end."""
        page = cast("Object", await self.call("events.read", agent=agent, since=since))
        return cast("list[EventObject]", page["events"]), cast("int", page["cursor"])

    @asynccontextmanager
    async def events(self, agent: str | None = None, since: int | None = None) -> AsyncIterator[Events]:
        """Follow events: `async with client.events() as events: async for event in events: ...`.

        Opens a connection of its own and closes it with the context. The loop ends by `break` or with `ConnectionLost`.

        Args:
            agent: only this agent's.
            since: the cursor to start after; None: only later events.
        """
        async with await open_stream(self._path) as stream:
            events = Events(stream, self._path)
            await events.start(agent, since)
            yield events

    async def status(self) -> StatusObject:
        """Return the daemon's state."""
        return cast("StatusObject", await self.call("daemon.status"))

    async def shutdown(self, *, suspend: bool = False) -> None:
        """Stop the daemon; turns go on unless every agent is suspended first."""
        await self.call("daemon.shutdown", suspend=suspend)

    async def _read(self) -> None:
        try:
            while self._conversation.problem is None:
                self._conversation.receive(await self._stream.receive_some(CHUNK))
                # Events come over connections of their own; of a subscription made by `call` no task takes any.
                self._conversation.notifications.clear()
                self._news.set()
                self._news = trio.Event()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # below, every task that waits learns of the end
        finally:
            self._conversation.receive(b"")
            self._news.set()


@contextmanager
def _answered_within(path: str, seconds: float | None) -> Iterator[None]:
    """Bound the time of the block.

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
        await trio.sleep(PAUSE_S)
