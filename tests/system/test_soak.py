"""The soak, very short: what it says of itself is true, and nothing is left of it."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def soak():
    """Start a soak; its temporary directory must be empty in the end."""
    # Not pytest's own directory, which is too deep for a socket's path.
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as place:
        started = []

        def start(*arguments):
            environ = {**os.environ, "TMPDIR": place}
            started.append(
                subprocess.Popen([sys.executable, SOAK, *arguments], env=environ, stdout=subprocess.PIPE, text=True)
            )
            return started[-1]

        yield start
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
        assert os.listdir(place) == []


def test_a_short_soak_breaks_no_promise(soak):
    process = soak("--agents", "8", "--seconds", "8")
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "BROKEN" not in said
    assert "all promises kept, nothing grew" in said
    assert "memory, MiB" in said


def test_ctrl_c_ends_a_soak_early_and_cleanly(soak):
    process = soak("--agents", "4", "--seconds", "600")
    while "agents are there" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "nothing grew" in said
