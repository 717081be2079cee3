"""Where agents work that say nothing about it: in a clone, where one can be made."""

from tests.system.test_clones import app, fingerprint, git

__all__ = ["app"]

CLONES = 'agent.workspace = "clone"\n'


def notes(daemon, name, where, *words):
    return daemon.ctl("spawn", name, "-w", where, "--json", *words).json.get("notes", [])


def test_an_agent_works_in_a_clone_and_hears_what_that_lacks(daemon, app):
    daemon.start(config=CLONES)
    assert notes(daemon, "first", app) == []
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
    assert notes(daemon, "second", app) == [files, ignored]
    assert notes(daemon, "third", app / "sub", "--wip") == [ignored]
    daemon.ok("wait", "first", "second", "third")
    assert [daemon.show(name)["clone"]["branch"] for name in ("first", "second")] == ["substrat/first", "substrat/second"]
    assert fingerprint(app) == before
    (app / ".worktreeinclude").write_text(".venv\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "all")
    assert notes(daemon, "fourth", app) == []


def test_where_no_clone_can_be_made_the_agent_works_in_place_and_says_why(daemon, app):
    plain = daemon.workspace("plain")
    daemon.start(config=CLONES)
    assert notes(daemon, "plain", plain) == []
    git(daemon, app, "config", "remote.origin.promisor", "true")
    (note,) = notes(daemon, "partial", app)
    assert note.startswith(f"works in your checkout, because no clone can be made: {app} is a partial clone")
    assert notes(daemon, "there", app, "--in-place")[-1:] != [note]
    assert [daemon.show(name)["clone"] for name in ("plain", "partial", "there")] == [None] * 3
    assert daemon.ctl("spawn", "must", "-w", app, "--clone").code == 1


def test_a_chat_that_is_taken_over_goes_on_in_the_checkout(daemon, app):
    daemon.start(config=CLONES)
    daemon.ok("spawn", "old", "-w", app, "--in-place", "--wait", "/say hello")
    session = daemon.show("old")["session_id"]
    daemon.ok("end", "old")
    daemon.ok("rm", "old")
    daemon.ok("spawn", "new", "-w", app, "--adopt", session)
    assert daemon.show("new")["clone"] is None
