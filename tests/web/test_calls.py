"""Tool calls are paired with their starts, and no agent's calls stand in the way of another's."""

from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from substrat.web import calls
from substrat.web.calls import Calls


def event(cursor, agent, kind, call="") -> Any:
    return {"cursor": cursor, "agent": agent, "kind": kind, "raw": {"type": "tool_call", "call_id": call}}


async def test_an_agent_that_begins_many_calls_pushes_out_nobody_elses(tmp_path):
    pairing = Calls(str(tmp_path / "no daemon"))
    begun = event(1, "anna", "tool-call-started", "one")
    await pairing.paired(begun)
    for number in range(2000):
        await pairing.paired(event(2 + number, "eve", "tool-call-started", str(number)))
    ended = await pairing.paired(event(3000, "anna", "tool-call-completed", "one"))
    assert as_sent(ended["call"]) == {"cursor": 1, "raw": begun["raw"]}
    assert len(pairing._open["eve"]) == calls._MOST_OPEN
    await pairing.paired(event(3001, "eve", "turn:ended"))
    assert "eve" not in pairing._open


def as_sent(call):
    return msgspec.json.decode(msgspec.json.encode(call))


async def test_starts_of_all_agents_together_are_held_up_to_some_bytes_the_longest_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "_MOST_BYTES", 10_000)
    pairing = Calls(str(tmp_path / "no daemon"))
    await pairing.paired(event(1, "anna", "tool-call-started", "short"))
    for number in range(100):
        agent, call = f"eve {number % 7}", f"{number}".ljust(1000 + 10 * (number % 50))
        await pairing.paired(event(2 + number, agent, "tool-call-started", call))
        held = sum(len(start.raw) for starts in pairing._open.values() for start in starts.values())
        assert held == pairing._bytes <= 10_000
    await pairing.paired(event(102, "eve", "tool-call-started", "x" * 10_000))
    # A start that isn't held is unknown, as one from before the events is.
    assert (await pairing.paired(event(103, "eve", "tool-call-completed", "x" * 10_000)))["call"] is None
    assert (await pairing.paired(event(104, "anna", "tool-call-completed", "short")))["call"] is not None
    for number in range(7):
        await pairing.paired(event(105 + number, f"eve {number}", "turn:ended"))
    assert pairing._bytes == 0


async def test_searches_take_a_tenth_of_the_time(autojump_clock, monkeypatch):
    @asynccontextmanager
    async def connected(_):
        yield

    async def found_late(*_):
        await trio.sleep(0.9)
        return {"cursor": 1}

    monkeypatch.setattr(calls, "connected", connected)
    monkeypatch.setattr(calls, "_start_of", found_late)
    pairing = Calls("")

    async def end(agent):
        return (await pairing.paired(event(2, agent, "tool-call-completed", "one")))["call"]

    began = trio.current_time()
    found = [await end(f"eve {number}") for number in range(100)]
    assert (found[0], any(found[1:])) == ({"cursor": 1}, False)
    assert trio.current_time() < began + 2
    await trio.sleep(20)
    assert await end("anna") == {"cursor": 1}
