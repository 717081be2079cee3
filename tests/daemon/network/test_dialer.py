"""Dialling: a resolver that never answers."""

import socket
import threading

import pytest
import trio

from substrat.core.netfilter.names import AllowList
from substrat.daemon.network import dialer
from substrat.daemon.network.decisions import Decision, Decisions
from substrat.daemon.network.dialer import Dialer, NotConnected, target_of
from tests.support.waiting import PATIENCE


async def test_look_ups_that_are_never_answered_leave_other_turns_and_the_daemon_their_threads(monkeypatch):
    answered = threading.Event()
    real = socket.getaddrinfo

    def slow_for_some(name, *arguments, **options):
        if name == "hangs.test":
            answered.wait()
        return real("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow_for_some)
    monkeypatch.setattr(dialer, "_LOOKUP_SECONDS", 0.01)
    recorded: list[Decision] = []
    allowed = AllowList.of(("hangs.test", "answers.test"))
    hanging, other = (Dialer(allowed, Decisions(recorded.append), None, None) for _ in range(2))
    try:
        for _ in range(2 * int(trio.to_thread.current_default_thread_limiter().total_tokens)):
            with pytest.raises(NotConnected, match="no answer in time"):
                await hanging.dial(target_of("hangs.test", 443))
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        monkeypatch.setattr(dialer, "_LOOKUP_SECONDS", PATIENCE)
        with pytest.raises(NotConnected, match="leads to"):  # looked up, and refused as this machine's
            await other.dial(target_of("answers.test", 443))
    finally:
        answered.set()
