"""One conversation with the daemon that many tasks share, under asyncio and Trio alike.

anyio runs on both loops. The protocol itself lies below, without a socket (`protocol/conversation.py`).
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import anyio

from substrat import __version__, errors, paths
from substrat.client.unix_socket import CHUNK, PAUSE_S, close_sending, open_stream, send_now
from substrat.protocol.conversation import ClientConversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Self

    from anyio.abc import UNIXSocketStream

Object = dict[str, object]

CLIENT = f"substrat.Client {__version__}"
BACK_WITHIN_S = 60.0
"""How long a daemon that is being restarted may be away: an upgrade with a thousand agents takes seconds."""
_GRACE_S = 1.0
"""How much longer than `timeout` a wait lasts here: the daemon's own answer, which names the agent, goes first."""


class Connection:
    """A conversation that calls any method; make one with `connect`.

    Args:
        path: the operator socket.
        client: how this program names itself in `hello`.
        stream: the connected socket.
    """

    def __init__(self, path: str, client: str, stream: UNIXSocketStream) -> None:
        self._path = path
        self._client = client
        self._stream = stream
        self._conversation = ClientConversation(client, path)
        self._sending = anyio.Lock()
        self._news = anyio.Event()
        self._broken: errors.SubstratError | None = None

    @property
    def server(self) -> Object:
        """The daemon's answer to `hello`."""
        return self._conversation.server

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, socket: str | None = None, *, patience: float | None = None, client: str = CLIENT
    ) -> AsyncIterator[Self]:
        """Open a conversation that lasts as long as the context.

        Args:
            socket: the operator socket; by default the one the environment names.
            patience: how many seconds the daemon has to take the connection and to answer `hello`; None is no limit.
            client: this program's name and version, for `hello`.

        Raises:
            DaemonNotRunning: no daemon listens there, or it didn't answer in time.
        """
        path = socket if socket is not None else paths.operator_socket()
        began = anyio.current_time()
        with _answered_within(path, patience):
            stream = await open_stream(path)
        connection = cls(path, client, stream)
        failure: Exception | None = None
        async with stream, anyio.create_task_group() as tasks:
            tasks.start_soon(connection._read)
            try:
                with _answered_within(path, None if patience is None else began + patience - anyio.current_time()):
                    await connection._greet()
                yield connection
            except Exception as problem:
                failure = problem
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def call(self, method: str, **params: object) -> object:
        """Call any method of the protocol.

        Cancelling it leaves the connection whole, unless its line was being sent: nobody knows how much of the line
        went out, so the connection has ended then.

        Args:
            method: its name.
            params: its parameters; those that are None are left out.

        Returns:
            Its result.

        Raises:
            SubstratError: the error that the daemon answered with.
            ConnectionLost: the daemon went away, or the connection has ended before.
        """
        number, line = self._conversation.request(method, params)
        try:
            async with self._sending:
                await self._send(line)
            await self._until(lambda: self._conversation.has_answer(number))
            return self._conversation.take_answer(number)
        finally:
            self._conversation.forget(number)

    async def call_waiting(self, method: str, params: Object, seconds: float | None, reconnect: float) -> object:
        """Call a method that waits, and go on with the daemon that comes back when it goes away meanwhile.

        Args:
            method: its name; it takes `timeout`.
            params: its other parameters.
            seconds: the longest to wait; None is no limit.
            reconnect: how many seconds the daemon may be away; 0: the wait ends when it goes away.

        Raises:
            WaitTimedOut: it took longer.
            ConnectionLost: the daemon went away, and `reconnect` is 0.
            DaemonNotRunning: the daemon went away and didn't come back in time.
        """
        began = anyio.current_time()
        with anyio.move_on_after(None if seconds is None else max(0.0, seconds) + _GRACE_S):
            try:
                return await self.call(method, **params, timeout=seconds)
            except errors.ConnectionLost:
                if reconnect <= 0:
                    raise
            while True:
                left = None if seconds is None else max(0.0, began + seconds - anyio.current_time())
                try:
                    async with self._back_within(reconnect) as other:
                        return await other.call(method, **params, timeout=left)
                except errors.ConnectionLost:
                    continue  # it has gone away once more
        raise errors.WaitTimedOut(f"the daemon at {self._path} has not answered within {seconds:g} s")

    @asynccontextmanager
    async def _back_within(self, seconds: float) -> AsyncIterator[Connection]:
        """Connect to a daemon that is being started, again and again.

        Raises:
            DaemonNotRunning: it took longer than so many seconds.
        """
        deadline = anyio.current_time() + seconds
        while True:
            connected = False
            try:
                patience = deadline - anyio.current_time()
                async with Connection.connect(self._path, patience=patience, client=self._client) as connection:
                    connected = True
                    yield connection
                    return
            except (errors.DaemonNotRunning, errors.ConnectionLost):
                if connected or anyio.current_time() >= deadline:
                    raise
            await anyio.sleep(PAUSE_S)

    async def _greet(self) -> None:
        async with self._sending:
            await self._send(self._conversation.hello())
        await self._until(lambda: bool(self.server))

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
        """Send a whole line; raises `ConnectionLost` if the connection has ended."""
        if self._broken is not None or self._conversation.problem is not None:
            self._raise_end()
        # A stream begins with a checkpoint, where a cancellation would be taken for one in the middle of the line.
        rest = line[send_now(self._stream, line) :]
        if not rest:
            return
        try:
            await self._stream.send(rest)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The daemon may have said why before it closed; the reader finds out, and ends all waits.
            return
        except anyio.get_cancelled_exc_class():
            # The next line would be read as the end of this one.
            self._broken = errors.ConnectionLost(
                "a request was cancelled while it was being sent, which ends the connection: connect again"
            )
            close_sending(self._stream)
            raise

    def _raise_end(self) -> None:
        """Raise the error that has ended the connection."""
        if self._broken is not None:
            raise errors.ConnectionLost(self._broken.message)
        self._conversation.check()

    async def _read(self) -> None:
        try:
            # Below, every task that waits learns of the end.
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while self._conversation.problem is None:
                    self._conversation.receive(await self._stream.receive(CHUNK))
                    # Events come over connections of their own; of a subscription made by `call` no task takes any.
                    self._conversation.notifications.clear()
                    self._news.set()
                    self._news = anyio.Event()
        finally:
            self._conversation.receive(b"")
            self._news.set()


@contextmanager
def _answered_within(path: str, seconds: float | None) -> Iterator[None]:
    """Bound the time of the block; raises `DaemonNotRunning` if it took longer."""
    with anyio.move_on_after(None if seconds is None else max(0.0, seconds)) as scope:
        yield
    if scope.cancelled_caught:
        raise errors.DaemonNotRunning(f"the daemon at {path} doesn't answer: look into its log, or start it again")
