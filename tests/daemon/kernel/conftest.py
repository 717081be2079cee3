"""What tests of processes share: files for their descriptors, and a process that goes on."""

import contextlib
import os
import signal

import pytest
import trio

from substrat.daemon.kernel import process
from tests.support.optional import present

PATIENCE = 20


class Bench:
    """Files for a process's four descriptors."""

    def __init__(self, directory):
        self.files = [directory / name for name in ("stdin", "stdout", "stderr", "status")]
        self.files[0].write_bytes(b"the prompt")

    def start(self, *command, environment=None):
        descriptors = [os.open(self.files[0], os.O_RDONLY | os.O_CLOEXEC)]
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptors += [os.open(path, appending) for path in self.files[1:]]
        try:
            return process.start(command, environment or {}, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def sleeper(bench):
    """A process that goes on until the test ends."""
    started = bench.start("/bin/sleep", "1000")
    yield started
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)


async def ended(started):
    pidfd = present(process.open_pidfd(started))
    try:
        with trio.fail_after(PATIENCE):
            await process.wait_exit(started, pidfd)
    finally:
        os.close(pidfd)
