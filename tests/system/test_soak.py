"""The soak, very short: what it says of itself is true, it finds each kind of leak, and nothing is left of it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


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
    for figure in ("memory, MiB", "descriptors", "rows in the database", "leftovers in workspaces"):
        assert re.search(rf"(?m)^{re.escape(figure)} +\d", said), figure
    assert re.search(r"(?m)^a person's git: \w+ \d", said)
    assert re.search(r"(?m)^done to agents: .*send \d", said)


LEAKS = {
    "pipe": r"descriptors grew \(pipe\)",
    "watches": r"inotify watches grew \(writes\)",
    "name watches": r"inotify watches grew \(names\)",
    "thread": r"threads grew \(python\w*\)",
    "memory": r"memory, MiB grew",
    "process": r"processes left \(sleep\)",
    "temporary": r"temporary files \(tmp\*\)",
    "placeholders": r"leftovers in workspaces \(plain: \.envrc\)",
    "rows": r"rows of what is under way grew \(mount_points\)",
    "events": r"follower missed \d+ of \d+ events",
}
AS_ROOT = {
    "namespace": r"network namespaces \(held by the daemon\)",
    "mount": r"mounts \(/tmp/tmp\*\)",
}


def test_it_finds_and_names_each_kind_of_leak(soak):
    leaks = {**LEAKS, **(AS_ROOT if os.geteuid() == 0 else {})}
    process = soak("--agents", "8", "--seconds", "15", "--settle", "3", "--leak", ",".join(leaks))
    said = process.communicate()[0]
    assert process.returncode == 1, said
    assert [leak for leak, named in leaks.items() if not re.search(f"BROKEN: .*{named}", said)] == [], said
    assert said.splitlines()[-1] == "seed 1: broken"


def test_it_ends_when_the_daemon_hangs(soak):
    process = soak("--agents", "4", "--seconds", "600", "--patience", "3", "--leak", "hang")
    said = process.communicate()[0]
    assert process.returncode == 1, said
    # The soak may have told the daemon to end just when it began to hang.
    assert re.search("BROKEN: the daemon hangs: it didn't (answer `daemon.status`|end) within 3 s", said), said


def test_it_ends_when_its_connection_is_lost_and_the_daemon_lives(soak):
    process = soak("--agents", "8", "--seconds", "1", "--patience", "3", "--leak", "connections")
    said = process.communicate()[0]
    assert process.returncode == 1, said
    assert "BROKEN: the connection was lost, and the daemon didn't end within 3 s" in said, said


def test_ctrl_c_ends_a_soak_early_and_cleanly(soak):
    process = soak("--agents", "4", "--seconds", "600")
    while "agents are there" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "nothing grew" in said
