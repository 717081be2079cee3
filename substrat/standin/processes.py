"""Starts programs and collects their output; the `subprocess` module is not used because of its import time."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Final

    from substrat.standin.reactor import Reactor

_CHUNK = 65536


def find_program(name: str, environ: Mapping[str, str]) -> str:
    """The path of a program, looked up in the `PATH` of the environment it will get.

    Raises:
        FileNotFoundError: There is none.
    """
    if "/" in name:
        return name
    for directory in environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(f"no program named {name} in PATH")


def spawn(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    stdio: tuple[int, int, int],
    *,
    new_session: bool,
    path: str | None = None,
) -> int:
    """Start a program with exactly these descriptors, in its own session if asked; returns its pid.

    Raises:
        OSError: It could not be started, or there is no such directory.
    """
    path = path or find_program(argv[0], environ)
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(stdio)]
    # posix_spawn knows no directory. This process has one thread, so it can step there and back.
    here = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(cwd)
        return os.posix_spawn(
            path,
            tuple(argv),
            environ,
            file_actions=actions,
            setsid=new_session,
            setsigmask=(),
            # Python ignores SIGPIPE, and a stubborn run ignores more; children start with the defaults.
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM),
        )
    finally:
        os.fchdir(here)
        os.close(here)


class ShellCommand:
    """A shell command that runs in its own session, as cursor-agent's do: a signal to our group misses it.

    Args:
        reactor: Serves its pipes and notices its end.
        command: The text for `sh -c`.
        environ: Its environment.
        cwd: Its directory.
        on_end: Called once it has ended and its output is read.
    """

    def __init__(
        self, reactor: Reactor, command: str, environ: Mapping[str, str], cwd: str, on_end: Callable[[], None]
    ) -> None:
        self.command: Final = command
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.interleaved = bytearray()
        self.status: int | None = None
        self._reactor = reactor
        self._on_end = on_end
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out, out_in = os.pipe2(os.O_CLOEXEC)
        err, err_in = os.pipe2(os.O_CLOEXEC)
        self._pipes = {out: self.stdout, err: self.stderr}
        try:
            stdio = (null, out_in, err_in)
            self.pid = spawn(("sh", "-c", command), environ, cwd, stdio, new_session=True, path="/bin/sh")
        except OSError:
            os.close(out)
            os.close(err)
            raise
        finally:
            for fd in (null, out_in, err_in):
                os.close(fd)
        for fd in self._pipes:
            os.set_blocking(fd, False)
            reactor.watch(fd, self._reader(fd))
        reactor.watch_child(self.pid, self._ended)

    @property
    def exit_code(self) -> int:
        """Its exit status, with a signal counted as a shell does."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return code if code >= 0 else 128 - code

    @property
    def signal_name(self) -> str:
        """The signal that ended it, or nothing."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return "" if code >= 0 else signal.Signals(-code).name

    def _reader(self, fd: int) -> Callable[[], None]:
        def read() -> None:
            self._read(fd)

        return read

    def _read(self, fd: int) -> bool:
        """Take the bytes that are there; returns whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._pipes[fd] += data
            self.interleaved += data
            return True
        self._close(fd)
        return False

    def _ended(self, status: int) -> None:
        self.status = status
        # A grandchild may hold the pipes for ever; the shell's own output is in them already.
        for fd in list(self._pipes):
            while self._read(fd):
                pass
            if fd in self._pipes:
                self._close(fd)
        self._on_end()

    def _close(self, fd: int) -> None:
        self._reactor.forget(fd)
        os.close(fd)
        del self._pipes[fd]
