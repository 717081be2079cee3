"""Processes as the kernel has them: starting one, being sure which one it is, its end, signals; no policy.

A sandbox is two processes of bubblewrap: the outer one, which we start and which writes the exit code down, and the
inner one, the first process of the sandbox's pid namespace. Killing the inner one takes the whole tree with it
(pid_namespaces(7)).
"""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import select
import signal
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from sandbox import seccomp
from substrat.core.agents.records import Process
from substrat.daemon.kernel import descriptors
from substrat.errors import LimitReached, SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from substrat.daemon.kernel.inotify import Watcher

_OOM_SCORE = 800
"""Of 1000: before everything of the user's, and after what somebody has marked as worth nothing."""
_ENOUGH_FDS = 16 * 1024
_NO_CORE = 1
_LEAST_ADDRESS_SPACE = 4 << 30
"""For 256 MiB of its own and up to 40 threads (trio's limit), each with 8 MiB of stack and 64 MiB of arena (malloc(3)).
With less a thread can't be started now and then, and what needed it fails."""
MAX_PID = 4 * 1024 * 1024
"""The most that a kernel of 64 bits gives out (proc(5), kernel/pid_max)."""
_MAX_EXIT_CODE = 255
_STOP_LOOKS, _STOP_PAUSE_S = 50, 0.002
"""How long a process may take to stop: 0.1 s is a hundred times what it takes, and short enough for the loop to wait."""
_RELEASE_TRIES, _RELEASE_PAUSE_S = 100, 0.05
"""5 s: bubblewrap writes an exit code in a millisecond, but a busy machine may leave it waiting for a processor."""


def boot_id() -> str:
    """Return the id of this boot of the machine: pids and start times mean nothing in another (random(4))."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def prepare_daemon() -> None:
    """Set what the daemon's children inherit: no descriptors, no core dumps; and what it needs itself: many descriptors."""
    _allow_address_space()
    descriptors.keep_private()
    allow_many_descriptors()
    forbid_core_dumps()


def keep_what_is_there() -> None:
    """Leave what is in memory now out of all later garbage collections; to be called when something large is loaded.

    It is modules and the state, which stay to the end. A full collection looks at every object that isn't left out, which
    takes some 50 ms, and nothing else happens meanwhile.
    """
    gc.freeze()


def _allow_address_space() -> None:
    """Raise the soft limit of address space as far as it goes, and see whether that is enough.

    Raises:
        LimitReached: it isn't.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _LEAST_ADDRESS_SPACE:
        raise LimitReached(
            f"substratd may have {hard >> 20} MiB of address space and needs {_LEAST_ADDRESS_SPACE >> 20}: start it "
            f"without a limit (`ulimit -v unlimited`, or LimitAS=infinity in its unit)"
        )


def allow_many_descriptors() -> None:
    """Raise the soft limit of open files: a running turn costs some six, a client one, and 1024 is a common default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _ENOUGH_FDS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FDS)
    if soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def forbid_core_dumps() -> None:
    """Keep this process and all its children from dumping core, to a file or into a program of the machine's.

    A limit of 1 byte does both; 0 doesn't keep the kernel from piping a core dump into the program that
    `/proc/sys/kernel/core_pattern` names (do_coredump in fs/coredump.c), which would run outside of any sandbox. It is set
    here because inside the system call filter keeps everybody from changing it.
    """
    with suppress(OSError, ValueError):  # the hard limit is 0, and only root may raise that
        resource.setrlimit(resource.RLIMIT_CORE, (_NO_CORE, _NO_CORE))


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
        SandboxFailed: it can't be watched, for want of descriptors for example; the child is killed.
    """
    try:
        return os.pidfd_open(process.pid)
    except OSError as problem:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        descriptors.refuse_shortage(problem)
        raise SandboxFailed(f"a sandbox can't be watched: {problem.strerror}; look at the machine's limits") from None


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


class StatusFile(Protocol):
    """The file that bubblewrap reports to."""

    @property
    def root(self) -> str:
        """The directory that it lies in."""

    def read_status(self) -> bytes:
        """Return the reports so far."""


async def reported(place: StatusFile, watcher: Watcher) -> int:
    """Wait until bubblewrap has reported a sandbox's inner process, and return its pid."""
    with watcher.watching(place.root) as change:
        while (inner := read_status(place.read_status())[0]) is None:
            await change.wait()
    return inner


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


def has_child(pid: int) -> bool:
    """Say whether a process has a child; a sandbox's first one has, once everything is mounted."""
    return bool(_children(pid))


