"""Renaming agents, and changing the settings of their next turns, with real daemons and sandboxes."""

import pytest

from tests.system.test_clones import git


def refs(daemon, where):
    return git(daemon, where, "for-each-ref", "--format=%(refname) %(objectname)", "refs/substrat").splitlines()


@pytest.fixture
def app(daemon):
    return daemon.workspace("app", git=True)


COMMIT = "/shell echo new > a.txt; git add a.txt; git commit -qm 'add a.txt'; echo more > b.txt"


def test_a_renamed_agent_is_called_so_everywhere_and_its_refs_move_along(daemon, app):
    daemon.start()
    daemon.spawn("old", app, COMMIT, "--clone")
    before = [line.replace("refs/substrat/old/", "refs/substrat/new/") for line in refs(daemon, app)]
    agent = daemon.ok("set", "old", "name=new")
    assert agent["name"] == "new"
    assert refs(daemon, app) == before
    assert daemon.ctl("show", "old").code == 4
    (event,) = daemon.events("new", "agent:renamed")
    assert event["data"] == {"by": "ctl", "from": "old", "to": "new"}
    daemon.ok("send", "new", "--wait", "/shell echo $SUBSTRAT_AGENT; cat b.txt")
    assert daemon.shell("new").endswith("new\nmore\n")
    daemon.kill()
    daemon.start()
    daemon.spawn("old", app, COMMIT, "--clone")  # the name is free again
    assert {line.split("/")[2] for line in refs(daemon, app)} == {"old", "new"}


def test_a_name_that_cannot_be_had_changes_nothing(daemon, app):
    daemon.start()
    daemon.spawn("one", app, COMMIT, "--clone")
    daemon.spawn("two", app)
    git(daemon, app, "update-ref", "refs/substrat/gone/head", "HEAD")
    before = refs(daemon, app)
    for name, word in (("two", "`substratctl set two name=NEW`"), ("operator", "reserved"), ("a b", "can't be a name"),
                       ("gone", "earlier agent"), ("a.lock", "lock")):  # fmt: skip
        result = daemon.ctl("set", "one", f"name={name}")
        assert result.code != 0
        assert word in result.error
    assert refs(daemon, app) == before
    assert {agent["name"] for agent in daemon.ok("ls")} == {"one", "two"}


def test_settings_count_from_the_next_turn_on(daemon, app, until):
    daemon.start()
    daemon.spawn("anna", app, "/shell echo $WORD", "--env", "GONE=x")
    daemon.ok("set", "anna", "env.WORD=s3cret", "env.GONE", "model=gpt-5", "network=none")
    found = daemon.show("anna")
    assert (found["model"], found["network"]) == ("gpt-5", "none")
    daemon.ok("send", "anna", "--wait", "/shell echo $WORD ${GONE:-none}")
    assert daemon.shell("anna").splitlines()[-1] == "s3cret none"
    told = {event["data"]["key"]: event["data"] for event in daemon.events("anna", "agent:changed")}
    assert list(told) == ["model", "network", "allow", "env.GONE", "env.WORD"]
    assert told["model"] == {"by": "ctl", "key": "model", "old": "auto", "new": "gpt-5"}
    assert told["env.WORD"] == {"by": "ctl", "key": "env.WORD", "old": None, "new": None}
    assert "s3cret" not in str(list(told.values()))
    assert "s3cret" not in str(daemon.ctl("explain", "anna").out)
    daemon.kill()
    daemon.start()
    assert daemon.show("anna")["network"] == "none"


def test_settings_that_cannot_be_had_change_nothing(daemon, app):
    daemon.start()
    daemon.spawn("anna", app, None, "--network", "none")
    before = daemon.show("anna")
    for words in (
        ("priority=urgent",), ("budget=1",), ("colour=red",), ("network=moon",), ("model",), ("env.A-B=1", "model=x"),
        ("env.HOME=/",), ("env.NEVER",), ("allow=a.test",),
    ):  # fmt: skip
        assert daemon.ctl("set", "anna", *words).code == 2
    assert daemon.show("anna")["model"] == before["model"]
    assert daemon.events("anna", "agent:changed") == []


def test_a_running_turn_keeps_its_network_and_children_lose_what_their_parent_loses(daemon, app, until):
    daemon.start()
    daemon.held("busy", app)
    assert "suspend busy" in daemon.ctl("set", "busy", "name=idle").error, "a turn keeps its agent's name"
    assert "suspend busy" in daemon.ctl("set", "busy", "network=none").error
    daemon.ok("set", "busy", "model=gpt-5")
    (app / "go").touch()
    until(lambda: daemon.show("busy")["state"] == "idle", "the end of the turn")
    daemon.ok("send", "busy", "--wait", '/tool spawn_agent {"name": "kid", "prompt": "/say hi"}')

    def told():
        busy = daemon.show("busy")
        return busy["turn"]["number"] == 3 and busy["state"] == "idle"

    until(told, "the turn with the child's result")
    daemon.ok("set", "busy", "network=none")
    assert daemon.show("kid")["network"] == "none"
    assert "more than its parent" in daemon.ctl("set", "kid", "network=host").error
