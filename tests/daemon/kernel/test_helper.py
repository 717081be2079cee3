"""Helper programs: what they are given and answer, how they end, and that none counts as an agent's."""

import os
import re
import signal
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import substrat.daemon
from substrat.core.agents.records import Process
from substrat.daemon.kernel import helper, process, procfs
from substrat.daemon.sandboxes.machine import Machine
from substrat.errors import SandboxFailed
from tests.daemon.kernel.conftest import PATIENCE, ended
from tests.support.waiting import wait_until

SCORE = Path("/proc/self/oom_score_adj")


async def test_its_status_output_and_errors_come_back_and_it_has_what_was_given(tmp_path):
    with (tmp_path / "given").open("w+b") as given:
        number = given.fileno()
        words = f"env; cat; ls /proc/self/fd | wc -l; echo more >&2; echo x > /proc/self/fd/{number}; exit 3"
        done = await helper.run(("/bin/sh", "-c", words), {"A": "b", "PATH": os.environ["PATH"]}, (number,))
    assert (done.returncode, done.stderr) == (3, b"more\n")
    assert b"A=b\n" in done.stdout
    assert done.stdout.endswith(b"\n5\n")
    assert (tmp_path / "given").read_bytes() == b"x\n"


async def test_one_that_cannot_be_started_says_so():
    with pytest.raises(FileNotFoundError):
        await helper.run(("/nowhere/program",), {})


@asynccontextmanager
async def running(words, begun, *, gently):
    """Run a script, and cancel its caller at the end of the block, which starts when a file is there."""
    run = partial(helper.run, ("/bin/sh", "-c", words), {"PATH": os.environ["PATH"]}, gently=gently)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.to_thread.run_sync(wait_until, begun.exists)
            yield
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("gently", [True, False])
async def test_one_whose_caller_is_cancelled_may_tidy_up_unless_it_is_a_look(tmp_path, gently):
    words = f"trap 'touch {tmp_path}/tidied; exit' TERM; touch {tmp_path}/begun; while :; do sleep 0.01; done"
    async with running(words, tmp_path / "begun", gently=gently):
        pass
    assert (tmp_path / "tidied").exists() is gently


@pytest.mark.parametrize("gently", [True, False])
async def test_what_it_has_started_ends_with_it(tmp_path, gently):
    """As the child of a killed bubblewrap, which would wait for ever."""
    words = f"sleep 600 <&- >&- 2>&- & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child; exec sleep 600"
    async with running(words, tmp_path / "child", gently=gently):
        child = int((tmp_path / "child").read_text())
        started = Process(child, procfs.start_time(child) or 0, procfs.boot_id())
    await trio.to_thread.run_sync(wait_until, lambda: not process.is_running(started))


def is_there(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("words", "seconds", "failure"), [
    ("trap '' INT TERM; echo hangs >&2; sleep 600 & while :; do wait; done", 0.5, helper.TookTooLong),
    ("trap '' PIPE; yes >&2 & exec cat /dev/zero", PATIENCE, SandboxFailed),
])  # fmt: skip
async def test_one_that_hangs_or_floods_is_ended_with_all_that_it_has_started(tmp_path, words, seconds, failure):
    with pytest.raises(failure) as raised:
        await helper.run(
            ("/bin/sh", "-c", f"echo $$ > {tmp_path}/group; {words}"), os.environ, seconds=seconds, gently=False
        )
    assert getattr(raised.value, "errors", b"hangs\n") == b"hangs\n"
    group = int((tmp_path / "group").read_text())
    await trio.to_thread.run_sync(wait_until, lambda: not is_there(group))


async def test_it_reads_what_it_is_given_and_is_not_waited_for_longer_than_itself():
    """As a command that leaves a program in the background, with its pipes."""
    with trio.fail_after(PATIENCE):
        done = await helper.run(("/bin/sh", "-c", "cat; sleep 600 & echo $!"), os.environ, given=b"words\n")
    words, _, pid = done.stdout.decode().partition("\n")
    os.kill(int(pid), signal.SIGKILL)
    assert words == "words"


async def test_none_is_killed_like_an_agent_that_is_started_beside_it(bench):
    scores = []

    async def help_out():
        for _ in range(40):
            done = await helper.run(("/bin/cat", str(SCORE)), {})
            scores.append(done.stdout)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(help_out)
        while len(scores) < 160:
            await ended(bench.start("/bin/cat", str(SCORE)))
    assert set(scores) == {SCORE.read_bytes()}
    assert set(bench.files[1].read_text().split()) == {"800"}


async def test_no_first_look_at_bubblewrap_is_killed_like_an_agent_either(bench, tmp_path):
    fake, scores = tmp_path / "bwrap", tmp_path / "scores"
    fake.write_text(f"#!/bin/sh\nread score < {SCORE}; echo $score >> {scores}; echo bubblewrap 0.11.0\n")
    fake.chmod(0o755)
    registry: Any = SimpleNamespace(config=SimpleNamespace(sandbox=SimpleNamespace(bwrap=str(fake))))
    machine, is_done = Machine(registry), False

    async def look():
        nonlocal is_done
        for _ in range(10):
            assert (await machine.find_bubblewrap()).version == (0, 11, 0)
            machine.forget()
        is_done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        while not is_done:
            await ended(bench.start("/bin/cat", str(SCORE)))
    assert set(scores.read_text().split()) == {SCORE.read_text().strip()}


def test_the_daemon_starts_no_program_in_another_thread():
    source = {path: path.read_text() for path in Path(*substrat.daemon.__path__).rglob("*.py")}
    assert len(source) > 100
    starts = re.compile(r"\b(run_process|open_process|subprocess\.(run|Popen|check_\w+|call))\(")
    assert [path.name for path, text in source.items() if starts.search(text)] == ["helper.py"]