def kill(pidfd: int) -> None:
    """Kill what a pidfd stands for; that it has ended already is fine."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_recorded(outer: Process) -> None:
    """Kill a recorded sandbox whose inner process bubblewrap hasn't reported, or not legibly; one that is gone is fine."""
    pidfd = open_pidfd(outer)
    if pidfd is None:
        return
    # The outer process alone wouldn't take the tree with it. Stopped, it has made its inner one or never will.
    _signal(outer.pid, signal.SIGSTOP)
    for _ in range(_STOP_LOOKS):
        if _is_stopped(outer.pid):
            break
        time.sleep(_STOP_PAUSE_S)
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


async def kill_sandbox_of(outer: int, pidfd: int) -> None:
    """Kill the sandbox of an outer process that is our own child and hasn't been waited for, and wait for its end.

    The outer process is stopped first: then its inner one either is there or never will be. It ends by itself after the
    inner one, which in turn ends after everything in the sandbox, so its end means that all is gone.

    Args:
        outer: the outer process.
        pidfd: a pidfd of it that no other task waits for.
    """
    _signal(outer, signal.SIGSTOP)
    for _ in range(_STOP_LOOKS):
        if _is_stopped(outer):
            break
        await trio.sleep(_STOP_PAUSE_S)
    inner = _children(outer)
    for pid in inner:
        _signal(pid, signal.SIGKILL)
    if not inner:
        _signal(outer, signal.SIGKILL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(release, pidfd)
        await trio.lowlevel.wait_readable(pidfd)
        nursery.cancel_scope.cancel()


async def release(pidfd: int) -> None:
    """Let an outer process end whose inner one has ended, also when somebody stops it again and again (SIGSTOP).

    It only has to write the exit code down. One that doesn't come to that is killed. Cancel this once it has ended.

    Args:
        pidfd: a pidfd of the outer process.
    """
    for _ in range(_RELEASE_TRIES):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        await trio.sleep(_RELEASE_PAUSE_S)
    kill(pidfd)


def written(outer: Process, *, to_disk: bool) -> int:
    """Return how many bytes a sandbox's processes have written so far, those that have ended counted with their parents.

    A process that ignores SIGCHLD is an exception: what its children wrote isn't counted once they have ended (proc(5)).

    Args:
        outer: the sandbox's outer process.
        to_disk: count what the kernel has to write to disks; otherwise everything that was passed to write(2) and the like,
            pipes and sockets too, which is all that is counted for file systems in memory.

    Returns:
        The bytes, 0 when the sandbox is gone.
    """
    if not is_running(outer):
        return 0
    total = 0
    for pid in _tree(outer.pid):
        try:
            with open(f"/proc/{pid}/io", encoding="ascii") as file:
                counts = {name: int(number) for name, _, number in (line.partition(": ") for line in file)}
        except OSError:
            continue  # it is gone, or has made itself unreadable
        total += counts["write_bytes"] - counts["cancelled_write_bytes"] if to_disk else counts["wchar"]
    return total


def unlinked(outer: Process, device: int, most: int) -> list[tuple[str, int]]:
    """Return the files on one device that have no name any more and that a sandbox's processes have open.

    Args:
        outer: the sandbox's outer process.
        device: the device's number.
        most: how many descriptors are looked at; of more a part is, another one each time.

    Returns:
        The path that each had in the sandbox, and its bytes on disk.
    """
    found: dict[int, tuple[str, int]] = {}
    if not is_running(outer):
        return []
    tasks = [task for pid in _tree(outer.pid) for task in _tasks(pid)]
    random.shuffle(tasks)
    for task in tasks:
        # A thread may have descriptors of its own (clone(2) without CLONE_FILES).
        with suppress(OSError):  # it is gone, or has made itself unreadable
            for number in os.listdir(f"{task}/fd"):
                most -= 1
                if most < 0:
                    return [*found.values()]
                _note_unlinked(f"{task}/fd/{number}", device, found)
    return [*found.values()]


def _note_unlinked(descriptor: str, device: int, found: dict[int, tuple[str, int]]) -> None:
    with suppress(FileNotFoundError):  # it was closed
        file = os.stat(descriptor)
        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
            found[file.st_ino] = os.readlink(descriptor).removesuffix(" (deleted)"), file.st_blocks * 512


def _tasks(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _start_time(pid: int) -> int | None:
    return _stat_field(pid, 22)


def _parent(pid: int) -> int | None:
    return _stat_field(pid, 4)


def _stat_field(pid: int, number: int) -> int | None:
    """Return a field of proc(5)'s stat by its number there, or None when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in field 2 may hold anything, also ")": fields are counted from the last one.
    return int(fields[fields.rindex(b")") + 2 :].split()[number - 3])


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
            fields = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return chr(fields[fields.rindex(b")") + 2])


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
