"""Processes as the kernel has them: starting one, being sure which one it is, its end, signals; no policy.

A sandbox is two processes of bubblewrap: the outer one, which we start and which writes the exit code down, and the
inner one, the first process of the sandbox's pid namespace. Killing the inner one takes the whole tree with it
(pid_namespaces(7)).
"""

from __future__ import annotations

import os
import resource
import select
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import trio

from sandbox import seccomp
from substrat.core.records import Process
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FIRST_FREE_FD = 3
_OOM_SCORE = 800
"""Of 1000: before everything of the user's, and after what somebody has marked as worth nothing."""
_ENOUGH_FDS = 16 * 1024
MAX_PID = 4 * 1024 * 1024
"""The most that a kernel of 64 bits gives out (proc(5), kernel/pid_max)."""
_MAX_EXIT_CODE = 255


def boot_id() -> str:
    """Return the id of this boot of the machine: pids and start times mean nothing in another (random(4))."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def keep_descriptors_private() -> None:
    """Mark every inherited descriptor close-on-exec, so that none reaches an agent by accident."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= _FIRST_FREE_FD:
            with suppress(OSError):  # the listing's own descriptor is in the list and gone by now
                os.set_inheritable(int(name), False)


def allow_many_descriptors() -> None:
    """Raise the soft limit of open files: a running turn costs some six, a client one, and 1024 is a common default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _ENOUGH_FDS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FDS)
    if soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def readable(data: bytes) -> int:
    """Return a descriptor that gives out some bytes; the caller closes it."""
    descriptor = os.memfd_create("substrat", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def call_filter() -> int:
    """Return a descriptor that gives out the system call filter of a sandbox; the caller closes it.

    Raises:
        SandboxFailed: there is none for this kind of machine.
    """
    try:
        return readable(seccomp.program(os.uname().machine))
    except seccomp.UnknownArchitecture as problem:
        raise SandboxFailed(f"the system call filter can't be made: {problem}; run substratd on one of those") from None


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
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, source, high + target) for target, source in given]
    for target, _ in given:
        actions += [(os.POSIX_SPAWN_DUP2, high + target, target), (os.POSIX_SPAWN_CLOSE, high + target)]
    with _first_to_be_killed():
        pid = os.posix_spawn(
            command[0], list(command), dict(environment), file_actions=actions, setsid=True,
            setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        )  # fmt: skip
    # The child can't be gone: it stays a zombie with its start time until we wait for it.
    return Process(pid, _start_time(pid) or 0, boot_id())


@contextmanager
def _first_to_be_killed() -> Iterator[None]:
    """Let what is started meanwhile be what the kernel kills first when the machine runs out of memory.

    A child inherits the value (proc(5), oom_score_adj). Everybody may raise it and take it back, down to what it was.
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
        SandboxFailed: there are no descriptors left; the child is killed.
    """
    try:
        return os.pidfd_open(process.pid)
    except OSError as problem:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        raise SandboxFailed(f"a sandbox can't be watched: {problem.strerror}; raise the limit of open files") from None


def open_pidfd(process: Process) -> int | None:
    """Open a pidfd for a recorded process, or return None if it no longer is that process.

    The start time is compared after the pidfd is open, so the answer stays true.
    """
    if process.boot_id != boot_id():
        return None
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if _start_time(process.pid) != process.start_time:
        os.close(pidfd)
        return None
    return pidfd


def is_running(process: Process) -> bool:
    """Say whether a recorded process is there and hasn't ended; one that nobody has waited for yet has."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return False
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(pidfd)


async def wait_exit(process: Process, pidfd: int) -> None:
    """Wait until the process of a pidfd has ended, and reap it if it is our child."""
    await trio.lowlevel.wait_readable(pidfd)
    with suppress(ChildProcessError):  # an adopted one is somebody else's child
        os.waitpid(process.pid, os.WNOHANG)


def read_status(text: bytes) -> tuple[int | None, int | None]:
    """Read what bubblewrap wrote to `--json-status-fd`: the inner pid and the exit code, None for what isn't there."""
    inner: int | None = None
    code: int | None = None
    for line in text.splitlines():
        with suppress(msgspec.MsgspecError):  # the last line of a killed bubblewrap may be half a line
            status = msgspec.json.decode(line, type=dict[str, int])
            # A damaged file may hold anything, also numbers that the kernel would choke on.
            if 0 < (pid := status.get("child-pid", 0)) <= MAX_PID:
                inner = pid
            if 0 <= (exit_code := status.get("exit-code", -1)) <= _MAX_EXIT_CODE:
                code = exit_code
    return inner, code


def open_inner(outer: Process, inner: int) -> int | None:
    """Open a pidfd for a sandbox's first process, or return None if it is gone.

    Args:
        outer: the sandbox's outer process.
        inner: the pid that bubblewrap reported.

    The inner pid is believed only for a process that started after the outer one and leads a pid namespace that isn't
    ours; everything else would be a stranger that got the number since.
    """
    if outer.boot_id != boot_id():
        return None
    try:
        pidfd = os.pidfd_open(inner)
    except ProcessLookupError:
        return None
    started = _start_time(inner)
    if started is None or started < outer.start_time or not _leads_pid_namespace(inner):
        os.close(pidfd)
        return None
    return pidfd


