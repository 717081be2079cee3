"""Messages to the service manager, over a real socket; without one nothing is harmed."""

import os
import socket

import pytest
import trio
import trio.testing

from substrat.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A service manager: its address as it would be given, and its socket."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@substrat-test-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        yield address, sock


def received(sock):
    found = []
    while True:
        try:
            found.append(sock.recv(4096).decode())
        except BlockingIOError:
            return found


def test_states_are_sent_as_one_message(manager):
    address, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.send("READY=1", "STATUS=3 agents")
    notifier.send("STOPPING=1")
    assert received(sock) == ["READY=1\nSTATUS=3 agents", "STOPPING=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_happens(environ):
    Notifier(environ).send("READY=1")


@pytest.mark.parametrize("address", ["/nonexistent/notify", "@nobody-listens-here"])
def test_a_manager_that_is_gone_does_not_stop_the_daemon(address):
    Notifier({"NOTIFY_SOCKET": address}).send("WATCHDOG=1")


async def test_the_watchdog_is_fed_twice_in_each_period(manager, autojump_clock):
    address, sock = manager
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000"})
    with trio.move_on_after(27):
        await notifier.feed_watchdog()
    assert received(sock) == ["WATCHDOG=1"] * 6


ENVIRONS = [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}]


@pytest.mark.parametrize("environ", ENVIRONS)
async def test_a_watchdog_that_is_not_ours_is_not_fed(manager, autojump_clock, environ):
    address, sock = manager
    await Notifier({"NOTIFY_SOCKET": address, **environ}).feed_watchdog()
    assert received(sock) == []


async def test_a_watchdog_that_names_us_is_fed(manager, autojump_clock):
    address, sock = manager
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
    with trio.move_on_after(1):
        await Notifier(environ).feed_watchdog()
    assert received(sock) == ["WATCHDOG=1"]


@pytest.mark.parametrize("value", ["", "soon"])
def test_a_period_that_is_no_number_is_no_period(value):
    Notifier({"WATCHDOG_USEC": value})
