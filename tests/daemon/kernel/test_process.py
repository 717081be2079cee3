"""Processes: started with exactly the given descriptors, found again, never mistaken for another one."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.records import Process
from substrat.daemon.kernel import descriptors, limits, process, procfs, sandbox_process
from tests.support.optional import present

PATIENCE = 20
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


class Bench:
    """Files for a process's four descriptors."""

    def __init__(self, directory):
        self.files = [directory / name for name in ("stdin", "stdout", "stderr", "status")]
        self.files[0].write_bytes(b"the prompt")

    def start(self, *command, environment=None):
        descriptors = [os.open(self.files[0], os.O_RDONLY | os.O_CLOEXEC)]
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptors += [os.open(path, appending) for path in self.files[1:]]
        try:
            return process.start(command, environment or {}, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def sleeper(bench):
    """A process that goes on until the test ends."""
    started = bench.start("/bin/sleep", "1000")
    yield started
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)


async def ended(started):
    pidfd = present(process.open_pidfd(started))
    try:
        with trio.fail_after(PATIENCE):
            await process.wait_exit(started, pidfd)
    finally:
        os.close(pidfd)


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


def test_inherited_descriptors_are_made_private():
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        os.set_inheritable(descriptor, True)
        descriptors.keep_private()
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("data", [b"", b"--option\0value\0", b"x" * 1_000_000])
def test_bytes_to_read_from_a_descriptor(data):
    descriptor = descriptors.readable(data)
    assert not os.get_inheritable(descriptor)
    with open(descriptor, "rb") as file:
        assert file.read() == data


