"""`usage`: what agents' turns used, summed up by day, model, repository and agent, since a time."""

from datetime import UTC, datetime, timedelta


def test_sums_are_those_of_the_turns_that_are_asked_for(daemon):
    daemon.start()
    here, there = daemon.workspace("here"), daemon.workspace("there")
    daemon.spawn("anna", here, "/say one")
    daemon.ok("send", "anna", "/say two", "--wait")
    daemon.spawn("ben", there, "/say one", "--model", "gpt-5")
    by_model = {one["key"]: one for one in daemon.ok("usage", "--by", "model")}
    assert {name: one["turns"] for name, one in by_model.items()} == {"auto": 2, "gpt-5": 1}
    assert (by_model["auto"]["usd"], by_model["auto"]["unpriced"]) == (None, 2)
    assert by_model["gpt-5"]["usd"] > 0
    alone = {name: daemon.ok("usage", name) for name in ("anna", "ben")}
    assert by_model["auto"]["usage"] == alone["anna"]["usage"]
    assert by_model["gpt-5"]["usd"] == alone["ben"]["usd"] == alone["ben"]["family"]["usd"]
    assert {one["key"]: one["turns"] for one in daemon.ok("usage", "--by", "repository")} == {
        str(here): 2, str(there): 1,
    }  # fmt: skip
    assert [one["key"] for one in daemon.ok("usage", "--since", "1h")] == ["ben", "anna"], "the most expensive first"
    assert [one["key"] for one in daemon.ok("usage", "anna", "--since", "1h")] == ["anna"]
    days = daemon.ok("usage", "--by", "day")
    assert (sum(day["turns"] for day in days), {len(day["key"]) for day in days}) == (3, {10})
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert daemon.ok("usage", "--since", tomorrow) == []
    shown = daemon.ctl("usage", "--by", "model")
    assert "a subscription is billed otherwise" in shown.err
    assert shown.out.splitlines()[-1].split()[0] == "all"
    with daemon.wire() as wire:
        assert wire.refused("usage.sum", by="week") == "InvalidParams"
