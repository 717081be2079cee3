"""Runs the program that moves a branch where it is checked out; it outlives the daemon, and the next one waits for it."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from substrat.daemon.kernel import descriptors, helper, sandbox_process
from substrat.errors import Conflict
from substrat.inside.branch import main
from substrat.inside.branch.job import WHOLE, Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from substrat.inside.branch.job import Job

_PROGRAM = f"""\
import sys
sys.path.append({str(Path(main.__file__).parents[3])!r})
from {main.__name__} import main
sys.exit(main(int(sys.argv[1]), sys.stdin.buffer.read()))
"""
"""Python compiles a program that is run by its path anew each time, which takes longer than git."""
_SECONDS = 1800.0
"""The program gives git 600 s, and takes git's files back by some ten calls of git with 120 s at most each."""
_DROP_SECONDS = 10.0
"""A program that has no job is gone in milliseconds after SIGKILL."""
_LOOK_AGAIN = 0.05
"""Seconds between two looks whether a killed daemon's git has ended, which takes as long as it writes files."""


@attrs.define(eq=False)
class Ready:
    """A program that waits for its job, with the descriptor of its landing's lock."""

    lock: int
    program: helper.Waiting
    has_job: bool = False


@attrs.define(eq=False)
class BranchMover:
    """Runs `substrat.inside.branch`."""

    _directory: str
    """Where the files lie by whose locks the next daemon sees which landing's git lives."""

    @asynccontextmanager
    async def ready(self, landing: int) -> AsyncIterator[Ready]:
        """Start the program for a landing, so that it has started by the time there is a job; raises `Conflict`."""
        ready = self._start(landing)
        try:
            yield ready
        finally:
            if not ready.has_job:
                with trio.move_on_after(_DROP_SECONDS, shield=True):
                    await helper.drop(ready.program)
                with suppress(FileNotFoundError):
                    os.unlink(self._lock_of(landing))
                os.close(ready.lock)

    async def run(self, how: str, job: Job, environment: Mapping[str, str], ready: Ready | None = None) -> Answer:
        """Move a branch, or settle a move that was begun; where the caller is cancelled the program goes on.

        Raises:
            Conflict: the program can't be started, or can't even settle its move.
        """
        number = int(job.number)
        answer = await self._run_once(how, job, environment, ready)
        if answer is None:
            await self.end_of_earlier(number)
            answer = await self._run_once("settle", job, environment)
        if answer is None:
            raise Conflict(
                f"the program that moves {job.branch} in {job.top} was killed twice, so some files may be the landing's: "
                f"`git -C {shlex.quote(job.top)} status` shows them"
            )
        return answer

    def _start(self, landing: int) -> Ready:
        descriptors.keep_private()
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            lock = os.open(self._lock_of(landing), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return Ready(lock, helper.start((sys.executable, "-I", "-S", "-c", _PROGRAM, str(lock)), {}, (lock,)))
            except OSError:
                os.close(lock)
                raise
        except OSError as problem:
            raise Conflict(f"the program that moves a branch can't be started: {problem.strerror}: try again") from None

    async def _run_once(
        self, how: str, job: Job, environment: Mapping[str, str], ready: Ready | None = None
    ) -> Answer | None:
        """Return the answer; None: the program was killed."""
        ready = ready or self._start(int(job.number))
        path = self._lock_of(int(job.number))
        ready.has_job = True
        try:
            with trio.fail_after(_SECONDS):
                done = await helper.finish(ready.program, _written(how, job, environment))
        except trio.TooSlowError:
            await trio.to_thread.run_sync(sandbox_process.kill_all_with, path)
            return None
        finally:
            os.close(ready.lock)
        if done.returncode < 0:
            return None
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise Conflict(
                f"the program that moves {job.branch} has failed: {' '.join(last)}: `git -C {shlex.quote(job.top)} status`"
            )
        with suppress(FileNotFoundError):
            os.unlink(path)
        return _read(done.stdout)

    async def end_of_earlier(self, landing: int) -> None:
        """Wait until the program has ended that a killed daemon has started for a landing; one that hangs is killed."""
        path = self._lock_of(landing)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        deadline = trio.current_time() + _SECONDS
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if trio.current_time() > deadline:
                        await trio.to_thread.run_sync(sandbox_process.kill_all_with, path)
                    await trio.sleep(_LOOK_AGAIN)  # no event tells that a lock is free
                else:
                    os.unlink(path)
                    return
        finally:
            os.close(lock)

    def _lock_of(self, landing: int) -> str:
        return os.path.join(self._directory, f"landing-{landing}.lock")


def _written(how: str, job: Job, environment: Mapping[str, str]) -> bytes:
    words = (how, *job[1:], *(f"{name}={value}" for name, value in environment.items()))
    return b"".join(os.fsencode(word) + b"\0" for word in words) + WHOLE


def _read(printed: bytes) -> Answer:
    how, reason, *left = os.fsdecode(printed).split("\0")
    return Answer(how == "moved", reason, tuple(left), how == "elsewhere")
