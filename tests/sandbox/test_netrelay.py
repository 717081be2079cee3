"""The proxy form's relay by itself: a real one on this machine's loopback, the test at the socket behind it."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from sandbox import netrelay
from tests.support.processes import arguments_of, processes

PATIENCE = 20


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Scene:
    """A relay beside a program that lives until its standard input ends, and the listener it brings connections to."""

    def __init__(self, path, prefix=()):
        self.path, self.port = path, free_port()
        self.ended = contextlib.ExitStack()
        self.listen()
        relay = (sys.executable, "-I", "-S", netrelay.__file__, str(self.port), path)
        self.program = subprocess.Popen([*prefix, *relay, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while self.executing() != "cat":
            assert self.program.poll() is None
            assert time.monotonic() < deadline

    def executing(self):
        return Path(f"/proc/{self.program.pid}/comm").read_text().strip()

    def listen(self):
        self.listener = self.ended.enter_context(socket.socket(socket.AF_UNIX))
        self.listener.bind(self.path)
        self.listener.listen(512)
        self.listener.settimeout(PATIENCE)

    def connect(self):
        """Both ends of a connection: the program's, the daemon's."""
        return self.dial(), self.accept()

    def dial(self):
        return self.ended.enter_context(socket.create_connection(("127.0.0.1", self.port), PATIENCE))

    def accept(self):
        outside = self.ended.enter_context(self.listener.accept()[0])
        outside.settimeout(PATIENCE)
        return outside

    def nobody_comes(self, seconds):
        self.listener.settimeout(seconds)
        with pytest.raises(TimeoutError):
            self.accept()
        self.listener.settimeout(PATIENCE)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
        except ConnectionRefusedError:
            return False
        except ConnectionResetError:  # it ended just then
            return True
        return True

    def end(self):
        self.program.stdin.close()
        self.program.wait(PATIENCE)
        self.ended.close()
        deadline = time.monotonic() + PATIENCE
        while self.answers():
            assert time.monotonic() < deadline, "the relay goes on without its program"


@pytest.fixture
def new_scene():
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, contextlib.ExitStack() as ended:

        def make(prefix=()):
            place = Scene(f"{directory}/s", prefix)
            ended.callback(place.end)
            return place

        yield make


@pytest.fixture
def scene(new_scene):
    return new_scene()


def everything(end):
    found = b""
    while piece := end.recv(1 << 20):
        found += piece
    return found


@pytest.mark.parametrize("first", ["inside", "outside"])
def test_many_bytes_both_ways_and_one_end_before_the_other(scene, first):
    ends = scene.connect()
    one, other = ends if first == "inside" else ends[::-1]
    there, back = os.urandom(20_000_000), os.urandom(20_000_000)
    got = []

    def say():
        one.sendall(there)
        one.shutdown(socket.SHUT_WR)

    def hear():
        got.append(everything(one))

    def say_back():
        other.sendall(back)
        other.shutdown(socket.SHUT_WR)

    tasks = [threading.Thread(target=task) for task in (say, say_back, hear)]
    for task in tasks[:2]:
        task.start()
    scene.nobody_comes(0.2)  # until here no program reads, so that all buffers are full
    assert everything(other) == there
    tasks[2].start()
    for task in tasks:
        task.join(PATIENCE)
    assert got == [back]


def test_without_a_daemon_a_connection_is_cut_at_once_and_with_a_new_one_it_works(scene):
    inside, outside = scene.connect()
    scene.listener.close()
    outside.close()
    with pytest.raises(ConnectionResetError):
        inside.recv(1)
    for path in (scene.path, None):
        with pytest.raises(ConnectionResetError):  # while it connects or after that
            scene.dial().recv(1)
        if path is not None:
            os.unlink(path)
    scene.listen()
    inside, outside = scene.connect()
    outside.sendall(b"again")
    assert inside.recv(9) == b"again"
    inside.close()
    assert outside.recv(9) == b""


def test_an_end_is_an_end_and_a_cut_is_a_cut(scene):
    inside, outside = scene.connect()
    outside.sendall(b"last words")
    outside.shutdown(socket.SHUT_WR)
    assert everything(inside) == b"last words"
    inside.sendall(b"yes")
    inside.close()
    assert everything(outside) == b"yes"
    inside, outside = scene.connect()
    inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, sys.byteorder) + bytes(4))
    inside.close()
    with contextlib.suppress(ConnectionResetError):
        assert outside.recv(1) == b""


@pytest.fixture
def many_descriptors():
    """Let this process have more than the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096 if hard == resource.RLIM_INFINITY else min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_connections_and_a_bound(many_descriptors, scene):
    held = [scene.connect() for _ in range(netrelay.MOST)]
    waiting = scene.dial()
    scene.nobody_comes(0.1)
    for inside, outside in held:
        inside.sendall(b"x")
        assert outside.recv(1) == b"x"
    for end in held.pop():
        end.close()
    last = scene.accept()
    waiting.sendall(b"y")
    assert last.recv(1) == b"y"


def test_it_idles_while_nothing_moves(scene):
    """Ends that have sent all, and ends that no program reads, don't keep it busy."""
    half, held = scene.connect()
    half.shutdown(socket.SHUT_WR)
    assert held.recv(1) == b""
    full, unread = scene.connect()
    full.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(bytes(1 << 20))
    unread.shutdown(socket.SHUT_WR)
    (relay,) = (pid for pid in processes() if str(scene.port) in arguments_of(pid))
    before = ticks(relay)
    scene.nobody_comes(0.5)
    assert ticks(relay) - before < 10  # of 50


def ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_few_descriptors_end_nothing(new_scene):
    scene = new_scene(("prlimit", "--nofile=24", "--"))
    held = [scene.dial() for _ in range(30)]
    for one in held:
        one.close()
    scene.listener.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while True:
            scene.accept().close()
    scene.listener.settimeout(PATIENCE)
    inside, outside = scene.connect()
    inside.sendall(b"x")
    assert outside.recv(1) == b"x"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (("sh", "-c", "exit 7"), 7, ""),
        (("/bin/sh", "-c", "kill -9 $$"), -9, ""),
        (("no-such-program",), 127, "substrat: failed to execute no-such-program: No such file or directory\n"),
        (("/etc/hostname/x",), 127, "substrat: failed to execute /etc/hostname/x: Not a directory\n"),
        (("/etc/passwd",), 126, "substrat: failed to execute /etc/passwd: Permission denied\n"),
    ],
)
def test_the_program_is_as_without_it(tmp_path, program, code, said):
    relay = (sys.executable, "-I", "-S", netrelay.__file__, str(free_port()), str(tmp_path / "s"))
    path = {"PATH": "/nonexistent:/usr/bin:/bin"}
    done = subprocess.run([*relay, *program], env=path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_port_that_is_taken_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        relay = (sys.executable, "-I", "-S", netrelay.__file__, str(port), str(tmp_path / "s"))
        done = subprocess.run([*relay, "true"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (125, "substrat: no filtered network: relay: Address already in use\n")
