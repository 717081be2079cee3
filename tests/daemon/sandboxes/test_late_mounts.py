"""A sandbox waits for its late mounts, and its program begins only when all of them were made."""

import subprocess

import pytest
import trio

from sandbox import bwrap, launch
from sandbox.spec import Bind, Spec, Tmpfs
from substrat.daemon.sandboxes.late_mounts import LateMounts

INNER = Bind("/data/inner", "/data/inner", held=True, late=True)
SPEC = Spec(("echo", "begun"), (), (INNER, Bind("/data", "/data", writable=True, held=True), Tmpfs("/run/substrat")), "/")


class Reports:
    """bubblewrap's reports of one sandbox."""

    root = "/nonexistent"

    def __init__(self, first):
        self._first = first

    def read_status(self):
        return f'{{"child-pid": {self._first}}}\n'.encode()


async def began(late, *, mounts=True):
    """Let a sandbox's first program wait for late mounts; returns its exit status, output and errors."""
    given = f'exec {bwrap.GATE_FD}<&0 </dev/null; exec "$@"'
    line = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", given, "sh", *bwrap.GATE, *SPEC.command)
    pipe = subprocess.PIPE
    waiting = await trio.lowlevel.open_process(line, stdin=late.inside, stdout=pipe, stderr=pipe)
    async with waiting.stdout, waiting.stderr:
        if mounts:
            await late.mount(Reports(waiting.pid))
        else:
            late.close()
        output, errors = [b"".join([piece async for piece in stream]) for stream in (waiting.stdout, waiting.stderr)]
        return await waiting.wait(), output.decode(), errors.decode()


def test_bubblewrap_mounts_late_ones_apart_and_a_shell_mounts_them_in_their_places():
    started = launch.start("/usr/bin/bwrap", SPEC)
    options = started.options.decode().split("\0")
    assert options[options.index("/run/substrat/late/0") - 1] == "/data/inner"
    assert "/data/inner" not in options[options.index("/run/substrat/late/0") :]
    assert started.late == (("/run/substrat/late/0", "/data/inner"),)
    assert started.command[-len(bwrap.GATE) - 2 :] == (*bwrap.GATE, "echo", "begun")
    shell = bwrap.arguments(SPEC)
    assert shell[shell.index("/data/inner") + 1] == "/data/inner"
    assert shell.index("/data") < shell.index("/data/inner")


@pytest.mark.parametrize(("moves", "mounts", "said"), [
    ((("/nonexistent/late/0", "/nonexistent/data"),), True, "can't mount /nonexistent/late/0: No such file or directory"),
    ((), False, "can't mount: substratd has given up"),
], ids=["one isn't there", "the daemon ends"])  # fmt: skip
async def test_where_a_late_mount_is_not_made_nothing_begins(moves, mounts, said):
    assert await began(LateMounts(moves), mounts=mounts) == (1, "", f"substrat: {said}\n")


async def test_the_program_begins_when_all_were_made():
    assert await began(LateMounts(())) == (0, "begun\n", "")


async def test_a_sandbox_that_ends_meanwhile_is_left_alone():
    late = LateMounts(())
    with trio.fail_after(10):
        await late.mount(Reports(1))
