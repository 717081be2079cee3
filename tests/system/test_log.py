"""A daemon whose log is on a full disk, has lost its reader, or isn't read: it starts, serves and ends as any other."""

import fcntl
import os
import signal
import subprocess

import pytest

from substrat.errors import DONE
from tests.support.daemon import PROGRAMS
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def logging(daemon):
    """Start a daemon that logs to a descriptor, which is closed here."""

    def start(descriptor):
        daemon.process = subprocess.Popen(
            [PROGRAMS / "substratd", "--state-dir", daemon.state, "--runtime-dir", daemon.runtime],
            env=daemon.environment(SUBSTRAT_AGENT_BINARY=str(daemon.agent)),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=descriptor,
        )  # fmt: skip
        os.close(descriptor)
        daemon.process.log = daemon.directory / "nothing.log"
        daemon.process.log.write_text("")
        daemon._started.append(daemon.process)
        daemon.ready()
        return daemon.process

    return start


def log_much(daemon, running):
    """Have the daemon write more lines than a pipe of one page holds: each reload makes one."""
    for _ in range(100):
        running.send_signal(signal.SIGHUP)
        with daemon.wire() as wire:
            wire.call("daemon.status")


def check_well(daemon, running):
    assert daemon.ctl("spawn", "anna", "/say hi", "-w", daemon.workspace(), "--wait").out.endswith("hi\n")
    running.terminate()
    assert running.wait(PATIENCE) == DONE


def test_a_log_on_a_full_disk(daemon, logging):
    check_well(daemon, logging(os.open("/dev/full", os.O_WRONLY)))


def test_a_log_whose_reader_has_gone(daemon, logging):
    reading, writing = os.pipe()
    running = logging(writing)
    os.close(reading)
    check_well(daemon, running)


def test_a_log_that_nobody_reads(daemon, logging):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(reading, "rb") as pipe:
        running = logging(writing)
        log_much(daemon, running)
        found = os.read(reading, 1 << 20).decode()
        running.send_signal(signal.SIGHUP)
        os.set_blocking(reading, False)
        wait_until(lambda: b"lines of the log were lost" in (pipe.read() or b""), "the number of lost lines")
        assert found.endswith("\n")
        check_well(daemon, running)
