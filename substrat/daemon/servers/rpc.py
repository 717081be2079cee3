"""Serves one JSON-RPC connection: framing, greeting, limits, requests in flight; the methods are passed in.

A client that stops reading blocks only its own answers and subscriptions: each is sent by a task of this connection, and
nothing is queued for it elsewhere. One that takes nothing for a minute is disconnected.
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import structlog
import trio

from substrat.core.agents.records import BY_OPERATOR
from substrat.daemon.kernel import sockets
from substrat.daemon.servers.methods import request
from substrat.daemon.servers.methods.request import Encoded, Last
from substrat.errors import (
    HelloRequired,
    InternalError,
    InvalidRequest,
    MessageTooLarge,
    MethodNotFound,
    SubstratError,
    TooManyRequests,
)
from substrat.protocol import framing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from substrat.daemon.servers.methods.request import OperatorRequest

log = structlog.get_logger("substrat.rpc")

_BY = re.compile(r"web|ssh:[A-Za-z0-9._@:-]{1,255}")
"""Clients whose events name them; all others count as `ctl`."""
_MAX_SUBSCRIPTIONS = 64
"""One for each agent on a screen; each costs a task."""
_OUTBOX_BYTES = 1024 * 1024
"""Bytes on their way to a client beside which nothing more is taken for it: some hundred answers, so that a client that
sends as many requests before it reads and this end don't wait for each other."""
_PAGE_ROOM = 64 * 1024
"""Bytes on their way to a client beside which a subscription makes its next page: one page ahead keeps a socket busy."""
_PIECE = 16 * 1024
"""Bytes written at once. The kernel frees them when the client has read them all (unix_stream_read_generic in Linux's
net/unix/af_unix.c), so a client that reads as many in `STALLED_SECONDS` is seen to read."""
STALLED_SECONDS = 60.0
"""How long a client may take nothing while something waits for it. A pager that a person looks at, a laptop that wakes and
a debugger are back after seconds; substratctl's followers, and all that keep their cursor, come back without a loss."""
_GOODBYE_SECONDS = 5.0
"""How long answers to a client that has closed its sending side are still worked on: `nc` users get theirs."""


class _Stalled(Exception):
    """The client has taken nothing for too long."""


class Methods(Protocol):
    """The methods of a socket."""

    def find(self, method: str) -> type[OperatorRequest] | None:
        """Return the class of a method; None: there is none of that name."""

    async def perform(self, request: OperatorRequest, connection: ClientConnection) -> object:
        """Carry a request out and return its result."""


class _Outbox:
    """The bytes on their way to a client, up to a bound; a task that has more to send waits."""

    def __init__(self) -> None:
        self._held: deque[bytes] = deque()
        self.size = 0
        """How many bytes are on their way."""
        self._filled = trio.Event()
        # Not a Condition, whose lock costs the loop a round each time that no task waits, and a follower several an event.
        self._emptied = trio.lowlevel.ParkingLot()
        self._closed = False

    async def room(self, most: int) -> None:
        """Wait until at most so many bytes are on their way."""
        while self.size > most and not self._closed:
            await self._emptied.park()

    async def put(self, *pieces: bytes) -> None:
        """Take whole lines, in pieces, as soon as there is room; others have their turn first."""
        await trio.lowlevel.checkpoint()
        await self.room(_OUTBOX_BYTES)
        if self._closed:
            raise trio.BrokenResourceError
        self._held.extend(pieces)
        self.size += sum(map(len, pieces))
        self._filled.set()

    async def pump(self, stream: trio.SocketStream) -> None:
        """Send the bytes that are put until cancelled or the client is gone.

        Raises:
            BrokenResourceError: the client is gone.
            _Stalled: it takes nothing.
        """
        try:
            while True:
                await self._filled.wait()
                data = self._taken()
                rest = memoryview(data)
                while rest:
                    sent = await _send_piece(stream, rest[:_PIECE])
                    rest = rest[sent:]
                self.size -= len(data)
                self._emptied.unpark_all()
        except OSError as problem:
            raise trio.BrokenResourceError from problem
        finally:
            self._closed = True

    def _taken(self) -> bytes:
        """Take some of the pieces: a long answer has many, of which only a few are copied at a time."""
        taken, size = [], 0
        while self._held and size < _OUTBOX_BYTES:
            taken.append(self._held.popleft())
            size += len(taken[-1])
        if not self._held:
            self._filled = trio.Event()
        return b"".join(taken)

    async def drained(self) -> None:
        """Wait until all of it was sent."""
        while self.size and not self._closed:
            await self._emptied.park()


