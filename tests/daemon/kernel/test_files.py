"""Functions that file workers call, and the file systems that hold these up."""

import os
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from substrat.daemon.kernel import file_server, files, process
from substrat.daemon.kernel.files import Files, NoAnswer
from substrat.errors import WorkspaceUnusable
from tests.support.dead_mount import mounted
from tests.support.waiting import wait_until

SERVER = "import socket; from substrat.daemon.kernel import file_server; file_server.serve(socket.socket(fileno=0))"


def refuse(path):
    raise WorkspaceUnusable(f"{path} won't do")


def descriptors(path, count):
    return tuple(os.open(path, os.O_PATH) for _ in range(count))


@pytest.fixture
async def workers(monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            command, root = [sys.executable, "-c", SERVER], Path(__file__).parents[3]
            server = await trio.lowlevel.open_process(command, stdin=theirs.fileno(), cwd=root)
        with closing(Files(ours)) as files_of_daemon:
            yield files_of_daemon
    await server.wait()


async def test_what_a_function_returns_raises_and_opens_comes_back(workers, tmp_path):
    place = str(tmp_path)
    assert await workers.run(place, "x".join, ["y"] * (1 << 20)) == "x".join(["y"] * (1 << 20))
    with pytest.raises(WorkspaceUnusable, match="won't do"):
        await workers.run(place, refuse, place)
    with pytest.raises(FileNotFoundError) as raised:
        await workers.run(place, os.lstat, f"{place}/none")
    assert raised.value.filename == f"{place}/none"
    opened = await workers.open(place, descriptors, place, file_server.MOST_AT_ONCE + 1)
    try:
        assert {os.fstat(one).st_ino for one in opened} == {tmp_path.stat().st_ino}
        assert len(opened) == file_server.MOST_AT_ONCE + 1
        assert not any(map(os.get_inheritable, opened))
    finally:
        files.close_all(opened)


async def test_calls_run_side_by_side_and_workers_are_used_again(workers, tmp_path):
    found = set()

    async def call():
        found.add(await workers.run(str(tmp_path), os.getpid))

    for _ in range(3):
        async with trio.open_nursery() as nursery:
            for _ in range(files._KEPT):
                nursery.start_soon(call)
    assert 1 <= len(found) <= files._KEPT
    assert os.getpid() not in found


async def test_one_that_is_cancelled_or_killed_leaves_no_worker_and_the_next_call_works(workers, tmp_path):
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with trio.move_on_after(0.1):
        await workers.run(fifo, Path.read_bytes, Path(fifo))
    assert await workers.run(fifo, os.path.basename, fifo) == "fifo"
    assert not workers._killed
    with pytest.raises(NoAnswer, match=f"{tmp_path} was not looked at: the process that did it was killed, try again"):
        await workers.run(str(tmp_path), signal.raise_signal, signal.SIGKILL)
    assert await workers.run(str(tmp_path), os.path.basename, "/a/b") == "b"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
async def test_a_file_system_that_stands_still_holds_up_its_own_calls_alone(workers, tmp_path):
    dead = tmp_path / "dead"
    dead.mkdir()
    with mounted(dead) as mount:
        assert await workers.run(str(dead), os.listdir, str(dead)) == []
        mount.stand_still()
        with pytest.raises(NoAnswer, match=f"{dead} doesn't answer"):
            await workers.run(str(dead), os.listdir, str(dead))
        (pidfd,) = workers._killed
        assert not process.has_ended(pidfd), "the kernel holds it"
        with pytest.raises(NoAnswer):
            await workers.run(str(dead), os.listdir, str(dead))
        assert await workers.run(str(tmp_path), os.path.isdir, str(tmp_path))
        assert [*workers._killed] == [pidfd], "nothing was started for the second call"
    wait_until(lambda: process.has_ended(pidfd), "its end")
    assert await workers.run(str(dead), os.listdir, str(dead)) == []
