"""Renaming agents, and changing the settings of their next turns, with real daemons and sandboxes."""

import pytest


def git(house, where, *arguments):
    return house.git(where, *arguments).strip()


def refs(house, where):
    return git(house, where, "for-each-ref", "--format=%(refname) %(objectname)", "refs/substrat").splitlines()


@pytest.fixture
def app(house):
    return house.workspace("app", git=True)


COMMIT = "/shell echo new > a.txt; git add a.txt; git commit -qm 'add a.txt'; echo more > b.txt"


def test_a_renamed_agent_is_called_so_everywhere_and_its_refs_move_along(house, app):
    house.start()
    house.spawn("old", app, COMMIT, "--clone")
    before = [line.replace("refs/substrat/old/", "refs/substrat/new/") for line in refs(house, app)]
    agent = house.ok("set", "old", "name=new")
    assert agent["name"] == "new"
    assert refs(house, app) == before
    assert house.ctl("show", "old").code == 4
    (event,) = house.events("new", "agent:renamed")
    assert event["data"] == {"by": "ctl", "from": "old", "to": "new"}
    house.ok("send", "new", "--wait", "/shell echo $SUBSTRAT_AGENT; cat b.txt")
    assert house.shell("new").endswith("new\nmore\n")
    house.kill()
    house.start()
    house.spawn("old", app, COMMIT, "--clone")  # the name is free again
    assert {line.split("/")[2] for line in refs(house, app)} == {"old", "new"}


def test_a_name_that_cannot_be_had_changes_nothing(house, app):
    house.start()
    house.spawn("one", app, COMMIT, "--clone")
    house.spawn("two", app)
    git(house, app, "update-ref", "refs/substrat/gone/head", "HEAD")
    before = refs(house, app)
    for name, word in (("two", "`substratctl set two name=NEW`"), ("operator", "reserved"), ("a b", "can't be a name"),
                       ("gone", "earlier agent"), ("a.lock", "lock")):  # fmt: skip
        result = house.ctl("set", "one", f"name={name}")
        assert result.code != 0
        assert word in result.error
    assert refs(house, app) == before
    assert {agent["name"] for agent in house.ok("ls")} == {"one", "two"}


def test_settings_count_from_the_next_turn_on(house, app, until):
    house.start()
    house.spawn("anna", app, "/shell echo $WORD", "--env", "GONE=x")
    house.ok("set", "anna", "env.WORD=s3cret", "env.GONE", "model=gpt-5", "network=none")
    found = house.show("anna")
    assert (found["model"], found["network"]) == ("gpt-5", "none")
    house.ok("send", "anna", "--wait", "/shell echo $WORD ${GONE:-none}")
    assert house.shell("anna").splitlines()[-1] == "s3cret none"
    told = {event["data"]["key"]: event["data"] for event in house.events("anna", "agent:changed")}
    assert list(told) == ["model", "network", "allow", "env.GONE", "env.WORD"]
    assert told["model"] == {"by": "ctl", "key": "model", "old": "auto", "new": "gpt-5"}
    assert told["env.WORD"] == {"by": "ctl", "key": "env.WORD", "old": None, "new": None}
    assert "s3cret" not in str(list(told.values()))
    assert "s3cret" not in str(house.ctl("explain", "anna").out)
    house.kill()
    house.start()
    assert house.show("anna")["network"] == "none"


def test_settings_that_cannot_be_had_change_nothing(house, app):
    house.start()
    house.spawn("anna", app, None, "--network", "none")
    before = house.show("anna")
    for words in (
        ("priority=urgent",), ("budget=1",), ("colour=red",), ("network=moon",), ("model",), ("env.A-B=1", "model=x"),
        ("env.HOME=/",), ("env.NEVER",), ("allow=a.test",),
    ):  # fmt: skip
        assert house.ctl("set", "anna", *words).code == 2
    assert house.show("anna")["model"] == before["model"]
    assert house.events("anna", "agent:changed") == []


def test_a_running_turn_keeps_its_network_and_children_lose_what_their_parent_loses(house, app, until):
    house.start()
    house.held("busy", app)
    assert "suspend busy" in house.ctl("set", "busy", "name=idle").error, "a turn keeps its agent's name"
    assert "suspend busy" in house.ctl("set", "busy", "network=none").error
    house.ok("set", "busy", "model=gpt-5")
    (app / "go").touch()
    until(lambda: house.show("busy")["state"] == "idle", "the end of the turn")
    house.ok("send", "busy", "--wait", '/tool spawn_agent {"name": "kid", "prompt": "/say hi"}')

    def told():
        busy = house.show("busy")
        return busy["turn"]["number"] == 3 and busy["state"] == "idle"

    until(told, "the turn with the child's result")
    house.ok("set", "busy", "network=none")
    assert house.show("kid")["network"] == "none"
    assert "more than its parent" in house.ctl("set", "kid", "network=host").error
