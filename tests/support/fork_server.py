"""The process from which tests' daemons and commands are forked: `fork_server.py substratd`, see `forked`.

The fork server reads requests from its standard input, a socket, as lines of JSON, forks a process for each, and answers
with the process's pid and later with how the process ended. For example, on one line each:

    [3, ["ls"], {"HOME": "/tmp/home"}, ["/dev/null", "/tmp/out", "/tmp/out"], "/tmp"]
    ["started", 3, 4711]
    ["ended", 3, 0]

An `errno` is answered if there is no fork: `["refused", 3, 11]`.

A fork has its own arguments, environment, directory, files and name, and runs the program's `main`. What `/proc` tells of
its environment and command line is the fork server's.
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
    """What to fork; `files` are the paths of its standard input, output and errors."""

    number: int
    arguments: list[str]
    environment: dict[str, str]
    files: list[str]
    directory: str


def wait_for_requests(control: socket.socket) -> Request:
    """Fork a process for each request; returns only in a fork, with its request and its files."""
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
                # Before the answer, because whoever asked may close them then.
                opened = [os.open(path, mode) for path, mode in zip(request.files, MODES, strict=True)]
                pid = os.fork()
            except OSError as problem:  # the machine is short of something: this test's failure, not the next one's
                answer("refused", request.number, problem.errno)
                continue
            if pid == 0:
                for other in forks:
                    os.close(other)
                lines.close()
                control.close()
                for standard, given in enumerate(opened):
                    os.dup2(given, standard)
                    os.close(given)
                return request
            for given in opened:
                os.close(given)
            pidfd = os.pidfd_open(pid)
            forks[pidfd] = request.number, pid
            poll.register(pidfd, select.POLLIN)
            answer("started", request.number, pid)


def open_again(stream: Any) -> Any:
    buffering = 1 if stream.line_buffering else -1
    return open(stream.fileno(), stream.mode, buffering, stream.encoding, stream.errors, closefd=False)


def take_on(program: str, request: Request) -> None:
    """Make this fork the process that was asked for."""
    # Python's streams remember what kind of file they were made of.
    sys.stdin, sys.stdout, sys.stderr = map(open_again, (sys.stdin, sys.stdout, sys.stderr))
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    sys.argv = [program, *request.arguments]
    ctypes.CDLL(None).prctl(PR_SET_NAME, program.encode(), 0, 0, 0)


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Run a program's `main`, then exit as the interpreter does but without deallocating its objects: the fork shares their
    pages and would copy them, which is half of a short command's time.
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
    """Import all that a program's fork is going to need, and return its `main`."""
    if program == "substratctl":
        for verb in VERBS:
            importlib.import_module(f"substrat.cli.verbs.{verb}")
    else:
        from substrat import config, paths

        config.load(os.devnull, {})  # the first call makes what all later ones use
        paths.state_dir()
    main: Callable[[], int] = importlib.import_module(PROGRAMS[program]).main
    gc.collect()
    gc.freeze()  # a fork's collector doesn't look at these objects, so it copies none of their pages
    return main


if __name__ == "__main__":
    _, name = sys.argv
    main = import_program(name)
    take_on(name, wait_for_requests(socket.socket(fileno=os.dup(0))))
    run_and_exit(main)
