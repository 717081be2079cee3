"""Small programs in a sandbox of their own: they see only their mounts, and each of them ends."""

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from sandbox import host
from sandbox.spec import Bind
from substrat.daemon.kernel import helper
from substrat.daemon.sandboxes import oneshot
from substrat.errors import SandboxFailed
from tests.support.files_here import FilesHere
from tests.support.processes import arguments_of, processes
from tests.support.waiting import wait_until


def run(bubblewrap, script, *shows):
    call = partial(oneshot.run, system=host.system_mounts())
    return trio.run(call, FilesHere(), bubblewrap, ("/bin/sh", "-c", script), shows, "/")


def test_it_says_what_came_of_it(bubblewrap):
    assert run(bubblewrap, "echo out; echo err >&2; exit 3") == oneshot.OneshotResult(3, b"out\n", b"err\n")


def test_it_sees_what_it_is_shown_and_nothing_else(bubblewrap, tmp_path):
    (tmp_path / "shown").write_text("yes")
    done = run(bubblewrap, f"cat /s/shown; touch /s/new; ls {tmp_path}; ls /sys/class/net", Bind(str(tmp_path), "/s"))
    assert done.output.startswith(b"yes")
    assert b"Read-only" in done.errors
    assert done.errors.count(b"No such file") == 2
    assert not (tmp_path / "new").exists()


def processes_with(mark):
    return [pid for pid in processes() if mark in " ".join(arguments_of(pid))]


@pytest.mark.parametrize("script", ["trap '' TERM INT; sleep {}", "setsid sleep {} & sleep {}"])
def test_one_that_takes_too_long_is_killed_with_all_it_started(bubblewrap, monkeypatch, script):
    monkeypatch.setattr(oneshot, "_PATIENCE_S", 0.5)
    mark = f"1000{os.getpid()}"
    with pytest.raises(SandboxFailed, match="didn't end"):
        run(bubblewrap, script.replace("{}", mark))
    assert processes_with(mark) == []


def test_one_that_prints_without_end_is_killed(bubblewrap, monkeypatch):
    monkeypatch.setattr(helper, "MOST", 1 << 16)
    with pytest.raises(SandboxFailed, match="printed more"):
        run(bubblewrap, "yes")
    with pytest.raises(SandboxFailed, match="printed more"):
        run(bubblewrap, "yes >&2")


def test_one_that_cannot_be_started():
    with pytest.raises(SandboxFailed, match="can't be started"):
        run(host.Bubblewrap("/nonexistent/bwrap", (0, 8, 0)), "true")


def test_it_runs_under_the_filter(bubblewrap):
    done = run(bubblewrap, "grep Seccomp: /proc/1/status /proc/self/status; unshare -U true; ls /proc/self/fd | wc -l")
    assert done.output.split()[1::2][:2] == [b"2", b"2"]
    assert b"not permitted" in done.errors
    assert done.output.split()[-1] == b"4", "standard streams and the directory, no descriptor of the filter"


def test_it_does_not_run_on_a_machine_whose_calls_are_unknown(bubblewrap, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6.1", "v", "riscv64")))
    with pytest.raises(SandboxFailed, match="filter can't be made: there is no table of system calls for riscv64"):
        run(bubblewrap, "true")


async def test_one_that_outlives_its_caller_comes_to_its_end(bubblewrap, tmp_path):
    shown = Bind(str(tmp_path), "/s", writable=True)
    command = ("/bin/sh", "-c", "touch /s/begun; sleep 0.5; touch /s/ended")
    async with trio.open_nursery() as nursery:
        call = partial(oneshot.run, system=host.system_mounts(), outlives=True)
        nursery.start_soon(call, FilesHere(), bubblewrap, command, (shown,), "/")
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - files have no event
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert (tmp_path / "ended").exists()


async def stop_again_and_again(mark):
    """Stop the outermost process of a sandbox, whenever it goes on, for as long as it is there."""
    while True:
        for pid in processes_with(mark):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if not is_stopped(pid) and os.readlink(f"/proc/{pid}/ns/pid") == OWN:
                    os.kill(pid, signal.SIGSTOP)
        await trio.sleep(0.001)


OWN = os.readlink("/proc/self/ns/pid")


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"


@pytest.mark.parametrize("script", ["sleep {}", "setsid sleep {} & sleep 0.2"])
async def test_one_whose_outer_process_is_stopped_ends_all_the_same(bubblewrap, script):
    mark = f"1001{os.getpid()}"

    async def refusal():
        command = ("/bin/sh", "-c", script.replace("{}", mark))
        with pytest.raises(SandboxFailed) as caught:
            await oneshot.run(FilesHere(), bubblewrap, command, (), "/", system=host.system_mounts(), seconds=1)
        return str(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_again_and_again, mark)
        assert "didn't end within 1 s" in await refusal()
        nursery.cancel_scope.cancel()
    assert processes_with(mark) == []


def test_it_has_limits(bubblewrap):
    done = run(bubblewrap, "cat /proc/self/limits; df -k /tmp | tail -1")
    lines = {line[:26].strip(): line[26:].split()[:2] for line in done.output.decode().splitlines()}
    assert lines["Max cpu time"] == ["10", "10"]
    assert lines["Max file size"] == [str(128 << 20)] * 2
    assert lines["Max data size"] == [str(512 << 20)] * 2
    assert lines["Max open files"] == ["256", "256"]
    assert done.output.split()[-5] == b"65536"
    assert run(bubblewrap, "head -c 80000000 /dev/zero > /tmp/x").status != 0


def test_one_that_eats_memory_fails(bubblewrap):
    done = run(bubblewrap, "python3 -c 'x = bytearray(1 << 30)'")
    assert done.status == 1
    assert b"MemoryError" in done.errors


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel exempts root from the limit of processes")
def test_one_that_breeds_stops_at_its_limit(bubblewrap):
    done = run(bubblewrap, "for n in $(seq 100); do sleep 5 & done; echo started")
    assert b"fork" in done.errors


def test_it_has_the_descriptors_it_is_given_and_no_others(bubblewrap):
    opened = [os.open("/dev/null", os.O_RDWR), os.memfd_create("careless", 0), *os.pipe(), os.open("/", os.O_RDONLY)]
    try:
        for descriptor in opened:
            os.set_inheritable(descriptor, True)
        assert run(bubblewrap, "ls /proc/self/fd").output.split() == [b"0", b"1", b"2", b"3"]
        for descriptor in opened:
            os.set_inheritable(descriptor, True)
        done = run(bubblewrap, "ls -l /proc/1/fd")
        assert b"careless" not in done.output
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_it_ends_with_the_process_that_started_it(bubblewrap):
    mark = f"1002{os.getpid()}"
    if (pid := os.fork()) == 0:
        try:
            run(bubblewrap, f"trap '' TERM INT; setsid sleep {mark} & sleep {mark}")
        finally:
            os._exit(1)
    wait_until(lambda: len(processes_with(mark)) >= 4, "the sandbox is there")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: processes_with(mark) == [], "the sandbox is gone")
