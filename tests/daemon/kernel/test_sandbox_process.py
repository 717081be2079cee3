"""A sandbox's two processes: bubblewrap's reports, the inner process, and the program in it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from substrat.daemon.kernel import process, procfs, sandbox_process
from tests.daemon.kernel.conftest import PATIENCE, ended
from tests.support.optional import present
from tests.support.waiting import wait_until

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


async def test_an_orphans_new_parent_is_not_taken_for_its_sandbox(inner_and_outer, bench):
    """It may be a user's service manager, which must neither be stopped nor killed."""
    inner, outer = inner_and_outer
    os.kill(outer.pid, signal.SIGKILL)
    os.waitpid(outer.pid, 0)
    assert procfs.parent(inner) not in {None, outer.pid}, "the control: it lives, and somebody has taken it"
    found = sandbox_process.find_unrecorded(bench.files[3].read_bytes(), str(bench.files[1]))
    assert found is not None
    assert process.open_pidfd(found) is None
    sandbox_process.kill_recorded(found)
    assert procfs.parent(inner) is not None


COUNTS = """
import ctypes, os, threading
count = open("count", "r+b", buffering=0)
def go_on():
    number = 0
    while True:
        os.rename("a", "b"); os.rename("b", "a")
        number += 1
        os.pwrite(count.fileno(), b"%20d" % number, 0)
"""
FIRST_THREAD_GONE = COUNTS + "threading.Thread(target=go_on).start()\nctypes.CDLL(None).syscall(EXIT, 0)\n"
THOUSAND_THREADS = COUNTS + (
    "threading.stack_size(65536)\n"
    "for _ in range(999): threading.Thread(target=threading.Event().wait).start()\n"
    "threading.Thread(target=go_on).start()\n"
)
FORKS = COUNTS + (
    "def children():\n    while True:\n        if os.fork() == 0: os._exit(0)\n        os.wait()\n"
    "threading.Thread(target=go_on).start()\nchildren()\n"
)


@pytest.mark.parametrize(
    "source", [FIRST_THREAD_GONE, THOUSAND_THREADS, FORKS], ids=["first thread gone", "1,000", "forks"]
)
def test_a_process_is_stopped_only_when_all_of_its_threads_are(tmp_path, source):
    for name in ("a", "count"):
        (tmp_path / name).touch()

    def count():
        return int((tmp_path / "count").read_text() or 0)

    source = source.replace("EXIT", {"x86_64": "60", "aarch64": "93"}[os.uname().machine])
    with subprocess.Popen([sys.executable, "-c", source], cwd=tmp_path, process_group=0) as running:
        try:
            wait_until(lambda: count() > 10 and len(procfs.tasks(running.pid)) >= (900 if "999" in source else 1))
            wait_until(lambda: sandbox_process.stop_all(running.pid), "the stop")
            found = count()
            for _ in range(20):
                subprocess.run(["true"], check=True)
            assert (count(), sandbox_process.is_stopped(running.pid)) == (found, True)
            sandbox_process.continue_all(running.pid)
            wait_until(lambda: count() > found, "it goes on")
        finally:
            os.killpg(running.pid, signal.SIGKILL)
