"""The two processes of bubblewrap that make up a sandbox: finding, signalling, stopping and killing them.

The daemon starts the outer one, which writes the exit code down; the inner one is the first process of the sandbox's pid
namespace. Killing the inner one kills the whole tree (pid_namespaces(7)).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from substrat.core.agents.records import Process
from substrat.daemon.kernel import procfs
from substrat.daemon.kernel.process import kill, open_number, open_pidfd

if TYPE_CHECKING:
    from substrat.daemon.kernel.inotify import Watcher

_MAX_EXIT_CODE = 255
"""An exit code has 8 bits (wait(2))."""
_STOP_LOOKS, _STOP_PAUSE_S = 50, 0.002
"""How long a process may take to stop: 0.1 s is a hundred times the usual, and short enough for the loop to wait."""
_RELEASE_TRIES, _RELEASE_PAUSE_S = 100, 0.05
"""5 s: bubblewrap writes an exit code in a millisecond, but a busy machine may leave it waiting for a processor."""
_STOPPED = frozenset({"T", "t", "Z", "X"})
_UNINTERRUPTIBLE = "D"
_MAKING_A_CHILD = {"x86_64": frozenset({"56", "58", "435"}), "aarch64": frozenset({"220", "435"})}
"""The numbers of clone(2), vfork(2) and clone3(2), of which `/proc/PID/syscall` shows the one that a thread is in."""
_STOP_PENDING = 1 << (signal.SIGSTOP - 1)


def read_status(text: bytes) -> tuple[int | None, int | None]:
    """Read the reports of bubblewrap (`--json-status-fd`): the inner pid and the exit code, None for one not there yet.

    For example `{"child-pid": 4711}`, and at the end `{"exit-code": 0}` on a line of its own.
    """
    inner: int | None = None
    code: int | None = None
    for line in text.splitlines():
        with suppress(msgspec.MsgspecError):  # the last line of a killed bubblewrap may be half a line
            status = msgspec.json.decode(line, type=dict[str, int])
            # A damaged file may hold anything, also numbers that the kernel would choke on.
            if 0 < (pid := status.get("child-pid", 0)) <= procfs.MAX_PID:
                inner = pid
            if 0 <= (exit_code := status.get("exit-code", -1)) <= _MAX_EXIT_CODE:
                code = exit_code
    return inner, code


def is_mounted(text: bytes) -> bool:
    """Say whether the reports of a sandbox that has begun don't tell of late mounts that were never made (`remount`)."""
    return b'{"mounted": 0}' not in text or b'{"mounted": 1}' in text


class StatusFile(Protocol):
    """The file that bubblewrap reports to."""

    @property
    def root(self) -> str:
        """The directory that it lies in."""

    def read_status(self) -> bytes:
        """Return the reports so far."""


async def reported(files: StatusFile, watcher: Watcher) -> int:
    """Wait until bubblewrap has reported a sandbox's inner process, and return its pid."""
    with watcher.watching(files.root) as change:
        while (inner := read_status(files.read_status())[0]) is None:
            await change.wait()
    return inner


def open_inner(outer: Process, inner: int) -> int | None:
    """Open a pidfd for a sandbox's first process, or return None if it is gone.

    Args:
        outer: the sandbox's outer process.
        inner: the pid that bubblewrap reported.

    The inner pid is believed only for a process that started after the outer one and leads another pid namespace than
    ours; any other is a stranger that was given the number since.
    """
    if outer.boot_id != procfs.boot_id():
        return None
    pidfd = open_number(inner)
    if pidfd is None:
        return None
    started = procfs.start_time(inner)
    if started is None or started < outer.start_time or not _leads_pid_namespace(inner):
        os.close(pidfd)
        return None
    return pidfd


def _leads_pid_namespace(pid: int) -> bool:
    numbers = procfs.status(pid, "NSpid")
    return len(numbers) > 1 and numbers[-1] == "1"


def find_unrecorded(status: bytes, stdout: str) -> Process | None:
    """Find the sandbox of a turn whose process was started but not recorded, because the daemon died in between.

    Args:
        status: the reports of bubblewrap in the turn's directory.
        stdout: the turn's stdout file: the sandbox has it as its standard output.
    """
    inner, code = read_status(status)
    if inner is None:
        # The daemon died so soon that bubblewrap hadn't reported yet, or there was no room for its report.
        writers = set(procfs.holders(stdout, 1))
        return _identified(next((pid for pid in writers if procfs.parent(pid) not in writers), None))
    gone = Process(
        inner, 0, "ended"
    )  # no boot has that id, so it will be found gone, its inner one killed, its output read
    if code is not None:
        return gone
    if not _writes_to(inner, stdout):
        return None
    outer = procfs.parent(inner)
    # A sandbox whose outer process was killed has another parent by now: the process that takes orphans, such as init.
    return _identified(outer) if outer is not None and _writes_to(outer, stdout) else gone


