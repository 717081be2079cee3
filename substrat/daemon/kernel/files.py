"""Calls functions that touch files of others in processes beside the daemon, which a dead file system can't hold up.

A call on a mount whose server stands still (FUSE, NFS) comes back when the server answers, and until then the kernel may
not even kill the process that made it (fs/fuse/dev.c, `request_wait_answer`). A daemon with a thread in there would keep
its locks, and no other could start. So no path below a workspace, a bind or the person's chats is touched in the daemon:
a function that does so runs in a worker, over values that can be pickled. One that makes no progress for five seconds is
given up: its caller gets `NoAnswer`, and its worker is killed, which happens when the kernel lets it go.

    protected = await files.run(workspace, workspace_scan.scan, workspace, shared, own)
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from substrat.daemon.kernel import descriptors, file_server, process, procfs
from substrat.errors import DescriptorsUsedUp, StateUnusable, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
_PATIENCE = 5
"""Seconds without progress: a healthy disk answers in milliseconds, one that spins up in a few seconds."""
_MOST = 16
"""Workers at a time, those that hang apart; further calls wait for one."""
_KEPT = 2
"""Workers that are kept for further calls: forking one takes some milliseconds."""
_KILL_SECONDS, _KILL_PAUSE = 1.0, 0.01
"""A killed worker that the kernel doesn't hold ends in milliseconds; how often it is looked at meanwhile."""
_PIECE = 1 << 20
"""Bytes that are sent or received at once."""
_DESCRIPTOR_BYTES = array.array("i").itemsize


class NoAnswer(WorkspaceUnusable):
    """A file system has stood still for too long, or the worker that looked at it was killed."""


class _Worker(NamedTuple):
    """A file worker, for example `_Worker(4711, 12, <socket>)`."""

    pid: int
    pidfd: int
    connection: trio.socket.SocketType

    def close(self) -> None:
        """Let it end: it reads the end of its connection."""
        self.connection.close()
        os.close(self.pidfd)


class _Killed(NamedTuple):
    """A worker that was killed, for which place, and until when it isn't thought to hang, on the loop's clock."""

    place: str
    ends_by: float


class _Answered(NamedTuple):
    """What a worker has answered: what its function returned, or raised, or opened."""

    answer: Any
    problem: Exception | None
    opened: tuple[int, ...]


