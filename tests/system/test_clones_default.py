"""Where agents work that say nothing about it: in a clone, where one can be made."""

from tests.system.test_clones import app, fingerprint, git

__all__ = ["app"]

CLONES = 'agent.workspace = "clone"\n'


def notes(house, name, where, *words):
    return house.ctl("spawn", name, "-w", where, "--json", *words).json.get("notes", [])


def test_an_agent_works_in_a_clone_and_hears_what_that_lacks(house, app):
    house.start(config=CLONES)
    assert notes(house, "first", app) == []
    (app / ".gitignore").write_text(".venv\nnode_modules\n*.log\n")
    for path in (".venv/x", "node_modules/y", "sub/a.log", "b.log", "new.txt"):
        (app / path).parent.mkdir(exist_ok=True)
        (app / path).write_text("x\n")
    (app / "README.md").write_text("other\n")
    before = fingerprint(app)
    files, ignored = (
        "is without 3 uncommitted files of yours (`--wip` takes them along)",
        "is without .venv, b.log, node_modules and 1 more, which git ignores (`.worktreeinclude` or a set-up brings them)",
    )
    assert notes(house, "second", app) == [files, ignored]
    assert notes(house, "third", app / "sub", "--wip") == [ignored]
    house.ok("wait", "first", "second", "third")
    assert [house.show(name)["clone"]["branch"] for name in ("first", "second")] == ["substrat/first", "substrat/second"]
    assert fingerprint(app) == before
    (app / ".worktreeinclude").write_text(".venv\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "all")
    assert notes(house, "fourth", app) == []


def test_where_no_clone_can_be_made_the_agent_works_in_place_and_says_why(house, app):
    plain = house.workspace("plain")
    house.start(config=CLONES)
    assert notes(house, "plain", plain) == []
    git(house, app, "config", "remote.origin.promisor", "true")
    (note,) = notes(house, "partial", app)
    assert note.startswith(f"works in your checkout, because no clone can be made: {app} is a partial clone")
    assert notes(house, "there", app, "--in-place")[-1:] != [note]
    assert [house.show(name)["clone"] for name in ("plain", "partial", "there")] == [None] * 3
    assert house.ctl("spawn", "must", "-w", app, "--clone").code == 1


def test_a_chat_that_is_taken_over_goes_on_in_the_checkout(house, app):
    house.start(config=CLONES)
    house.ok("spawn", "old", "-w", app, "--in-place", "--wait", "/say hello")
    session = house.show("old")["session_id"]
    house.ok("end", "old")
    house.ok("rm", "old")
    house.ok("spawn", "new", "-w", app, "--adopt", session)
    assert house.show("new")["clone"] is None
