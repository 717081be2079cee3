"""`usage`: tokens of each agent, of its family, and of all."""

from substrat import errors
from substrat.cli.verbs import usage


def test_numbers_stand_below_each_other_and_are_added_up(ctl, fake, monkeypatch):
    used = {
        "a": {"turns": 12, "usage": {"inputTokens": 15043, "outputTokens": 7}, "family": {"agents": 1}},
        "b": {
            "turns": 1, "usage": {"inputTokens": 5, "outputTokens": 1000},
            "family": {"agents": 3, "turns": 4, "usage": {"inputTokens": 80, "outputTokens": 2000}},
        },
    }  # fmt: skip
    pages = {
        None: [{"agent": "a", "name": "anna", **used["a"]}],
        "a": [{"agent": "b", "name": "boss", **used["b"]}],
        "b": [],
    }
    monkeypatch.setattr(usage, "_PAGE", 1)
    fake({"usage.list": lambda params: pages[params.get("after")]})
    assert ctl("usage").out.splitlines() == [
        "NAME            TURNS  INPUT  OUTPUT  CACHE READ  CACHE WRITE",
        "anna               12  15043       7           -            -",
        "boss                1      5    1000           -            -",
        "boss and its 2      4     80    2000           -            -",
        "all 2              13  15048    1007           0            0",
    ]


def test_the_list_begins_again_when_the_last_agent_of_a_page_was_removed(ctl, fake, monkeypatch):
    answers = [
        [{"agent": "a", "name": "anna"}],
        errors.NotFound("there is no agent 'a'"),
        [{"agent": "b", "name": "ben"}],
        [],
    ]
    monkeypatch.setattr(usage, "_PAGE", 1)
    daemon = fake({"usage.list": lambda _: answers.pop(0)})
    assert ctl("usage", "--json").json == [{"agent": "b", "name": "ben"}]
    assert [params.get("after") for params in daemon.calls("usage.list")] == [None, "a", None, "b"]