def _writes_to(pid: int, stdout: str) -> bool:
    """Say whether a process has a file as its standard output."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1") == os.path.realpath(stdout)
    except OSError:
        return False


def _identified(pid: int | None) -> Process | None:
    started = procfs.start_time(pid) if pid is not None else None
    return Process(pid, started, procfs.boot_id()) if pid is not None and started is not None else None


def signal_program(inner: int, number: signal.Signals) -> bool:
    """Send a signal to the agent program, the first child of the sandbox's first process.

    Returns:
        Whether there was a program to signal.
    """
    program = procfs.first_child(inner)
    if program is None:
        return False
    try:
        os.kill(program, number)
    except ProcessLookupError:
        return False
    return True


def stop_all(inner: int) -> bool:
    """Stop every process of a sandbox in memory, as far as one pass goes (SIGSTOP can't be caught).

    Each gets the signal, stopped or not: one that still ran may have continued another after the look at that.

    Args:
        inner: the sandbox's first process.

    Returns:
        Whether all of them were stopped, before the signals and after: then none can have made another meanwhile.
    """
    before = procfs.tree(inner)
    were_stopped = all(map(is_stopped, before))
    for pid in before:
        _signal(pid, signal.SIGSTOP)
    return were_stopped and all(map(is_stopped, procfs.tree(inner)))


def are_all_stopped(inner: int) -> bool:
    """Say whether every process of a sandbox is stopped; no, where that can't be seen."""
    with suppress(OSError):
        return all(map(is_stopped, procfs.tree(inner)))
    return False


def continue_all(inner: int) -> None:
    """Let every process of a sandbox go on."""
    for pid in reversed(procfs.tree(inner)):
        _signal(pid, signal.SIGCONT)


def kill_recorded(outer: Process) -> None:
    """Kill a recorded sandbox whose inner process bubblewrap hasn't reported legibly; one that is gone is fine."""
    pidfd = open_pidfd(outer)
    if pidfd is None:
        return
    # The outer process alone wouldn't take the tree with it. Stopped, it has made its inner one or never will.
    _signal(outer.pid, signal.SIGSTOP)
    for _ in range(_STOP_LOOKS):
        if is_stopped(outer.pid):
            break
        time.sleep(_STOP_PAUSE_S)
    inner = procfs.first_child(outer.pid)
    inner_pidfd = open_inner(outer, inner) if inner is not None else None
    for descriptor in (inner_pidfd, pidfd):
        if descriptor is not None:
            kill(descriptor)
            os.close(descriptor)


def kill_holders(path: str, descriptor: int) -> None:
    """Kill every process that has a file open under a certain descriptor: a sandbox of which no record is left.

    Args:
        path: the file.
        descriptor: its number in each of them.
    """
    for pid in procfs.holders(path, descriptor):
        with suppress(OSError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)


def kill_all_with(path: str) -> None:
    """Kill every process but this one that has a file open, under whichever number: what a killed daemon has left."""
    for pid in procfs.all_with(path) - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def kill_sandbox_of(outer: int, pidfd: int) -> None:
    """Kill the sandbox of an outer process that is our own child and hasn't been waited for, and wait for its end.

    The outer process is stopped first: then its inner one either is there or never will be. It usually ends after the inner
    one, but at once where its program has ended before and left a process behind. The kernel lets the inner one end after
    everything else in the sandbox (pid_namespaces(7)), so all is gone when both have ended.

    Args:
        outer: the outer process.
        pidfd: a pidfd of it that no other task waits for.
    """
    _signal(outer, signal.SIGSTOP)
    for _ in range(_STOP_LOOKS):
        if is_stopped(outer):
            break
        await trio.sleep(_STOP_PAUSE_S)
    with ExitStack() as opened:
        # None of these pids can be another process's: only the outer one could reap them, and it is stopped.
        inner = [found for pid in procfs.children(outer) if (found := open_number(pid)) is not None]
        for found in inner:
            opened.callback(os.close, found)
            kill(found)
        if not inner:
            _signal(outer, signal.SIGKILL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(release, pidfd)
            for found in (pidfd, *inner):
                await trio.lowlevel.wait_readable(found)
            nursery.cancel_scope.cancel()


async def release(pidfd: int) -> None:
    """Let an outer process end whose inner one has ended, also when another process stops it again and again (SIGSTOP).

    It must only write the exit code down. One that doesn't come to that is killed. Cancel this once it has ended.

    Args:
        pidfd: a pidfd of the outer process.
    """
    for _ in range(_RELEASE_TRIES):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        await trio.sleep(_RELEASE_PAUSE_S)
    kill(pidfd)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Say whether a process is gone, or each of its threads is stopped or will stop before it executes anything more.

    A process whose first thread has exited counts as a zombie (`Z`) while its others go on, so all are looked at. One that
    waits in the kernel and can't be interrupted (`D`) may be in the middle of a rename(2); only the parent in a vfork(2)
    does nothing more, which waits for its child, and would for ever when that is stopped.
    """
    return all(
        state in _STOPPED or (state == _UNINTERRUPTIBLE and _makes_child(task) and _stop_is_pending(pid))
        for task, state in procfs.thread_states(pid)
    )


def _makes_child(task: str) -> bool:
    """Say whether a thread waits for the child that it has made."""
    try:
        with open(f"{task}/syscall", encoding="ascii") as file:
            number = file.read().split()[0]
    except OSError:  # Yama hides it from a daemon that isn't an ancestor (kernel.yama.ptrace_scope)
        return bool(procfs.children(int(task.split("/")[2])))
    return number in _MAKING_A_CHILD.get(os.uname().machine, ())


def _stop_is_pending(pid: int) -> bool:
    return any(int(mask, 16) & _STOP_PENDING for mask in procfs.status(pid, "ShdPnd"))