class Files:
    """The file workers of one daemon.

    Args:
        server: the connection to the server that forks them (`file_server.start`).
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._idle: list[_Worker] = []
        self._killed: dict[int, _Killed] = {}
        """The workers that were killed and may not have ended, by their pidfds."""
        self._limit = trio.CapacityLimiter(_MOST)

    def close(self) -> None:
        """Let all workers end, those that hang when the kernel lets them go."""
        for worker in self._idle:
            worker.close()
        for pidfd in self._killed:
            os.close(pidfd)
        self._idle, self._killed = [], {}

    async def run(self, place: str, function: Callable[..., T], *arguments: object, given: tuple[int, ...] = ()) -> T:
        """Call a function in a worker; it is killed where the caller is cancelled.

        Args:
            place: the directory whose files it touches, for the sentence of an error.
            function: a function of a module.
            arguments: its arguments.
            given: descriptors, which it gets as its last arguments, under numbers of the worker's.

        Raises:
            NoAnswer: it made no progress for five seconds, an earlier function of the same place still hangs, or the worker
                was killed.
            DescriptorsUsedUp: this process has no descriptor for a worker.
            Exception: what the function raises.
        """
        found: T = (await self._call(place, function, arguments, given)).answer
        return found

    async def open(self, place: str, function: Callable[..., tuple[int, ...]], *arguments: object) -> tuple[int, ...]:
        """Call a function that opens files in a worker, and return their descriptors, which the caller closes.

        Arguments and errors are those of `run`.

        Raises:
            DescriptorsUsedUp: this process can't have so many.
        """
        return (await self._call(place, function, arguments, opens=True)).opened

    async def _call(
        self,
        place: str,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        given: tuple[int, ...] = (),
        *,
        opens: bool = False,
    ) -> _Answered:
        await self._refuse_hanging(place)
        data = pickle.dumps((function, arguments, opens))
        async with self._limit:
            worker = self._idle.pop() if self._idle else await self._forked()
            answered = None
            try:
                answered = await _exchange(worker, data, given)
            except (ConnectionResetError, BrokenPipeError):
                raise NoAnswer(f"{place} was not looked at: the process that did it was killed, try again") from None
            finally:
                self._put_back(worker) if answered is not None else self._kill(worker, place)
        if answered is None:
            raise _no_answer(place)
        if answered.problem is not None:
            raise answered.problem
        return answered

    async def _refuse_hanging(self, place: str) -> None:
        """Raise `NoAnswer` where a worker still hangs at the same place, so that each dead place holds one worker."""
        for pidfd, killed in list(self._killed.items()):
            while killed.place == place and not process.has_ended(pidfd):
                if trio.current_time() > killed.ends_by:
                    raise _no_answer(place)
                await trio.sleep(_KILL_PAUSE)
            if pidfd in self._killed and process.has_ended(pidfd):
                del self._killed[pidfd]
                os.close(pidfd)

    async def _forked(self) -> _Worker:
        try:
            connection = trio.socket.from_stdlib_socket(file_server.ask_for_worker(self._server))
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            raise StateUnusable("the process that forks those that look at files is gone: restart substratd") from None
        try:
            pid, _ = file_server.HEAD.unpack(await _exactly(connection, file_server.HEAD.size))
            return _Worker(pid, os.pidfd_open(pid), connection)
        except BaseException as problem:
            connection.close()
            if isinstance(problem, OSError):
                descriptors.refuse_shortage(problem)
            raise

    def _put_back(self, worker: _Worker) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(worker)
        else:
            worker.close()

    def _kill(self, worker: _Worker, place: str) -> None:
        process.kill(worker.pidfd)
        worker.connection.close()
        self._killed[worker.pidfd] = _Killed(place, trio.current_time() + _KILL_SECONDS)


def close_all(opened: Iterable[int]) -> None:
    """Close descriptors."""
    for descriptor in opened:
        os.close(descriptor)


def _no_answer(place: str) -> NoAnswer:
    return NoAnswer(f"{place} doesn't answer: look at its file system (`stat -f` there hangs too), or unmount it")


async def _exchange(worker: _Worker, data: bytes, given: tuple[int, ...]) -> _Answered | None:
    """Send a message to a worker and return its answer, None where it makes no progress for too long."""
    message, sent = file_server.HEAD.pack(len(data), len(given)) + data, 0
    while sent < len(message):
        sent += await worker.connection.send(message[sent : sent + _PIECE])
    if given:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))]
        await worker.connection.sendmsg([file_server.MARK], rights)
    if not await _is_answered(worker):
        return None
    length, count = file_server.HEAD.unpack(await _exactly(worker.connection, file_server.HEAD.size))
    answer, problem = pickle.loads(await _exactly(worker.connection, length))  # noqa: S301 - of a process of ours
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened += await _receive_descriptors(worker.connection)
    except BaseException:
        close_all(opened)
        raise
    return _Answered(answer, problem, tuple(opened))


async def _is_answered(worker: _Worker) -> bool:
    """Wait for a worker's answer as long as it makes progress; says whether there is one."""
    before, still = None, 0
    while still < _PATIENCE:
        with trio.move_on_after(1):
            await trio.lowlevel.wait_readable(worker.connection)
            return True
        now = procfs.progress(worker.pid)
        before, still = now, still + 1 if now is not None and now == before else 0
    return False


async def _receive_descriptors(connection: trio.socket.SocketType) -> list[int]:
    space = socket.CMSG_SPACE(file_server.MOST_AT_ONCE * _DESCRIPTOR_BYTES)
    _, ancillary, flags, _ = await connection.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
    received = array.array("i")
    for _, _, data in ancillary:
        received.frombytes(data[: len(data) - len(data) % _DESCRIPTOR_BYTES])
    if flags & socket.MSG_CTRUNC:
        close_all(received)
        raise DescriptorsUsedUp(descriptors.sentence(OSError(errno.EMFILE, "")))
    return list(received)


async def _exactly(connection: trio.socket.SocketType, length: int) -> bytes:
    """Read so many bytes; raises `ConnectionResetError` if the worker has ended."""
    data = bytearray()
    while len(data) < length:
        piece = await connection.recv(min(length - len(data), _PIECE))
        if not piece:
            raise ConnectionResetError
        data += piece
    return bytes(data)