def find_unrecorded(status: bytes, stdout: str) -> Process | None:
    """Find the sandbox of a turn whose process was started but not recorded, because the daemon died in between.

    Args:
        status: what bubblewrap reported in the turn's directory.
        stdout: the turn's stdout file: whoever writes to it is the one.
    """
    inner, code = read_status(status)
    if inner is None:
        # The daemon died so soon that bubblewrap hadn't reported yet, or there was no room for its report.
        outer = _writer(stdout)
        started = _start_time(outer) if outer is not None else None
        return Process(outer, started, boot_id()) if outer is not None and started is not None else None
    if code is not None:
        return Process(inner, 0, "ended")  # no boot has that id, so it will be found gone and its output read
    try:
        if os.readlink(f"/proc/{inner}/fd/1") != os.path.realpath(stdout):
            return None
    except OSError:
        return None
    outer = _parent(inner)
    started = _start_time(outer) if outer is not None else None
    return Process(outer, started, boot_id()) if outer is not None and started is not None else None


def _writer(path: str) -> int | None:
    """Return the outermost process whose standard output is a file."""
    if not os.path.exists(path):
        return None
    path = os.path.realpath(path)
    writers = set()
    for entry in os.listdir("/proc"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if entry.isdigit() and os.readlink(f"/proc/{entry}/fd/1") == path:
                writers.add(int(entry))
    return next((pid for pid in writers if _parent(pid) not in writers), None)


def signal_program(inner: int, number: signal.Signals) -> bool:
    """Send a signal to the agent program, the first child of the sandbox's first process.

    Returns:
        Whether there was a program to signal.
    """
    program = _first_child(inner)
    if program is None:
        return False
    try:
        os.kill(program, number)
    except ProcessLookupError:
        return False
    return True


def stop_all(inner: int) -> bool:
    """Stop every process of a sandbox in memory, as far as one pass goes (SIGSTOP can't be caught).

    Args:
        inner: the sandbox's first process.

    Returns:
        Whether all of them had been stopped before: then none can have made another meanwhile.
    """
    all_stopped = True
    for pid in _tree(inner):
        if not _is_stopped(pid):
            all_stopped = False
            _signal(pid, signal.SIGSTOP)
    return all_stopped


def continue_all(inner: int) -> None:
    """Let every process of a sandbox go on."""
    for pid in reversed(_tree(inner)):
        _signal(pid, signal.SIGCONT)


def kill(pidfd: int) -> None:
    """Kill what a pidfd stands for; that it has ended already is fine."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_recorded(outer: Process) -> None:
    """Kill a recorded sandbox whose inner process bubblewrap hasn't reported, or not legibly; one that is gone is fine."""
    pidfd = open_pidfd(outer)
    if pidfd is None:
        return
    # The outer process alone wouldn't take the tree with it.
    inner = _first_child(outer.pid)
    inner_pidfd = open_inner(outer, inner) if inner is not None else None
    for descriptor in (inner_pidfd, pidfd):
        if descriptor is not None:
            kill(descriptor)
            os.close(descriptor)


def kill_holders(path: str, descriptor: int) -> None:
    """Kill whoever has a file open under a certain descriptor: a sandbox whose processes nobody wrote down.

    Args:
        path: the file.
        descriptor: its number in each of them.
    """
    path = os.path.realpath(path)
    for entry in os.listdir("/proc"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if entry.isdigit() and os.readlink(f"/proc/{entry}/fd/{descriptor}") == path:
                os.kill(int(entry), signal.SIGKILL)


def kill_sandbox_of(outer: int) -> None:
    """Kill the sandbox of an outer process that is our own child and hasn't been waited for.

    The outer process is stopped first: then its inner one either is there or never will be. It ends by itself after the
    inner one, which in turn ends after everything in the sandbox, so whoever waits for it knows that all is gone.
    """
    _signal(outer, signal.SIGSTOP)
    os.waitid(os.P_PID, outer, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    inner = _children(outer)
    for pid in inner:
        _signal(pid, signal.SIGKILL)
    _signal(outer, signal.SIGCONT if inner else signal.SIGKILL)


def _start_time(pid: int) -> int | None:
    return _stat_field(pid, 22)


def _parent(pid: int) -> int | None:
    return _stat_field(pid, 4)


def _stat_field(pid: int, number: int) -> int | None:
    """Return a field of proc(5)'s stat by its number there, or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in field 2 may hold anything, also ")": fields are counted from the last one.
    return int(stat[stat.rindex(b")") + 2 :].split()[number - 3])


_STOPPED = frozenset({"T", "t", "Z", "X", None})
_UNINTERRUPTIBLE = "D"
_STOP_PENDING = 1 << (signal.SIGSTOP - 1)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _tree(root: int) -> list[int]:
    """Return a process and all its descendants; the orphans of a pid namespace are children of its first process."""
    found = [root]
    for pid in found:  # it grows while it is walked
        found += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with (
                suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file,
            ):
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children


def _is_stopped(pid: int) -> bool:
    """Say whether a process is stopped, gone, or will stop before it executes anything more.

    The last is true of one that waits in the kernel and can't be interrupted, with the signal pending: the parent in a
    vfork(2) waits so for its child, and would for ever when that is stopped.
    """
    state = _state(pid)
    return state in _STOPPED or (state == _UNINTERRUPTIBLE and _stop_is_pending(pid))


def _stop_is_pending(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return any(line.startswith("ShdPnd:") and int(line.split()[1], 16) & _STOP_PENDING for line in file)
    except (FileNotFoundError, ProcessLookupError):
        return False


def _state(pid: int) -> str | None:
    """Return a process's state as one letter (proc(5), stat's third field), None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return chr(stat[stat.rindex(b")") + 2])


def _leads_pid_namespace(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("NSpid:"):
                    numbers = line.split()[1:]
                    return len(numbers) > 1 and numbers[-1] == "1"
    except (FileNotFoundError, ProcessLookupError):
        return False
    return False


def _first_child(pid: int) -> int | None:
    # Orphans of the sandbox become children of its first process too; the program came before all of them. One that has
    # ended since it was listed has no start time any more.
    started = {child: time for child in _children(pid) if (time := _start_time(child)) is not None}
    return min(started, key=lambda child: started[child], default=None)