LIMITED = """
import resource, sys
sys.path[:] = {path!r}
from substrat.daemon.kernel import limits
from substrat.errors import LimitReached
resource.setrlimit(resource.RLIMIT_AS, {limit})
try:
    limits.prepare_daemon()
except LimitReached as problem:
    print(problem.message)
print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize("hard", [8 << 30, resource.RLIM_INFINITY])
async def test_a_soft_limit_of_address_space_is_raised_and_core_dumps_are_forbidden(hard):
    source = LIMITED.format(path=sys.path, limit=(1 << 30, hard))
    done = await trio.run_process([sys.executable, "-c", source], capture_stdout=True)
    assert done.stdout.decode() == f"{hard} (1, 1)\n"


async def test_too_little_address_space_is_refused_with_the_remedy():
    source = LIMITED.format(path=sys.path, limit=(1 << 30, 1 << 30))
    done = await trio.run_process([sys.executable, "-c", source], capture_stdout=True)
    assert b"1024 MiB of address space and needs 4096: start it without a limit (`ulimit -v unlimited`" in done.stdout


def test_there_may_be_many_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        limits.allow_many_descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft >= min(4096, hard)
        limits.allow_many_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# Finding it again


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


def test_the_boot_is_known():
    assert procfs.boot_id() == procfs.boot_id()
    assert len(procfs.boot_id()) == 36


# Reports of bubblewrap

REPORTS = [
    (b"", (None, None)),
    (b'{ "child-pid": 17 }\n', (17, None)),
    (b'{ "child-pid": 17, "cgroup-namespace": 4026531835 }\n{ "exit-code": 3 }\n', (17, 3)),
    (b'{ "child-pid": 17 }\n{ "exit-co', (17, None)),
    (b'{ "child-pi', (None, None)),
    (b'{ "exit-code": 0 }', (None, 0)),
    (b'{ "child-pid": "17" }\n', (None, None)),
    (b"null\n[]\n17\n", (None, None)),
    (b'\n\n{ "child-pid": 17 }\n\n', (17, None)),
]


@pytest.mark.parametrize(("text", "found"), REPORTS)
def test_the_status_file(text, found):
    assert sandbox_process.read_status(text) == found


@given(st.integers(1, 2**22), st.integers(0, 255), st.data())
def test_a_status_file_cut_anywhere_never_lies(inner, code, data):
    whole = b'{ "child-pid": %d, "net-namespace": 4026531835 }\n{ "exit-code": %d }\n' % (inner, code)
    cut = data.draw(st.integers(0, len(whole)))
    found = sandbox_process.read_status(whole[:cut])
    assert found[0] in {None, inner}
    assert found[1] in {None, code}
    assert found[0] == inner or cut <= whole.index(b"}")


@given(
    st.binary(max_size=100)
    | st.lists(st.sampled_from([b"{", b'"child-pid"', b":", b"1", b"}", b"\n", b"\xff", b"-"])).map(b"".join)
)
def test_any_status_file_can_be_read(text):
    sandbox_process.read_status(text)


@pytest.mark.parametrize("text", [b"[" * 5000, b'{"a":' * 5000, b'{"a":' + b"9" * 5000 + b"}"])
def test_a_status_file_of_nonsense_names_no_process(text):
    assert sandbox_process.read_status(text) == (None, None)


# A sandbox's two processes


def _is_sleep(inner):
    """Whether bubblewrap has executed the program already."""
    child = procfs.first_child(inner)
    with contextlib.suppress(OSError), open(f"/proc/{child}/comm", encoding="ascii") as file:
        return file.read() == "sleep\n"
    return False


@pytest.fixture
def inner_and_outer(bench):
    """A real pid namespace with a program in it."""
    command = ("/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc",
               "--json-status-fd", "3", "--", "/bin/sleep", "1000")  # fmt: skip
    if not os.path.exists(command[0]):
        pytest.skip("there is no bubblewrap")
    outer = bench.start(*command)
    deadline = time.monotonic() + PATIENCE
    while (inner := sandbox_process.read_status(bench.files[3].read_bytes())[0]) is None or not _is_sleep(inner):
        assert time.monotonic() < deadline, bench.files[2].read_text()
        os.sched_yield()
    yield inner, outer
    with contextlib.suppress(ProcessLookupError):
        os.kill(inner, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(outer.pid, 0)


def test_the_inner_process_is_believed_when_it_leads_a_namespace(inner_and_outer):
    inner, outer = inner_and_outer
    pidfd = sandbox_process.open_inner(outer, inner)
    assert pidfd is not None
    os.close(pidfd)
    for stranger in (os.getpid(), os.getppid(), outer.pid, present(procfs.first_child(inner)), 2**22 - 1):
        assert sandbox_process.open_inner(outer, stranger) is None
    assert sandbox_process.open_inner(replace(outer, start_time=2**62), inner) is None
    assert sandbox_process.open_inner(replace(outer, boot_id="another"), inner) is None


async def test_killing_the_inner_process_ends_everything(inner_and_outer):
    inner, outer = inner_and_outer
    program = present(procfs.first_child(inner))
    pidfd, program_pidfd = present(sandbox_process.open_inner(outer, inner)), os.pidfd_open(program)
    process.kill(pidfd)
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(program_pidfd)
    await ended(outer)
    for descriptor in (pidfd, program_pidfd):
        os.close(descriptor)
    assert sandbox_process.open_inner(outer, inner) is None
    assert sandbox_process.signal_program(inner, signal.SIGINT) is False


async def test_the_program_is_signalled(inner_and_outer, bench):
    inner, outer = inner_and_outer
    assert sandbox_process.signal_program(inner, signal.SIGTERM) is True
    await ended(outer)
    assert sandbox_process.read_status(bench.files[3].read_bytes()) == (inner, 128 + signal.SIGTERM)


def test_a_sandbox_that_was_not_recorded_is_found_by_its_output(inner_and_outer, bench, tmp_path):
    _, outer = inner_and_outer
    status = bench.files[3].read_bytes()
    assert sandbox_process.find_unrecorded(status, str(bench.files[1])) == outer
    assert sandbox_process.find_unrecorded(status, str(tmp_path / "another")) is None
    # bubblewrap had no time to report, or no room: a second sandbox beside the first would be the same session twice.
    assert sandbox_process.find_unrecorded(b"", str(bench.files[1])) == outer
    assert sandbox_process.find_unrecorded(b"", str(tmp_path / "another")) is None
    mine = b'{ "child-pid": %d }' % os.getpid()
    assert sandbox_process.find_unrecorded(mine, str(bench.files[1])) is None


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
