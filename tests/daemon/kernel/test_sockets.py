"""Unix sockets: at any path length, with the right mode, lines within bounds, one broken connection harming none."""

import errno
import itertools
import os
import resource
import socket
import stat

import pytest
import structlog
import trio
import trio.testing

from substrat.daemon.kernel import sockets
from substrat.errors import MessageTooLarge, StateUnusable
from substrat.paths import short_socket_path

PATIENCE = 20


async def connect(path):
    spelling, directory = short_socket_path(str(path))
    try:
        return await trio.open_unix_socket(spelling)
    finally:
        if directory is not None:
            os.close(directory)


@pytest.mark.parametrize("length", [1, 90, 200])
async def test_any_path_length(tmp_path, length):
    directory = tmp_path / ("d" * length) / ("e" * length)
    directory.mkdir(parents=True)
    path = directory / "s.sock"
    descriptors = len(os.listdir("/proc/self/fd"))
    async with (
        sockets.listen(str(path), 0o600) as listener,
        await connect(path) as client,
        await listener.accept() as server,
    ):
        assert len(os.listdir("/proc/self/fd")) == descriptors + 3
        await client.send_all(b"x")
        assert await server.receive_some() == b"x"
    assert path.is_socket()


@pytest.mark.parametrize("mode", [0o600, 0o666])
async def test_the_mode_is_the_one_given_whatever_the_umask(tmp_path, mode):
    before = os.umask(0o077)
    try:
        async with sockets.listen(str(tmp_path / "s"), mode):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)


def sending(count):
    """A socket on which a message with so many descriptors arrives."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
        socket.send_fds(theirs, [b"x"], opened)
        for descriptor in opened:
            os.close(descriptor)
    return trio.socket.from_stdlib_socket(ours)


async def test_descriptors_are_received_close_on_exec():
    with sending(6) as ours:
        received = await sockets.receive_descriptors(ours, 6)
        assert len(received) == 6
        for descriptor in received:
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)


@pytest.mark.parametrize("count", [4, 5, 200])
async def test_descriptors_beyond_those_expected_are_closed(count):
    """Rounded up, the space for three is that for four; the kernel drops descriptors that don't fit at all."""
    with sending(count) as ours:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="too long") as caught:
            await sockets.receive_descriptors(ours, 3)
        assert caught.value.errno == errno.EMSGSIZE
        assert os.listdir("/proc/self/fd") == before


async def test_descriptors_for_which_there_is_no_room_are_a_shortage():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with sending(20) as ours:
        opened = os.listdir("/proc/self/fd")
        free = next(number for number in itertools.count() if str(number) not in opened)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 5, before[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                await sockets.receive_descriptors(ours, 20)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert os.listdir("/proc/self/fd") == opened


async def test_a_channel_that_is_closed_brings_no_descriptors():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    with trio.socket.from_stdlib_socket(ours) as end:
        assert await sockets.receive_descriptors(end, 3) == []


async def test_a_socket_that_a_dead_daemon_left_is_replaced(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with sockets.listen(str(path), 0o600), await connect(path):
        pass


async def test_a_directory_that_is_missing_leaves_no_descriptor(tmp_path):
    before = os.listdir("/proc/self/fd")
    for path in (tmp_path / "missing" / "s", tmp_path / ("x" * 150) / "s"):
        with pytest.raises(OSError, match=r".*"):
            sockets.listen(str(path), 0o600)
    assert os.listdir("/proc/self/fd") == before


async def test_who_is_at_the_other_end(tmp_path):
    client, server = await streams(tmp_path)
    async with client, server:
        assert sockets.peer_uid(server) == os.geteuid()


async def streams(tmp_path):
    async with sockets.listen(str(tmp_path / "s"), 0o600) as listener:
        client = await connect(tmp_path / "s")
        return client, await listener.accept()


SENT = [
    ([b"one\ntwo\n"], [b"one", b"two"]),
    ([b"o", b"ne\nt", b"wo\n"], [b"one", b"two"]),
    ([b"\n\n  \n\r\nx\n"], [b"x"]),
    ([b"no end"], []),
    ([b"one\nno end"], [b"one"]),
    ([], []),
    ([b"x" * 200_000 + b"\n"], [b"x" * 200_000]),
]


@pytest.mark.parametrize(("sent", "lines"), SENT, ids=range(len(SENT)))
async def test_lines(tmp_path, sent, lines):
    client, server = await streams(tmp_path)
    found = []

    async def send():
        async with client:
            for data in sent:
                await client.send_all(data)

    with trio.fail_after(PATIENCE):
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(send)
            found.extend([line async for line in sockets.lines(server, 200_000)])
    assert found == lines


async def test_a_line_over_the_limit(tmp_path):
    client, server = await streams(tmp_path)
    async with client, server:
        await client.send_all(b"fine\n" + b"x" * 11)
        lines = sockets.lines(server, 10)
        assert await anext(lines) == b"fine"
        with pytest.raises(MessageTooLarge):
            await anext(lines)


async def test_an_error_in_one_connection_ends_that_one(tmp_path):
    async def serve(stream, _greeted):
        word = await stream.receive_some()
        if word == b"break":
            raise ValueError("broken")
        await stream.send_all(word)

    path = tmp_path / "s"
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sockets.accept_forever, sockets.listen(str(path), 0o600), 10, serve)
            async with await connect(path) as good, await connect(path) as bad:
                await bad.send_all(b"break")
                assert await bad.receive_some() == b""
                await good.send_all(b"echo")
                assert await good.receive_some() == b"echo"
            async with await connect(path):
                pass
            async with await connect(path) as another:
                await another.send_all(b"echo")
                assert await another.receive_some() == b"echo"
            nursery.cancel_scope.cancel()


async def test_more_connections_than_allowed_wait(tmp_path):
    served = []

    async def serve(stream, greeted):
        served.append(await stream.receive_some())
        greeted()
        await stream.send_all(b"seen")
        await stream.receive_some()

    path = tmp_path / "s"
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sockets.accept_forever, sockets.listen(str(path), 0o600), 1, serve)
            first = await connect(path)
            await first.send_all(b"1")
            assert await first.receive_some() == b"seen"
            async with await connect(path) as second:
                await second.send_all(b"2")
                await trio.testing.wait_all_tasks_blocked()
                assert served == [b"1"]
                await first.aclose()
                assert await second.receive_some() == b"seen"
            nursery.cancel_scope.cancel()
    assert served == [b"1", b"2"]


