"""`usage`: tokens of each agent, of its family, and of all."""

from datetime import UTC, datetime

from substrat import errors
from substrat.cli.verbs import usage


def test_numbers_stand_below_each_other_and_are_added_up(ctl, fake, monkeypatch):
    used = {
        "a": {"turns": 12, "usage": {"inputTokens": 15043, "outputTokens": 7}, "usd": None, "family": {"agents": 1}},
        "b": {
            "turns": 1, "usage": {"inputTokens": 5, "outputTokens": 1000}, "usd": 1.5, "unpriced": 0,
            "family": {
                "agents": 3, "turns": 4, "usage": {"inputTokens": 80, "outputTokens": 2000}, "usd": 1234.5, "unpriced": 2,
            },
        },
    }  # fmt: skip
    pages = {
        None: [{"agent": "a", "name": "anna", **used["a"]}],
        "a": [{"agent": "b", "name": "boss", **used["b"]}],
        "b": [],
    }
    monkeypatch.setattr(usage, "_PAGE", 1)
    fake({"usage.list": lambda params: pages[params.get("after")]})
    done = ctl("usage")
    assert done.out.splitlines() == [
        "NAME            TURNS  INPUT  OUTPUT  CACHE READ  CACHE WRITE          $",
        "anna               12  15043       7           -            -          -",
        "boss                1      5    1000           -            -       1.50",
        "boss and its 2      4     80    2000           -            -  1,234.50+",
        "all 2              13  15048    1007           0            0       1.50",
    ]
    assert done.error == "$ is the list price of these tokens: a subscription is billed otherwise"


def test_sums_by_day_model_and_repository_since_a_time(ctl, fake):
    numbers = {"turns": 3, "usage": {"inputTokens": 5}, "usd": 0.25, "unpriced": 1}
    daemon = fake({"usage.sum": [{"key": "x", **numbers}]})
    assert ctl("usage", "--by", "model").out.splitlines() == [
        "MODEL  TURNS  INPUT  OUTPUT  CACHE READ  CACHE WRITE      $",
        "x          3      5       -           -            -  0.25+",
    ]
    assert ctl("usage", "--since", "7d").out.startswith("NAME ")
    assert ctl("usage", "--by", "day", "--since", "2026-01-31", "--json").json == [{"key": "x", **numbers}]
    asked = daemon.calls("usage.sum")
    assert [params["by"] for params in asked] == ["model", "agent", "day"]
    since = [datetime.fromisoformat(params["since"]) for params in asked[1:]]
    assert abs((datetime.now(UTC) - since[0]).total_seconds() - 7 * 86400) < 3600
    assert since[1].replace(tzinfo=None) == datetime(2026, 1, 31)
    for wrong in ("yesterday", "7w", "2026-13-01", "999999d"):
        assert (ctl("usage", "--since", wrong).code, "is no time" in ctl("usage", "--since", wrong).error) == (2, True)
    assert ctl("usage", "--by", "week").code == 2


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
