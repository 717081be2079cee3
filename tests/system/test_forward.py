"""Ports of agents' sandboxes, reached by a person: real sandboxes, real connections."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _alone():
    """One of these tests at a time: each daemon's first agent has the same address of the machine's."""
    with (Path(tempfile.gettempdir()) / f"substrat-forward-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Answers each connection with a word and the address that it came from, until the file `go` is there.
SERVER = """
import os, socket, threading, time
listener = socket.socket({family}, socket.SOCK_STREAM)
listener.bind(("{address}", {port}))
listener.listen()
open("ready-{word}", "w").close()
def serve():
    while True:
        client, peer = listener.accept()
        data = client.recv(100)
        client.sendall(b"{word} " + data + b" " + peer[0].encode())
        client.close()
threading.Thread(target=serve, daemon=True).start()
while not os.path.exists("go-{word}"):
    time.sleep(0.02)
"""


def server(work, word, port=8000, address="127.0.0.1", family="socket.AF_INET"):
    """Write a server into a workspace, and return the command that runs it."""
    (work / f"{word}.py").write_text(SERVER.format(word=word, port=port, address=address, family=family))
    return f"python3 {word}.py"


@contextlib.contextmanager
def forwarding(daemon, *words):
    """Run `forward`, and give the address at which it listens."""
    process = daemon.follow("forward", *words, "--json")
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listen"].partition(":")[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def ask(address, port, text=b"hi"):
    """Send a text and return the answer; None when the connection is refused or reset."""
    try:
        with socket.create_connection((address, port), timeout=10) as client:
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
            data = b""
            while piece := client.recv(100):
                data += piece
            return data or None
    except (ConnectionError, TimeoutError):
        return None
    except OSError as problem:
        if problem.errno != errno.ENOTCONN:  # shutdown(2) after the other end's reset
            raise
        return None


@pytest.mark.parametrize("network", ["none", "filtered"])
def test_a_port_is_reached_in_each_turn_and_across_a_restart(daemon, network):
    daemon.start()
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "--network", network, f"/shell {server(work, 'one')}")
    with forwarding(daemon, "anna", "8000", "8001:8000") as address:
        assert address == "127.0.77.1"
        wait_until((work / "ready-one").exists, "the server")
        wait_until(lambda: ask(address, 8000) == b"one hi 127.0.0.1", "the answer")
        assert ask(address, 8001) == b"one hi 127.0.0.1"
        for other in ("127.0.0.1", "127.0.77.2"):
            with pytest.raises(OSError), socket.create_connection((other, 8000), timeout=5):
                pass
        daemon.kill()
        assert ask(address, 8000) == b"one hi 127.0.0.1"  # no daemon is needed for that
        daemon.start()
        (work / "go-one").touch()
        wait_until(lambda: daemon.show("anna")["state"] == "idle", "the end of the turn")
        assert ask(address, 8000) is None
        daemon.ok("send", "anna", f"/shell {server(work, 'two', address='::1', family='socket.AF_INET6')}")
        wait_until(lambda: ask(address, 8000) == b"two hi ::1", "the answer of the next turn")
        (work / "go-two").touch()


def test_each_agent_has_an_address_of_its_own_while_it_lives(daemon):
    daemon.start()
    work = daemon.workspace()
    for name in ("anna", "bob"):
        daemon.spawn(name, work, "/say hi")
    with forwarding(daemon, "anna", "8000") as first, forwarding(daemon, "bob", "8000") as second:
        assert (first, second) == ("127.0.77.1", "127.0.77.2")
        busy = daemon.ctl("forward", "bob", "8000")
        assert (busy.code, "8001:8000" in busy.error) == (1, True), busy
    daemon.kill()
    daemon.start()
    daemon.ok("end", "anna")
    daemon.spawn("carol", work, "/say hi")
    with forwarding(daemon, "bob", "8000") as second, forwarding(daemon, "carol", "8000") as third:
        assert (second, third) == ("127.0.77.2", "127.0.77.1")


def test_a_command_of_execs_is_reached_too(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say hi", "--network", "none")
    with forwarding(daemon, "anna", "8000") as address:
        process = daemon.follow("exec", "anna", "--", "sh", "-c", server(work, "shell"))
        wait_until(lambda: ask(address, 8000) == b"shell hi 127.0.0.1", "the answer")
        (work / "go-shell").touch()
        process.wait()
        wait_until(lambda: ask(address, 8000) is None, "the end")


def test_nothing_of_this_machine_is_in_the_sandboxs_reach(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "--network", "none", f"/shell {server(work, 'one')}")
    with forwarding(daemon, "anna", "8000") as address:
        wait_until(lambda: ask(address, 8000) is not None, "the answer")
        look = (
            "import os, socket\n"
            f"for address in (('{address}', 8000), ('127.0.0.1', 8000)):\n"
            "    s = socket.socket(); s.settimeout(5); print(s.connect_ex(address))\n"
            "print([os.readlink(f'/proc/self/fd/{n}') for n in (3, 4, 5) if os.path.exists(f'/proc/self/fd/{n}')])\n"
        )
        (work / "look.py").write_text(look)
        found = daemon.ctl("exec", "anna", "--", "python3", "look.py")
        assert str(found.out).count("111") == 2, found
        (work / "go-one").touch()


def test_an_agent_that_has_this_machines_network_needs_no_forwarding(daemon):
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), "/say hi", "--network", "host")
    said = daemon.ctl("forward", "anna", "8000")
    assert (said.code, "directly" in said.error) == (1, True), said


def test_a_port_that_is_none_is_a_usage_error(daemon):
    for words in (("0",), ("x",), ("70000",), ("8000:",), (":8000",), ("1:2:3",), ("8000", "8000:1"), ()):
        assert daemon.ctl("forward", "anna", *words).code == 2, words


def test_many_connections_and_much_data(daemon):
    daemon.start()
    work = daemon.workspace()
    (work / "echo.py").write_text(
        "import socket, threading\n"
        "listener = socket.create_server(('127.0.0.1', 8000), backlog=100)\n"
        "def serve(client):\n"
        "    while data := client.recv(65536):\n"
        "        client.sendall(data)\n"
        "    client.close()\n"
        "while True:\n"
        "    threading.Thread(target=serve, args=(listener.accept()[0],)).start()\n"
    )
    daemon.ok("spawn", "anna", "-w", work, "--network", "none", "/shell python3 echo.py")
    with forwarding(daemon, "anna", "8000") as address:
        wait_until(lambda: ask(address, 8000) == b"hi", "the answer")
        big = bytes(range(256)) * 4096
        sent = subprocess.run(
            ["python3", "-c", ECHO, address], input=big, stdout=subprocess.PIPE, timeout=60, check=True
        ).stdout
        assert sent == big
        for _ in range(70):  # more than one batch of sockets
            assert ask(address, 8000) == b"hi"
    daemon.ok("end", "anna")


ECHO = """
import socket, sys, threading
data = sys.stdin.buffer.read()
client = socket.create_connection((sys.argv[1], 8000))
def send():
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
while piece := client.recv(65536):
    sys.stdout.buffer.write(piece)
"""
