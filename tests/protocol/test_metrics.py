"""`daemon.metrics`: exact over turns with the stand-in, and over the death of the daemon in the middle of one."""

from substrat.protocol.objects import HistogramObject, MetricsObject, TokenCountObject
from tests.support.waiting import PATIENCE, wait_until

TOTALS = ("turns", "turn_seconds", "queue_seconds", "tokens", "tool_calls", "messages", "network")


def totals(wire):
    """Every total, and the use of tokens by type."""
    found = wire.call("daemon.metrics")
    return {name: found[name] for name in TOTALS}


def test_totals_survive_the_daemons_death_and_their_agents(wire, running):
    running.spawn(wire, "anna", '/shell true\n/shell true\n/tool send_message {"to": "operator", "text": "hi"}\n/say done')
    running.run(wire, "bert", "/exit 3")
    wire.call("agent.wait", agents=["anna"], timeout=PATIENCE)
    running.hold(wire, "carl", before="/shell true\n")
    # The program looks a tool's schema up before it calls it, which is a call too.
    wait_until(lambda: totals(wire)["tool_calls"] == 6, "the count of the calls")
    running.kill()
    running.start()
    with running.wire() as again:
        running.release()
        again.call("agent.wait", agents=["carl"], timeout=PATIENCE)
        before = totals(again)
        assert before["turns"] == {"success": 2, "error": 1, "interrupted": 0, "timed_out": 0, "lost": 0}
        assert (before["tool_calls"], before["messages"]) == (6, {"accepted": 1, "refused": 0})
        assert before["turn_seconds"]["count"] == before["queue_seconds"]["count"] == 3
        assert before["turn_seconds"]["sum"] > 0
        used = [again.call("agent.usage", agent=name)["usage"] for name in ("anna", "carl")]
        counted = {(one["type"], one["model"]): one["count"] for one in before["tokens"]}
        assert counted == {
            (kind, "auto"): sum(one[name] for one in used)
            for kind, name in (("input", "inputTokens"), ("output", "outputTokens"))
        }
        for name in ("anna", "bert", "carl"):
            again.call("agent.end", agent=name)
            again.call("agent.rm", agent=name)
        assert totals(again) == before
    running.kill()
    running.start()
    with running.wire() as last:
        assert totals(last) == before
        found = last.call("daemon.metrics")
        assert found["cursor"] > 0
        assert sum(found["agents"].values()) == 0


def test_now_is_counted_when_it_is_asked_for(wire, running):
    running.hold(wire, "anna", before='/tool ask_operator {"question": "which way?"}\n')
    running.run(wire, "bert")
    running.spawn(wire, "carl", prompt=None)
    wait_until(lambda: wire.call("inbox.list"), "the question")
    found = wire.call("daemon.metrics")
    assert list(found) == list(MetricsObject.__annotations__)
    assert list(found["turn_seconds"]) == list(HistogramObject.__annotations__)
    assert list(found["tokens"][0]) == list(TokenCountObject.__annotations__)
    assert found["agents"] == {"idle": 2, "queued": 0, "running": 1, "suspended": 0, "failed": 0, "ended": 0}
    kinds = {(one["kind"], one["level"]): one["count"] for one in found["attention"] if one["count"]}
    assert kinds == {("answer", "urgent"): 1, ("idle", "info"): 2}
    assert (found["questions"], found["queued"], found["waits"]) == (1, 0, 0)
    assert found["state_bytes"] > 0
    running.release()