async def echo(stream, greeted):
    while word := await stream.receive_some():
        if word != b"half":
            greeted()
        await stream.send_all(word)


async def exchange(client, word):
    await client.send_all(word)
    return await client.receive_some()


@pytest.fixture
async def accepting(tmp_path, nursery):
    """Accept two connections at a socket; gives a function that connects to it."""
    path = str(tmp_path / "s")
    nursery.start_soon(sockets.accept_forever, sockets.listen(path, 0o600), 2, echo)
    return lambda: connect(path)


async def test_a_connection_that_does_not_greet_is_closed(accepting, autojump_clock):
    began = trio.current_time()
    async with await accepting() as silent, await accepting() as good:
        assert await exchange(silent, b"half") == b"half"
        assert await exchange(good, b"whole") == b"whole"
        assert await silent.receive_some() == b""
        assert sockets.GREETING_SECONDS <= trio.current_time() - began < sockets.GREETING_SECONDS + 2
        assert await exchange(good, b"again") == b"again"
        await trio.sleep(10 * sockets.GREETING_SECONDS)
        assert await exchange(good, b"again") == b"again"


async def test_the_oldest_that_has_not_greeted_makes_room(accepting):
    warnings = []

    def noted(_logger, _method, event):
        warnings.append(event)
        return event

    with structlog.testing.capture_logs(processors=[noted]):
        async with await accepting() as good, await accepting() as first:
            assert await exchange(good, b"whole") == b"whole"
            assert await exchange(first, b"half") == b"half"
            async with await accepting() as second:
                assert await exchange(second, b"half") == b"half"
                assert await first.receive_some() == b""
                async with await accepting() as third:
                    assert await exchange(third, b"whole") == b"whole"
                    assert await second.receive_some() == b""
                    assert await exchange(good, b"again") == b"again"
    (told,) = [one for one in warnings if one["log_level"] == "warning"]
    assert (told["event"], told["limit"], told["pid_of_oldest"]) == ("all connections are taken", 2, os.getpid())


async def test_one_that_ends_just_when_its_place_is_needed(tmp_path):
    """Between the end of one connection and the next, in either order: the tasks of one instant run in any order."""
    path = str(tmp_path / "s")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sockets.accept_forever, sockets.listen(path, 0o600), 1, echo)
            for _ in range(50):
                leaving = await connect(path)
                assert await exchange(leaving, b"half") == b"half"
                leaving.socket.close()
                async with await connect(path) as coming:
                    assert await exchange(coming, b"whole") == b"whole"
            nursery.cancel_scope.cancel()


def passed(**environ):
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", **environ}


@pytest.mark.parametrize("environ", [{}, passed(LISTEN_PID="1"), passed(LISTEN_FDS="0")])
def test_without_a_socket_unit_nothing_is_inherited(environ):
    assert sockets.inherited(environ) is None


@pytest.fixture
def as_third(monkeypatch):
    """Let a descriptor stand for the one that systemd passes on."""

    def put(sock):
        monkeypatch.setattr(sockets, "_FIRST_PASSED_FD", sock.detach())

    return put


async def test_a_socket_that_systemd_holds_is_served(tmp_path, as_third):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "s"))
    sock.listen()
    as_third(sock)
    async with (
        sockets.inherited(passed()) as listener,
        await connect(tmp_path / "s") as client,
        await listener.accept() as server,
    ):
        await client.send_all(b"x")
        assert await server.receive_some() == b"x"
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_something_else_that_is_passed_on_is_refused(as_third, kind):
    as_third(socket.socket(socket.AF_UNIX, kind))
    with pytest.raises(StateUnusable, match="ListenStream"):
        sockets.inherited(passed())
