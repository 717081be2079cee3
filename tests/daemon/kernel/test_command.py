"""A command of the person's: it ends in time whatever it does, and the kernel may hold it beyond that."""

import os
import sys

import pytest
import trio

from substrat.daemon.kernel import command
from tests.daemon.kernel.conftest import PATIENCE

FLOODS = "trap '' INT TERM HUP QUIT PIPE; echo $$ > pid; for _ in 1 2; do cat /dev/zero >&2 & done; while :; do wait; done"
HOLDS = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616D61, ctypes.c_ulong(-1 & 2**64 - 1), 0, 0, 0)  # PR_SET_PTRACER: anybody may trace this process
held = os.getpid()
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()  # the tracer outlives the killing of the group
    traces = libc.ptrace(0x4206, held, None, ctypes.c_void_p(1 << 6)) == 0  # PTRACE_SEIZE, PTRACE_O_TRACEEXIT
    os.write(writing, b"y" if traces else b"n")
    patience = time.monotonic() + 60
    while traces and not os.path.exists("release") and time.monotonic() < patience:
        time.sleep(0.01)
    os._exit(0)
with open("pid", "w") as file:
    file.write(str(held) if os.read(reading, 1) == b"y" else "0")
time.sleep(1000)
"""
"""It is traced to its exit: the kernel holds it there once it is killed, as on a dead mount, until a file is made."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty directory, for a moment at most."""
    monkeypatch.chdir(tmp_path)

    async def run(words, reapers):
        with trio.fail_after(PATIENCE):
            return await command.run(words, {"PATH": os.environ["PATH"]}, b"", 1, reapers)

    return run


def pid_of(directory):
    return int((directory / "pid").read_text())


async def test_one_that_ignores_signals_and_floods_is_ended_and_leaves_no_process(run, tmp_path):
    async with trio.open_nursery() as reapers:
        ended = await run(["sh", "-c", FLOODS], reapers)
        assert ended.code is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid_of(tmp_path), 0)


async def test_one_that_the_kernel_holds_is_reaped_once_it_is_let_go(run, tmp_path):
    async with trio.open_nursery() as reapers:
        ended = await run([sys.executable, "-I", "-S", "-c", HOLDS], reapers)
        assert ended.code is None
        if not (held := pid_of(tmp_path)):
            pytest.skip("this machine lets no process trace another one")
        os.kill(held, 0)
        assert len(reapers.child_tasks) == 1
        (tmp_path / "release").touch()
    with pytest.raises(ProcessLookupError):
        os.kill(held, 0)


async def test_cancelling_kills_it_and_waits_elsewhere(run, tmp_path):
    os.mkfifo(tmp_path / "begun")
    async with trio.open_nursery() as reapers, trio.open_nursery() as callers:
        callers.start_soon(run, ["sh", "-c", "echo $$ > pid; echo > begun; exec sleep 1000"], reapers)
        await trio.to_thread.run_sync((tmp_path / "begun").read_bytes)
        callers.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid_of(tmp_path), 0)
