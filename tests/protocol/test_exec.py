"""`agent.exec`: descriptors, signals and ends as the protocol has them."""

import os

import pytest

from tests.protocol.rules import rule
from tests.support.waiting import wait_until


@pytest.fixture
def anna(running, wire):
    wire.call("agent.spawn", workspace=str(running.workspace), name="anna", network="none")


def ask(wire, caller, *command, **more):
    return wire.ask("agent.exec", agent="anna", command=list(command), descriptors=caller.path, **more)


@rule("P-EXEC-1")
def test_the_clients_descriptors_are_the_commands(wire, anna, caller):
    number = ask(wire, caller, "sh", "-c", "echo hello; sleep 1000 & exit 3")
    caller.lend()
    assert wire.answer(number)["result"] == {"exit_code": 3}
    # All that had them is gone by now: the pipe has an end.
    assert caller.out.read() == b"hello\n"


@rule("P-EXEC-1")
@pytest.mark.parametrize("count", [0, 1, 4])
def test_another_number_of_descriptors_is_refused(wire, anna, caller, count):
    number = ask(wire, caller, "true")
    nothing = os.open(os.devnull, os.O_RDWR)
    caller.lend([nothing] * count)
    os.close(nothing)
    assert wire.answer(number)["error"]["data"]["type"] == "InvalidParams"


@rule("P-EXEC-2")
def test_signals(wire, anna, caller):
    script = "trap 'echo caught; exit 4' TERM; echo ready; while :; do sleep 0.01; done"
    number = ask(wire, caller, "sh", "-c", script)
    caller.lend()
    assert caller.out.readline() == b"ready\n"
    caller.channel.send(bytes((0, 9, 19, 99, 15)))
    assert wire.answer(number)["result"] == {"exit_code": 4}
    assert caller.out.read() == b"caught\n"


@rule("P-EXEC-3")
def test_a_caller_that_closes_its_connection(wire, anna, caller):
    number = ask(wire, caller, "sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & echo ready; sleep 1000")
    caller.lend()
    assert caller.out.readline() == b"ready\n"
    caller.channel.close()
    assert wire.answer(number)["result"] == {"exit_code": 137}
    assert caller.out.read() == b""


@rule("P-EXEC-3")
def test_a_daemon_that_is_killed(wire, anna, caller, running):
    ask(wire, caller, "sh", "-c", "setsid sleep 1000 & echo ready; sleep 1000")
    caller.lend()
    assert caller.out.readline() == b"ready\n"
    running.kill()
    assert caller.out.read() == b""
    wait_until(running._nothing_left, "the end of the sandbox")


@rule("P-EXEC-4")
def test_a_terminal_of_the_commands_own(wire, anna, caller):
    master, slave = os.openpty()
    number = ask(wire, caller, "sh", "-c", "echo $TERM; : < /dev/tty && echo mine", terminal="vt100")
    caller.lend([slave] * 3)
    os.close(slave)
    assert wire.answer(number)["result"] == {"exit_code": 0}
    shown = b""
    try:
        while data := os.read(master, 4096):
            shown += data
    except OSError:  # nobody has the other end any more (EIO)
        pass
    os.close(master)
    assert shown == b"vt100\r\nmine\r\n"
