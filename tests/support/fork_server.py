"""The process from which tests' daemons and commands are forked: `fork_server.py substratd`, see `forked`.

The fork server's standard input is a socket. Requests and answers are lines of JSON. A request is the fields of `Request`:

    [3, ["ls"], {"HOME": "/tmp/home"}, ["/dev/null", "/tmp/out", "/tmp/out"], "/tmp"]

The answers to request 3 are the pid of the fork, and at the fork's end its exit status:

    ["started", 3, 4711]
    ["ended", 3, 0]

If the kernel refuses the fork, the only answer to request 3 is the kernel's errno:

    ["refused", 3, 11]

A fork has its own arguments, environment, directory, files and name, and runs the program's `main`. In `/proc`, the fork's
environment and command line stay those of the fork server.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_NAME = 15
PROGRAMS = {"substratd": "substrat.daemon.main", "substratctl": "substrat.cli.main"}
VERBS = ("end", "interrupt", "logs", "ls", "merge", "resume", "rm", "send", "show", "spawn", "suspend", "wait")
MODES = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)


class Request(NamedTuple):
    """A process to fork.

    Args:
        number: the number of the request, which its answers repeat.
        arguments: the arguments of the program, without the program's name.
        environment: the environment of the process.
        files: the paths of the standard input, output and errors of the process.
        directory: the directory in which the process starts.
    """

    number: int
    arguments: list[str]
    environment: dict[str, str]
    files: list[str]
    directory: str


def wait_for_requests(control: socket.socket) -> Request:
    """Fork a process for each request. Only a fork returns, with the request that it was made for."""
    lines = control.makefile("rb", buffering=0)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    forks: dict[int, tuple[int, int]] = {}  # each fork's number and pid, by its pidfd

    def answer(*words: Any) -> None:
        with contextlib.suppress(ConnectionError):  # the tests have ended
            control.sendall(json.dumps(words).encode() + b"\n")

    while True:
        for descriptor, _ in poll.poll():
            if descriptor in forks:
                poll.unregister(descriptor)
                os.close(descriptor)
                number, pid = forks.pop(descriptor)
                _, status = os.waitpid(pid, 0)
                answer("ended", number, os.waitstatus_to_exitcode(status))
                continue
            line = lines.readline()
            if not line:
                os._exit(0)
            request = Request(*json.loads(line))
            try:
                pid = fork_with(request.files)
            except OSError as problem:  # one test fails by it, and the fork server stays for the next tests
                answer("refused", request.number, problem.errno)
                continue
            if pid == 0:
                for other in forks:
                    os.close(other)
                lines.close()
                control.close()
                return request
            pidfd = os.pidfd_open(pid)
            forks[pidfd] = request.number, pid
            poll.register(pidfd, select.POLLIN)
            answer("started", request.number, pid)


def fork_with(files: list[str]) -> int:
    """Fork a process with its own standard input, output and errors, and return the fork's pid; 0 in the fork.

    Args:
        files: the paths of the three. They are opened before the fork is answered, because the test may remove them then.

    Raises:
        OSError: a file can't be opened, or the kernel refuses the fork.
    """
    with contextlib.ExitStack() as closing:
        opened = []
        for path, mode in zip(files, MODES, strict=True):
            opened.append(os.open(path, mode))
            closing.callback(os.close, opened[-1])
        pid = os.fork()
        if pid == 0:
            for standard, descriptor in enumerate(opened):
                os.dup2(descriptor, standard)
        return pid


def reopened(stream: Any) -> Any:
    """Return a new stream on a stream's descriptor; the old one remembers what its file was, for example a terminal."""
    buffering = 1 if stream.line_buffering else -1
    return open(stream.fileno(), stream.mode, buffering, stream.encoding, stream.errors, closefd=False)


def become(program: str, request: Request) -> None:
    """Give this fork the arguments, environment, directory and name that were asked for."""
    sys.stdin, sys.stdout, sys.stderr = map(reopened, (sys.stdin, sys.stdout, sys.stderr))
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    sys.argv = [program, *request.arguments]
    ctypes.CDLL(None).prctl(PR_SET_NAME, program.encode(), 0, 0, 0)


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Run a program's `main`, then exit as the interpreter does, but without deallocating objects.

    To deallocate an object is to write to its page. The fork shares the pages with the fork server until it writes to them,
    and copying them takes half of a short command's time.
    """
    try:
        status: Any = main()
    except SystemExit as leaving:
        status = leaving.code or 0
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def import_program(program: str) -> Callable[[], int]:
    """Import all modules that a fork of a program will need, and return the program's `main`."""
    if program == "substratctl":
        for verb in VERBS:
            importlib.import_module(f"substrat.cli.verbs.{verb}")
    else:
        from substrat import config, paths

        config.load(os.devnull, {})  # the first call makes what msgspec needs for all later calls
        paths.state_dir()
    main: Callable[[], int] = importlib.import_module(PROGRAMS[program]).main
    gc.collect()
    gc.freeze()  # a fork's collector doesn't look at these objects, so it copies none of their pages
    return main


if __name__ == "__main__":
    _, name = sys.argv
    main = import_program(name)
    become(name, wait_for_requests(socket.socket(fileno=os.dup(0))))
    run_and_exit(main)
