"""Programs that stand for cursor-agent, a daemon of the tests' own, and that nothing is left after any test."""

import contextlib
import gc
import json
import os
from pathlib import Path

import pytest

from substrat.cli.connection import Connection
from tests.support import script
from tests.support.daemon import PROGRAMS, DaemonFixture
from tests.support.processes import is_alive

STANDIN = PROGRAMS / "cursor-agent-standin"

HANGING = "mark('pid', str(os.getpid()))\nline({'type': 'assistant', 'text': 'a', 'timestamp_ms': 1})\nhang()"
PRELUDE = f"""\
{script.head("-S")}import json, os, signal, sys, time
prompt = sys.stdin.read()
def line(*objects):
    for item in objects:
        sys.stdout.write(json.dumps(item) + "\\n")
    sys.stdout.flush()
def mark(name, text=""):
    with open(name + ".part", "w") as file:
        file.write(text)
    os.rename(name + ".part", name)
def hang():
    while True:
        signal.pause()
"""


def pid_in(place):
    return int((place / "pid").read_text())


def _children():
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
    return set(found)


def _descriptors():
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: path for number, path in found.items() if path.startswith(("pipe:", "socket:", "anon_inode:"))}


@pytest.fixture(autouse=True)
def nothing_left(request):
    """No process, zombie, pipe or socket of a test outlives it."""
    if "daemon" in request.fixturenames:
        request.getfixturevalue("running_daemon")
    gc.collect()
    gc.freeze()  # the collection after the test looks only at what the test has made
    children, descriptors = _children(), _descriptors()
    yield
    gc.collect()
    assert _children() == children
    assert _descriptors() == descriptors


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, nothing_left):
    """A home and a workspace, which is the current directory; the default agent is the stand-in."""
    for name in list(os.environ):
        if name.startswith(("CURSOR_", "SUBSTRAT_", "XDG_", "STANDIN_")):
            monkeypatch.delenv(name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SUBSTRAT_AGENT_BINARY", str(STANDIN))
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def program(tmp_path):
    """Write an agent program; its source runs after the prompt was read."""

    def write(source, name="scripted"):
        path = tmp_path / name
        path.write_text(source if source.startswith("#!") else PRELUDE + source)
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def printing(program):
    """Write an agent program that prints these objects, or lines, and ends."""

    def write(*items, code=0, errors=""):
        lines = [item if isinstance(item, str) else json.dumps(item) for item in items]
        text = "".join(entry + "\n" for entry in lines)
        return program(f"sys.stdout.write({text!r})\nsys.stderr.write({errors!r})\nsys.exit({code})\n")

    return write


@pytest.fixture
def alive():
    """`is_alive`."""
    return is_alive


class Daemon(DaemonFixture):
    """A real daemon whose agents are the stand-in."""

    def agents(self):
        with Connection(str(self.socket)) as connection:
            return connection.call_list("agent.list")


@pytest.fixture(scope="session")
def running_daemon(tmp_path_factory):
    """One daemon for all tests of a worker; each test leaves it without agents."""
    with Daemon(tmp_path_factory.mktemp("daemon")) as found:
        yield found.start()


@pytest.fixture
def daemon(running_daemon, place, monkeypatch):
    """The daemon, found by the environment, without agents before and after."""
    monkeypatch.setenv("SUBSTRAT_SOCKET", str(running_daemon.socket))
    assert running_daemon.agents() == []
    yield running_daemon
    gc.collect()
    assert running_daemon.agents() == []
