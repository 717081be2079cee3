"""Runs a small program in a sandbox of its own, for example to read a chat's database that an agent wrote.

A file that an agent wrote may be made to attack its reader. In this sandbox a reader that was taken over can do nothing:
it has no network, only the named mounts are writable, dangerous system calls are refused, and its time and its output are
limited. It ends with the daemon, also when that is killed, unless it is told to outlive it.
"""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import trio

from sandbox import bwrap, host
from sandbox.spec import Devices, Mount, Processes, ReadOnly, Spec, Tmpfs
from substrat.daemon.kernel import descriptors, helper, process, sandbox_process
from substrat.daemon.kernel.files import close_all
from substrat.daemon.sandboxes import sources
from substrat.daemon.sandboxes.launch_plan import closed_by
from substrat.daemon.workspaces.user import ids_inside
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.host import Bubblewrap
    from substrat.daemon.kernel.files import Files

_PATIENCE_S = 10.0
"""Such a program takes some tenths of a second; a person may be waiting for it."""
_TMP_BYTES = 64 << 20
"""SQLite and git put at most a few MiB into `/tmp` for these programs."""
_FILTER_FD = 3
"""The descriptor that bubblewrap finds the system call filter at; those of its mounts follow."""
_END_SECONDS = 10.0
"""A killed sandbox is gone in milliseconds; no caller waits longer for one that the kernel can't end."""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "",
}


class TookTooLong(SandboxFailed):
    """The program was killed because its time was up.

    Args:
        message: one sentence.
        output: its standard output until then.
    """

    def __init__(self, message: str, output: bytes) -> None:
        super().__init__(message)
        self.output = output


class OneshotResult(NamedTuple):
    """A program's exit status and output."""

    status: int
    output: bytes
    errors: bytes


async def run(
    files: Files,
    bubblewrap: Bubblewrap,
    command: tuple[str, ...],
    shared: tuple[Mount, ...],
    workdir: str,
    *,
    system: tuple[Mount, ...],
    seconds: float | None = None,
    limits: tuple[tuple[str, int], ...] | None = None,
    variables: Mapping[str, str] | None = None,
    outlives: bool = False,
    tail: int | None = None,
) -> OneshotResult:
    """Run a program that sees the operating system, read-only, and some mounts, within `host.helper_limits`.

    Args:
        files: opens the mounts' sources.
        bubblewrap: bubblewrap.
        command: the program and its arguments, as seen from inside.
        shared: its further mounts.
        workdir: where it starts.
        system: the mounts of the operating system (`UnreadablePaths.system_mounts`).
        seconds: how long it may take; None: 10 s.
        limits: the limits of each of its processes; None: `host.helper_limits`.
        variables: further variables of its environment, and bubblewrap's.
        outlives: whether it goes on where the daemon is killed, and may end by itself where the caller is cancelled.
        tail: how many bytes of the end of its output are wanted, of any length; None: all of it.

    Raises:
        SandboxFailed: it couldn't be started, took too long or printed more than 32 MiB.
        WorkspaceUnusable: a mount's source has become a link, or doesn't answer.
    """
    patience = _PATIENCE_S if seconds is None else seconds
    if not os.access(bwrap.PRLIMIT, os.X_OK):
        raise SandboxFailed(f"{command[0]} can't be limited: there is no {bwrap.PRLIMIT}: apt install util-linux")
    own = (Processes(), Devices(), ReadOnly("/dev"), Tmpfs("/tmp", _TMP_BYTES))  # noqa: S108 - the sandbox's own
    mounts = (*system, *own, *shared)
    environment = {**_ENVIRONMENT, **(variables or {})}
    given_limits = limits if limits is not None else host.helper_limits(math.ceil(patience))
    ids = ids_inside(os.geteuid())
    spec = Spec(command, tuple(sorted(environment.items())), mounts, workdir, limits=given_limits, ids=ids)
    held = bwrap.held(spec)
    with ExitStack() as stack:
        call_filter = closed_by(stack, descriptors.call_filter())
        place = next((mount.source for mount in held), workdir)
        opened = await files.open(place, sources.open_all, held)
        stack.callback(close_all, opened)
        numbers = {mount: _FILTER_FD + 1 + number for number, mount in enumerate(held)}
        given = numbers if bubblewrap.takes_descriptors else {}
        options = bwrap.options(spec, watched=False, descriptors=given, tied=not outlives)
        line = (bubblewrap.path, "--seccomp", str(_FILTER_FD), *options, "--", *bwrap.program(spec))
        printed = (bytearray(), bytearray())
        try:
            with trio.fail_after(patience):
                inherited = (call_filter, *(opened if given else ()))
                done = await _run(line, inherited, environment, printed, outlives=outlives, tail=tail)
        except trio.TooSlowError:
            raise TookTooLong(f"{command[0]} didn't end within {patience:g} s in its sandbox", bytes(printed[0])) from None
    if done is None:
        raise SandboxFailed(f"{command[0]} printed more than {helper.MOST >> 20} MiB in its sandbox")
    if isinstance(done, OSError):
        descriptors.refuse_shortage(done)
        raise SandboxFailed(f"{bubblewrap.path} can't be started: {done.strerror}")
    return OneshotResult(done, *map(bytes, printed))


async def _run(
    line: tuple[str, ...],
    inherited: tuple[int, ...],
    environment: Mapping[str, str],
    printed: tuple[bytearray, bytearray],
    *,
    outlives: bool,
    tail: int | None,
) -> int | OSError | None:
    """Run a command that inherits descriptors from `_FILTER_FD` on, and return its exit status.

    A failure to start is returned; None: it has printed too much.
    """
    with ExitStack() as stack:
        try:
            reading, writing = _pipes(stack)
        except OSError as problem:
            return problem
        try:
            nothing = closed_by(stack, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            started = process.start(line, environment, (nothing, *writing, *inherited))
        except OSError as problem:
            return problem
        finally:
            for descriptor in writing:  # the sandbox alone has them, so that they end with it
                os.close(descriptor)
        pidfd = closed_by(stack, process.open_own(started))
        status: int | None = None
        try:
            if await helper.collect(tuple(zip(reading, printed, strict=True)), tail=tail):
                await trio.lowlevel.wait_readable(pidfd)
                status = os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1])
        finally:
            if status is None:
                if outlives:
                    with trio.move_on_after(_END_SECONDS, shield=True):
                        await trio.lowlevel.wait_readable(pidfd)
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_SECONDS):
                    await sandbox_process.kill_sandbox_of(started.pid, pidfd)
                    await process.wait_exit(started, pidfd)
    return status


def _pipes(stack: ExitStack) -> tuple[list[int], list[int]]:
    """Make the pipes of standard output and error; the stack closes the ends for reading, the caller those for writing.

    Raises:
        OSError: there are no descriptors left.
    """
    reading: list[int] = []
    writing: list[int] = []
    with ExitStack() as undo:
        for _ in range(2):
            outlet, inlet = os.pipe()
            reading.append(closed_by(stack, outlet))
            writing.append(closed_by(undo, inlet))
            os.set_blocking(outlet, False)
        undo.pop_all()
    return reading, writing
