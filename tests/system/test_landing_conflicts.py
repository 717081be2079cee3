"""Several agents' work in conflict with one branch: one after the other is sent to rebase."""

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, git
from tests.system.test_landing import me, merged

__all__ = ["app"]


def told(house, name):
    """Say how often an agent was told of a conflict."""
    return len(house.events(name, "clone:conflict"))


def four(house, app):
    """Land the first of four agents' work, with which that of the others is in conflict then."""
    me(house, app)
    house.start()
    for name in ("one", "two", "three", "four"):
        house.ok("spawn", name, "-w", app, commit("same.txt", name), "--clone")
    house.ok("wait", "one", "two", "three", "four")
    return merged(house, "one", "two", "three", "four")[1]


def test_the_first_of_several_in_conflict_is_sent_to_rebase_and_the_next_one_after_it(house, app):
    outcomes = four(house, app)
    assert [one["outcome"] for one in outcomes] == ["landed", "conflict", "queued", "queued"]
    assert [told(house, name) for name in ("two", "three", "four")] == [1, 0, 0]
    wait_until(lambda: house.show("two")["turn"]["number"] == 2, "the turn about the conflict")
    house.wait("two")
    said = house.ctl("merge", "three")
    assert (said.code, "two was sent to rebase first, and three is told to when two's work has landed" in said.err) == (
        1,
        True,
    ), said
    queued = "1 commit queued for main: `merge four` says what comes first"
    assert house.show("four")["attention"]["text"] == queued

    house.kill()
    house.start()
    assert merged(house, "four")[1][0]["outcome"] == "queued", "the next daemon knows that two was told"
    house.ok("send", "two", "--wait", "/shell git rebase -q -X theirs workspace/main")
    wait_until(lambda: told(house, "three") == 1, "three's turn, because two's work has changed")
    assert merged(house, "two")[1][0]["outcome"] == "landed"
    wait_until(lambda: house.show("three")["turn"]["number"] == 2, "the turn about the conflict")
    house.wait("three")
    assert told(house, "four") == 0
    house.ok("end", "three")
    wait_until(lambda: told(house, "four") == 1, "four's turn, because three has ended")
    assert merged(house, "four")[1][0]["outcome"] == "conflict", "what it was told once is a person's"
    assert [told(house, name) for name in ("two", "three", "four")] == [1, 1, 2]
    assert [item["from"] for item in house.ok("inbox")] == ["four"]


@pytest.mark.slow
def test_work_that_waits_lands_when_its_own_agent_has_solved_the_conflict(house, app):
    four(house, app)
    wait_until(lambda: house.show("two")["turn"]["number"] == 2, "the turn about the conflict")
    house.wait("two")
    assert merged(house, "one")[1][0]["outcome"] == "nothing", "others go on meanwhile"
    house.ok("send", "four", "--wait", "/shell git rebase -q -X theirs workspace/main")
    wait_until(lambda: house.events("four", "clone:landed"), "the landing")
    assert git(house, app, "show", "main:same.txt") == "four"
    house.ok("rm", "two")
    wait_until(lambda: told(house, "three") == 1, "three's turn, because two is gone")
    assert house.ok("inbox") == []
