"""Clients of a real daemon that is killed, restarted or stopped while they wait."""

import contextlib
import os
import signal
import socket
import threading

import pytest

from tests.support.waiting import PATIENCE


def test_waits_go_on_with_the_next_daemon(running, until):
    workspace = running.workspace()
    agent = running.held("anna", workspace)
    waits = [running.follow("wait", "anna", "--timeout", "60"), running.follow("send", "anna", "/say second", "--wait")]
    spawned = running.workspace("other")
    script = "/shell while [ ! -e go ]; do sleep 0.02; done\n/say mine"
    waits.append(running.follow("spawn", "bert", "-w", spawned, script, "--wait"))
    until(lambda: [found["name"] for found in running.ok("ls")] == ["anna", "bert"], "bert")
    until(lambda: running.show("anna")["unread"] == 1, "the prompt")
    running.kill()
    running.start()
    # A newer prompt is not the one that `spawn --wait` waits for.
    running.ok("send", "bert", "/say newer")
    (workspace / "go").touch()
    (spawned / "go").touch()
    results = [(process.wait(40), process.stdout.read().decode(), process.stderr.read().decode()) for process in waits]
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert [out for _, out, _ in results] == ["anna  idle\n", "second\n", "mine\n"]
    prompts = [event["text"] for event in running.events("anna", "user")]
    assert prompts.count("/say second") == 1
    assert agent["id"] == running.show("anna")["id"]


@pytest.mark.slow
def test_a_stopped_daemon_keeps_no_wait_beyond_its_time(running):
    running.held("anna", (workspace := running.workspace()))
    os.kill(running.process.pid, signal.SIGSTOP)
    try:
        done = running.ctl("wait", "anna", "--timeout", "3")
        assert (done.code, done.out) == (124, "")
        assert "has not answered for 2 s; still waiting" in done.err
        process = running.follow("send", "anna", "/say later")
        assert b"has not answered for 2 s; still waiting" in process.stderr.readline()
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    assert process.wait(20) == 0
    (workspace / "go").touch()
    assert running.wait("anna", "idle")["state"] == "idle"


GREETING = b'{"jsonrpc":"2.0","id":0,"result":{"protocol":1,"server":"x"}}\n'
ANYTHING = {
    "nothing": None,
    "drops": b" ",
    "a flood": b'{"jsonrpc":"2.0","method":"event","params":{}}\n' * 100,
}


def test_exec_tells_of_a_daemon_that_greets_and_does_not_answer(daemon):
    """Its answer may take long, but the daemon comes for the command's descriptors at once."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(daemon.socket))
        listener.listen()
        over = threading.Event()
        processes = {}
        for kind, data in ANYTHING.items():
            processes[kind] = daemon.follow("exec", "anna", "--", "true")
            connection = stack.enter_context(listener.accept()[0])
            connection.recv(1 << 16)
            connection.sendall(GREETING)
            helper = threading.Thread(target=keep_sending, args=(connection, data, over))
            helper.start()
            stack.callback(helper.join)
        stack.callback(over.set)
        for kind, process in processes.items():
            assert b"has not answered for 2 s; still waiting" in process.stderr.readline(), kind
            process.kill()
            process.communicate(timeout=PATIENCE)


def keep_sending(connection, data, over):
    with contextlib.suppress(OSError):
        while data is not None and not over.wait(0.01):
            connection.sendall(data)
