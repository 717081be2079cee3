"""Processes by pidfd: starting one with given descriptors, recognising a recorded one, waiting for its end, killing it."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from substrat.core.agents.records import Process
from substrat.daemon.kernel import descriptors, procfs
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OOM_SCORE = 800
"""Of 1000: before everything of the user's, and after programs that somebody has marked as worth nothing."""
_NO_PROCESS = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})


def start(command: Sequence[str], environment: Mapping[str, str], files: Sequence[int | None]) -> Process:
    """Start a sandbox in a session of its own with exactly the given descriptors.

    `posix_spawn` runs in this thread and comes back when the program is executing, after less than a millisecond; a
    fork in a worker thread would tie the child to a thread that ends.

    Args:
        command: the program's absolute path and its arguments.
        environment: the whole environment.
        files: become its descriptors 0, 1, 2 and so on; where there is a None it has none.

    Raises:
        OSError: the program can't be executed.
    """
    # Through numbers above all sources and targets, so that no duplication overwrites one that is still needed.
    given = [(target, source) for target, source in enumerate(files) if source is not None]
    high = max(*(source for _, source in given), len(files)) + 1
    if high + len(files) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), command[0])  # the child would say "bad file descriptor"
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, source, high + target) for target, source in given]
    for target, _ in given:
        actions += [(os.POSIX_SPAWN_DUP2, high + target, target), (os.POSIX_SPAWN_CLOSE, high + target)]
    descriptors.keep_private()
    with _first_to_be_killed():
        pid = os.posix_spawn(
            command[0], list(command), dict(environment), file_actions=actions, setsid=True,
            setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        )  # fmt: skip
    # The child can't be gone: it stays a zombie with its start time until we wait for it.
    return Process(pid, procfs.start_time(pid) or 0, procfs.boot_id())


@contextmanager
def _first_to_be_killed() -> Iterator[None]:
    """Let the kernel kill processes that are started meanwhile first when the machine runs out of memory.

    A child inherits the value (proc(5), oom_score_adj). Any process may raise its own and lower it again to the old one.
    No await comes in between, and other programs are started in the loop's thread too (`helper`), so none of them has it.
    """
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        own = file.read()
        file.write(str(max(int(own), _OOM_SCORE)).encode())
        try:
            yield
        finally:
            file.write(own)


def open_own(process: Process) -> int:
    """Open a pidfd for a child that was just started.

    Raises:
        SandboxFailed: it can't be watched, for want of descriptors for example; the child is killed.
    """
    try:
        return os.pidfd_open(process.pid)
    except OSError as problem:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        descriptors.refuse_shortage(problem)
        raise SandboxFailed(f"a sandbox can't be watched: {problem.strerror}; look at the machine's limits") from None


def open_number(pid: int) -> int | None:
    """Open a pidfd for a pid, or return None if no process has it any more, though a thread may.

    The kernel says of a thread's number EINVAL, newer ones ENOENT (pidfd_open(2), kernel/pid.c).

    Raises:
        OSError: there are no descriptors left.
    """
    try:
        return os.pidfd_open(pid)
    except OSError as problem:
        if problem.errno in _NO_PROCESS:
            return None
        raise


def open_pidfd(process: Process) -> int | None:
    """Open a pidfd for a recorded process, or return None if it no longer is that process.

    The start time is compared after the pidfd is open, so the answer stays true.
    """
    if process.boot_id != procfs.boot_id():
        return None
    pidfd = open_number(process.pid)
    if pidfd is None:
        return None
    if procfs.start_time(process.pid) != process.start_time:
        os.close(pidfd)
        return None
    return pidfd


def is_running(process: Process) -> bool:
    """Say whether a recorded process is there and hasn't ended; a zombie has."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return False
    try:
        return not has_ended(pidfd)
    finally:
        os.close(pidfd)


def has_ended(pidfd: int) -> bool:
    """Say whether the process of a pidfd has ended, also if nobody has reaped it yet."""
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    return bool(ended.poll(0))


async def wait_exit(process: Process, pidfd: int) -> None:
    """Wait until the process of a pidfd has ended, and reap it if it is our child."""
    await trio.lowlevel.wait_readable(pidfd)
    with suppress(ChildProcessError):  # an adopted one is somebody else's child
        os.waitpid(process.pid, os.WNOHANG)


def kill(pidfd: int) -> None:
    """Kill the process of a pidfd; one that has ended already is fine."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
