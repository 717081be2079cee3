"""Processes: started with exactly the given descriptors, found again, never mistaken for another one."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import trio

from substrat.core.agents.records import Process
from substrat.daemon.kernel import process, procfs, sandbox_process
from tests.daemon.kernel.conftest import PATIENCE, ended
from tests.support.optional import present

LOOK = """
import json, os, signal
def kind(fd):
    try: return os.readlink(f"/proc/self/fd/{fd}")
    except OSError: return None
fds = [int(name) for name in os.listdir("/proc/self/fd")]
ignored = int([line for line in open("/proc/self/status") if line.startswith("SigIgn")][0].split()[1], 16)
blocked = int([line for line in open("/proc/self/status") if line.startswith("SigBlk")][0].split()[1], 16)
print(json.dumps({"fds": [fd for fd in fds if kind(fd) and not kind(fd).startswith("/proc/")], "environ": dict(os.environ),
    "leader": os.getsid(0) == os.getpid(), "ignored": ignored, "blocked": blocked, "stdin": open(0).read()}), flush=True)
os.write(2, b"complaint"); os.write(3, b"status")
"""


async def test_a_process_gets_exactly_what_was_given(bench):
    os.environ["NOT_FOR_AGENTS"] = "secret"
    extra = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(extra, False)
    try:
        started = bench.start(sys.executable, "-I", "-S", "-c", LOOK, environment={"ONLY": "this"})
        await ended(started)
    finally:
        del os.environ["NOT_FOR_AGENTS"]
        os.close(extra)
    seen = json.loads(bench.files[1].read_text())
    assert seen["fds"] == [0, 1, 2, 3]
    assert {name for name in seen["environ"] if not name.startswith("LC_")} == {"ONLY"}
    assert seen["leader"]
    assert seen["blocked"] == 0
    assert seen["stdin"] == "the prompt"
    assert bench.files[2].read_bytes() == b"complaint"
    assert bench.files[3].read_bytes() == b"status"


async def test_it_can_be_stopped_by_the_usual_signals_though_we_ignore_some(bench):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        started = bench.start(sys.executable, "-I", "-S", "-c", LOOK)
        await ended(started)
    finally:
        signal.signal(signal.SIGINT, before)
    ignored = json.loads(bench.files[1].read_text())["ignored"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert not ignored & 1 << (number - 1)


@pytest.mark.parametrize("numbers", [[10, 11, 12, 13], [3, 2, 1, 0], [1, 0, 3, 2]])
async def test_any_descriptors_end_up_in_their_places(tmp_path, numbers):
    """A child of its own has the odd numbers, because this process needs its own 0, 1 and 2."""
    script = f"""
import os, sys
sys.path[:] = {sys.path!r}
from substrat.daemon.kernel import process
paths = [{str(tmp_path)!r} + "/" + name for name in ("stdin", "stdout", "stderr", "status")]
open(paths[0], "w").write("prompt")
opened = [os.open(p, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) for p in paths]
high = [os.dup2(fd, 500 + n) for n, fd in enumerate(opened)]
for fd in opened: os.close(fd)
for target, source in zip({numbers}, high): os.dup2(source, target, inheritable=False)
for fd in high: os.close(fd)
started = process.start(("/bin/sh", "-c", "cat; echo err >&2; echo status >&3"), {{"PATH": "/bin:/usr/bin"}}, {numbers})
os.waitpid(started.pid, 0)
os._exit(0)
"""
    await trio.run_process([sys.executable, "-c", script], stdin=subprocess.DEVNULL)
    found = {name: (tmp_path / name).read_text() for name in ("stdin", "stdout", "stderr", "status")}
    assert found == {"stdin": "prompt", "stdout": "prompt", "stderr": "err\n", "status": "status\n"}


def test_a_program_that_cannot_be_executed(bench, tmp_path):
    with pytest.raises(OSError, match=r".*"):
        bench.start(str(tmp_path / "missing"))


def test_a_running_process_is_found_again(sleeper):
    pidfd = process.open_pidfd(Process(sleeper.pid, sleeper.start_time, sleeper.boot_id))
    assert pidfd is not None
    os.close(pidfd)


@pytest.mark.parametrize("change", [{"boot_id": "another"}, {"start_time": 1}, {"start_time": 2**62}, {"start_time": 0}])
def test_a_number_that_was_given_to_somebody_else(sleeper, change):
    descriptors = os.listdir("/proc/self/fd")
    assert process.open_pidfd(replace(sleeper, **change)) is None
    assert os.listdir("/proc/self/fd") == descriptors


@pytest.fixture
def thread():
    """The number of a thread of this process, as any number may be by now that was a process's."""
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    yield other.native_id
    is_over.set()
    other.join()


def test_a_number_that_is_a_threads_by_now(thread):
    recorded = Process(thread, present(procfs.start_time(thread)), procfs.boot_id())
    assert process.open_pidfd(recorded) is None
    assert not process.is_running(recorded)
    sandbox_process.kill_recorded(recorded)
    own = Process(os.getpid(), present(procfs.start_time(os.getpid())), procfs.boot_id())
    assert sandbox_process.open_inner(own, thread) is None


def test_a_process_that_is_gone(bench):
    started = bench.start("/bin/true")
    os.waitpid(started.pid, 0)
    assert process.open_pidfd(started) is None


async def test_the_end_of_a_child_is_seen_and_it_is_reaped(bench):
    started = bench.start("/bin/true")
    await ended(started)
    with pytest.raises(ChildProcessError):
        os.waitpid(started.pid, os.WNOHANG)


@pytest.fixture
def stranger():
    """A process that has a child of its own, which goes on until the stranger's input ends."""
    script = "import subprocess, sys; p = subprocess.Popen(['/bin/cat']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        yield parent, int(parent.stdout.readline())


async def test_the_end_of_an_adopted_process_is_seen(stranger):
    """Somebody else's child, as after a restart of the daemon."""
    parent, pid = stranger
    started = Process(pid, present(procfs.start_time(pid)), procfs.boot_id())
    pidfd = present(process.open_pidfd(started))
    parent.stdin.close()
    with trio.fail_after(PATIENCE):
        await process.wait_exit(started, pidfd)
    os.close(pidfd)


async def test_killing(sleeper):
    pidfd = present(process.open_pidfd(sleeper))
    process.kill(pidfd)
    with trio.fail_after(PATIENCE):
        await process.wait_exit(sleeper, pidfd)
    process.kill(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize("name", ["a) R 1 (b", "((", "))) S 0 0", "a b\tc", "x" * 15])
def test_a_name_full_of_parentheses(bench, tmp_path, name):
    (tmp_path / name).symlink_to("/bin/sleep")
    started = bench.start(str(tmp_path / name), "1000")
    try:
        assert started.start_time > 0
        pidfd = process.open_pidfd(started)
        assert pidfd is not None
        os.close(pidfd)
    finally:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)


def test_a_zombie_is_not_running():
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    recorded = Process(child.pid, present(procfs.start_time(child.pid)), procfs.boot_id())
    assert process.is_running(recorded)
    assert not process.is_running(replace(recorded, boot_id="another"))
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_running(recorded)
    child.wait()
    assert not process.is_running(recorded)