async def _send_piece(stream: trio.SocketStream, piece: memoryview) -> int:
    """Send some bytes as soon as the socket takes any, and return how many.

    Raises:
        OSError: the client is gone.
        _Stalled: it has read nothing from the socket for `STALLED_SECONDS`.
    """
    unread = sockets.unread_by_peer(stream)
    while True:
        with trio.move_on_after(STALLED_SECONDS):
            return await stream.socket.send(piece)
        # A socket takes more only when most of it was read; the unread bytes show whether the client is merely slow.
        before, unread = unread, sockets.unread_by_peer(stream)
        if unread >= before:
            raise _Stalled


class ClientConnection:
    """A client's connection.

    Args:
        stream: the socket.
        methods: the methods it may ask for.
        greeted: called after `hello`.
    """

    def __init__(self, stream: trio.SocketStream, methods: Methods, greeted: Callable[[], None] = lambda: None) -> None:
        self._stream = stream
        self._methods = methods
        self._outbox = _Outbox()
        self._feeding = trio.Lock()
        self._client: str | None = None
        self.by = BY_OPERATOR
        self._greeted = False
        self._on_greeted = greeted
        self._in_flight: set[object] = set()
        self._unsent = 0
        self._answered = trio.Event()
        self._subscriptions: dict[int, trio.CancelScope] = {}
        self._numbers = 0
        self._nursery: trio.Nursery | None = None

    async def serve(self) -> None:
        """Answer requests until the client closes the connection or breaks the framing."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._pump, nursery.cancel_scope)
            try:
                await self._take_lines(nursery)
            except trio.BrokenResourceError:
                log.debug("a client went away")
            with trio.move_on_after(_GOODBYE_SECONDS):
                await self._say_goodbye()
            nursery.cancel_scope.cancel()

    async def _take_lines(self, nursery: trio.Nursery) -> None:
        try:
            async for line in sockets.lines(self._stream, framing.MAX_LINE):
                await self._take(line, nursery)
        except MessageTooLarge as problem:
            await self.send(framing.failure(None, problem))

    async def _pump(self, everything: trio.CancelScope) -> None:
        try:
            await self._outbox.pump(self._stream)
        except trio.BrokenResourceError:
            log.debug("a client went away")
            everything.cancel()
        except _Stalled:
            log.warning(
                "a client that took nothing was disconnected", client=self._client, seconds=STALLED_SECONDS,
                pid=sockets.peer_pid(self._stream), waiting_bytes=self._outbox.size,
            )  # fmt: skip
            everything.cancel()

    async def _say_goodbye(self) -> None:
        """Let requests that came before the client closed its side be answered."""
        for number in list(self._subscriptions):
            self.unsubscribe(number)
        while self._unsent:
            self._answered = trio.Event()
            await self._answered.wait()
        await self._outbox.drained()

    async def send(self, *pieces: bytes) -> None:
        """Send whole lines, in pieces; lines of different tasks never mix.

        Raises:
            BrokenResourceError: the client is gone.
        """
        await self._outbox.put(*pieces)

    @asynccontextmanager
    async def room_for_page(self) -> AsyncIterator[None]:
        """Wait until this is the one subscription that makes a page, and little else is on its way to the client.

        A client that doesn't read is then held a page for all its subscriptions, not one for each.
        """
        async with self._feeding:
            await self._outbox.room(_PAGE_ROOM)
            yield

    def subscribe(self, run: Callable[[int], Awaitable[None]]) -> int:
        """Start a task that sends notifications until it is unsubscribed or the connection ends.

        Args:
            run: the task; it is given the subscription's number.

        Returns:
            The number.

        Raises:
            TooManyRequests: the connection has too many already.
        """
        if len(self._subscriptions) >= _MAX_SUBSCRIPTIONS:
            raise TooManyRequests(f"a connection may have {_MAX_SUBSCRIPTIONS} subscriptions: end some, or open another")
        self._numbers += 1
        number = self._numbers
        scope = self._subscriptions[number] = trio.CancelScope()

        async def task() -> None:
            with scope:
                await self._fail_alone(run(number))
            self._subscriptions.pop(number, None)

        assert self._nursery is not None
        self._nursery.start_soon(task)
        return number

    def unsubscribe(self, number: int) -> bool:
        """End a subscription; says whether there was one."""
        scope = self._subscriptions.pop(number, None)
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def _fail_alone(self, work: Awaitable[None]) -> None:
        """Let a task of this connection fail alone; the connection ends, so that its client waits no more."""
        try:
            await work
        except trio.BrokenResourceError:
            log.debug("a client went away")
        except Exception as problem:
            error_id = secrets.token_hex(4)
            log.exception("a connection's task broke", client=self._client, error_id=error_id)
            told = InternalError(f"an internal error, {error_id} in substratd's log")
            await self._break(problem if isinstance(problem, SubstratError) else told)

    async def _break(self, problem: SubstratError) -> None:
        """Tell the client why its connection ends, and end it."""
        assert self._nursery is not None
        with suppress(trio.BrokenResourceError), trio.move_on_after(_GOODBYE_SECONDS):
            await self.send(framing.failure(None, problem))
            await self._outbox.drained()
        self._nursery.cancel_scope.cancel()

    async def _take(self, line: bytes, nursery: trio.Nursery) -> None:
        request_id: object = None
        try:
            message = framing.decode(line)
            request_id = message.get("id")
            asked = self._checked(message)
        except SubstratError as problem:
            known = isinstance(request_id, int | str) and not isinstance(request_id, bool)
            await self.send(framing.failure(request_id if known else None, problem))
            return
        self._in_flight.add(request_id)
        self._unsent += 1
        if asked.waits:
            nursery.start_soon(self._fail_alone, self._answer(request_id, asked))
        else:
            # One after the other: a client's requests are carried out in their order, and a page of events is only made
            # when the one before is on its way.
            await self._answer(request_id, asked)

    def _checked(self, message: dict[str, object]) -> OperatorRequest:
        request_id, name = message.get("id"), message.get("method")
        if message.get("jsonrpc") != "2.0" or not isinstance(name, str):
            raise InvalidRequest('a request needs "jsonrpc": "2.0" and a "method"')
        if isinstance(request_id, bool) or not isinstance(request_id, int | str):
            raise InvalidRequest('a request needs an "id", a number or a string; this socket takes no notifications')
        if request_id in self._in_flight:
            raise InvalidRequest(f"the id {request_id!r} is in flight already: number requests anew")
        # Counted until the answer is sent, so that a client that doesn't read can't pile answers up here.
        if self._unsent >= framing.MAX_IN_FLIGHT:
            raise TooManyRequests(f"a connection may have {framing.MAX_IN_FLIGHT} requests in flight: wait for answers")
        kind = self._methods.find(name)
        if kind is None:
            raise MethodNotFound(f"there is no method {name!r}")
        if name != "hello" and not self._greeted:
            raise HelloRequired("the first request on a connection must be `hello`")
        return request.parse(kind, message.get("params"))

    def greet(self, client: str | None) -> None:
        """Note that the client's `hello` has succeeded; from now on it may call other methods."""
        self._client = client
        self.by = client if client is not None and _BY.fullmatch(client) else BY_OPERATOR
        log.debug("hello", client=client)
        self._greeted = True
        self._on_greeted()

    async def _answer(self, request_id: object, asked: OperatorRequest) -> None:
        then: Callable[[], None] | None = None
        try:
            result = await self._methods.perform(asked, self)
            if isinstance(result, Last):
                result, then = result
            if isinstance(result, Encoded):
                answer = framing.success_encoded(request_id, result.pieces)
            else:
                answer = [framing.success(request_id, result)]
        except SubstratError as problem:
            answer = [framing.failure(request_id, problem)]
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("a method broke", method=asked.method, error_id=error_id)
            answer = [framing.failure(request_id, InternalError(f"an internal error, {error_id} in substratd's log"))]
        self._in_flight.discard(request_id)
        await self.send(*answer)
        self._unsent -= 1
        self._answered.set()
        if then is not None:
            with trio.move_on_after(_GOODBYE_SECONDS):
                await self._outbox.drained()
            then()
