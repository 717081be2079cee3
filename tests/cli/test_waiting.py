"""`ls` and `show` say why queued agents wait."""

import pytest

from substrat.errors import MethodNotFound

AGENT = {"id": "i", "name": "anna", "state": "queued"}


@pytest.mark.parametrize("words", [("ls",), ("ls", "--json"), ("show", "anna")])
def test_the_reason_is_told_on_standard_error(ctl, fake, words):
    fake({"agent.list": [AGENT], "agent.show": AGENT, "daemon.status": {"waiting_for": "5 MiB are free"}})
    done = ctl(*words)
    assert (done.code, done.error) == (0, "no turn starts: 5 MiB are free")


def test_without_a_reason_nothing_is_told(ctl, fake):
    answers: dict[str, object] = {"agent.list": [AGENT]}
    fake(answers)
    for status in ({"waiting_for": None}, {}, MethodNotFound("no such method")):
        answers["daemon.status"] = status
        assert (ctl("ls").code, ctl("ls").err) == (0, "")


def test_nobody_asks_when_nobody_waits(ctl, fake):
    daemon = fake({"agent.list": [{**AGENT, "state": "idle"}]})
    assert ctl("ls").err == ""
    assert daemon.calls("daemon.status") == []
