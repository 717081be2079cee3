"""Runs a small program in a sandbox of its own, for example to read a chat's database that an agent wrote.

A file that an agent wrote may be made to attack its reader. In this sandbox a reader that was taken over can do nothing:
it has no network, only the named mounts are writable, dangerous system calls are refused, and its time and its output are
limited.
"""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from functools import partial
from subprocess import PIPE
from typing import TYPE_CHECKING, NamedTuple

import trio

from sandbox import bwrap, host
from sandbox.spec import Devices, Mount, Processes, ReadOnly, Spec, Tmpfs
from substrat.daemon.kernel import descriptors, sandbox_process
from substrat.daemon.sandboxes import sources
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from sandbox.host import Bubblewrap

_PATIENCE_S = 10.0
"""Such a program takes some tenths of a second; a person may be waiting for it."""
_MAX_OUTPUT = 16 * 1024 * 1024
"""Bytes: the daemon holds all of it in memory."""
_TMP_BYTES = 64 << 20
"""SQLite and git put at most a few MiB into `/tmp` for these programs."""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "",
}


class OneshotResult(NamedTuple):
    """A program's exit status and output."""

    status: int
    output: bytes
    errors: bytes


async def run(
    bubblewrap: Bubblewrap,
    command: tuple[str, ...],
    shared: tuple[Mount, ...],
    workdir: str,
    unreadable: tuple[str, ...] = (),
    seconds: float | None = None,
) -> OneshotResult:
    """Run a program that sees the operating system, read-only, and some mounts, within `host.helper_limits`.

    Args:
        bubblewrap: bubblewrap.
        command: the program and its arguments, as seen from inside.
        shared: its further mounts.
        workdir: where it starts.
        unreadable: the paths of the operating system that are hidden from it (`UnreadablePaths.paths`).
        seconds: how long it may take; None: 10 s.

    Raises:
        SandboxFailed: it couldn't be started, took too long or printed more than 16 MiB.
        WorkspaceUnusable: a mount's source has become a link.
    """
    patience = _PATIENCE_S if seconds is None else seconds
    if not os.access(bwrap.PRLIMIT, os.X_OK):
        raise SandboxFailed(f"{command[0]} can't be limited: there is no {bwrap.PRLIMIT}: apt install util-linux")
    own = (Processes(), Devices(), ReadOnly("/dev"), Tmpfs("/tmp", _TMP_BYTES))  # noqa: S108 - the sandbox's own
    mounts = (*host.system_mounts(unreadable), *own, *shared)
    environment = tuple(sorted(_ENVIRONMENT.items()))
    spec = Spec(command, environment, mounts, workdir, limits=host.helper_limits(math.ceil(patience)))
    held = bwrap.held(spec)
    with ExitStack() as stack:
        call_filter = descriptors.call_filter()
        stack.callback(os.close, call_filter)
        opened = await trio.to_thread.run_sync(sources.open_all, held)
        stack.callback(sources.close_all, opened)
        given = dict(zip(held, opened, strict=True)) if bubblewrap.takes_descriptors else {}
        options = bwrap.options(spec, watched=False, descriptors=given)
        line = (bubblewrap.path, "--seccomp", str(call_filter), *options, "--", *bwrap.program(spec))
        descriptors.keep_private()
        try:
            with trio.fail_after(patience):
                done = await _run(line, (call_filter, *given.values()))
        except trio.TooSlowError:
            raise SandboxFailed(f"{command[0]} didn't end within {patience:g} s in its sandbox") from None
    if done is None:
        raise SandboxFailed(f"{command[0]} printed more than {_MAX_OUTPUT >> 20} MiB in its sandbox")
    if isinstance(done, OSError):
        descriptors.refuse_shortage(done)
        raise SandboxFailed(f"{bubblewrap.path} can't be started: {done.strerror}")
    return done


async def _run(line: tuple[str, ...], descriptors: tuple[int, ...]) -> OneshotResult | OSError | None:
    """Run a command that needs descriptors; a failure to start is returned, so that the nursery doesn't wrap it."""
    output, errors = bytearray(), bytearray()
    running: trio.Process | None = None
    failure: OSError | None = None
    async with trio.open_nursery() as nursery:
        start = partial(
            trio.run_process, line, stdout=PIPE, stderr=PIPE, env=_ENVIRONMENT, check=False, deliver_cancel=_kill,
            pass_fds=descriptors,
        )  # fmt: skip
        try:
            running = await nursery.start(start)
        except OSError as problem:
            failure = problem
        if running is not None:
            async with trio.open_nursery() as readers:
                for stream, into in ((running.stdout, output), (running.stderr, errors)):
                    assert stream is not None
                    readers.start_soon(_collect, stream, into, nursery.cancel_scope)
    if running is None:
        return failure
    if running.returncode is None or max(len(output), len(errors)) > _MAX_OUTPUT:
        return None
    return OneshotResult(running.returncode, bytes(output), bytes(errors))


async def _collect(stream: trio.abc.ReceiveStream, into: bytearray, everything: trio.CancelScope) -> None:
    async for data in stream:
        into += data
        if len(into) > _MAX_OUTPUT:
            everything.cancel()


async def _kill(running: trio.Process) -> None:
    if running.returncode is not None:
        return  # it ended as its task was cancelled: Trio has reaped it, and its pid names nothing any more
    pidfd = os.pidfd_open(running.pid)
    try:
        await sandbox_process.kill_sandbox_of(running.pid, pidfd)
    finally:
        os.close(pidfd)
