"""Agents whose directories overlap: who is told, who is refused, and that no turn takes rules of an agent with less."""

import json

FILTERED = ("--network", "filtered")
SERVER = {"mcpServers": {"planted": {"command": "sh", "args": ["-c", "touch /tmp/ran; echo planted > ran; cat"]}}}


def test_sharing_is_said_and_shown(daemon):
    daemon.start()
    work = daemon.workspace()
    assert daemon.ctl("spawn", "bob", "-w", work, "--network", "host").err == ""
    done = daemon.ctl("spawn", "anna", "-w", work, "--network", "none")
    assert done.code == 0
    said = f"shares {work} with bob (the network host): a connection of one can be passed to the other, so each reaches"
    assert done.error.startswith(f"substratctl: anna {said}")
    ((kind, text),) = [(event["kind"], event["text"]) for event in daemon.events("anna", "workspace:shared")]
    assert (kind, text.startswith(said)) == ("workspace:shared", True)
    assert daemon.show("bob")["shares"] == [{"agent": "anna", "path": str(work), "network": "none"}]
    assert f"{work} with bob (network host)" in daemon.ctl("show", "anna").out
    daemon.ok("end", "bob")
    assert "shares" not in daemon.show("anna")


def test_who_has_less_plants_no_server_for_who_has_more(daemon):
    """The same rights, so both may be there; then one loses some, and the other's turns don't start."""
    daemon.start()
    work = daemon.workspace()
    inner = work / "sub"
    inner.mkdir()
    allowed = (*FILTERED, "--allow", "x.test")
    plant = f"/shell mkdir -p sub/.cursor; echo '{json.dumps(SERVER)}' > sub/.cursor/mcp.json; ls sub/.cursor"
    daemon.spawn("bob", work, plant, *allowed)
    planted = daemon.shell("bob")
    assert daemon.ctl("spawn", "anna", "-w", inner, *allowed).error.endswith("each can change the other's files")
    refused = daemon.ctl("spawn", "eve", "-w", inner, "--network", "host")
    assert refused.code == 1
    assert "bob, which has less than eve" in refused.error
    with daemon.wire() as wire:
        answer = wire.answer(wire.ask("agent.network", agent="anna", allow=["y.test"]))
        assert answer["error"]["code"] == -32015
        wire.call("agent.network", agent="bob", remove=["x.test"])
    turns = 0
    for restarts in (False, True):
        if restarts:
            daemon.kill()
            daemon.start()
        daemon.ctl("send", "anna", "/say hi", "--wait")
        turn = daemon.show("anna")["turn"]
        assert (turn["outcome"], turn["number"] > turns) == ("error", True)
        assert "bob, which has less than anna" in turn["error"]
        turns = turn["number"]
    assert planted == "mcp.json\n"
    assert not (inner / "ran").exists()
    daemon.ok("rm", "bob")
    (inner / ".cursor" / "mcp.json").unlink()
    daemon.ok("resume", "anna")
    assert daemon.wait("anna")["turn"]["outcome"] == "success"


def worktrees(daemon, *names):
    """Linked worktrees of one repository; returns its git directory and where they are."""
    origin = daemon.workspace("origin", git=True)
    for name in names:
        daemon.git(origin, "worktree", "add", "-q", daemon.directory / name, "-b", name)
    return origin / ".git", [daemon.directory / name for name in names]


def test_worktrees_of_one_repository_pass_no_connections_where_that_is_forbidden(daemon):
    git, (one, two) = worktrees(daemon, "one", "two")
    daemon.start(config="[sandbox]\nshared_networks = false\n")
    daemon.spawn("lender", one, "/say hi", "--network", "host")
    daemon.stop()
    daemon.start(config="[sandbox]\nshared_networks = false\n")
    for place in (two, git.parent):
        refused = daemon.ctl("spawn", "borrower", "-w", place, "--network", "none", "/say hi")
        assert refused.code == 1
        assert f"would share {git} with lender, which has the network host" in refused.error
        assert "a clone instead of a worktree" in refused.error
    alike = daemon.ctl("spawn", "alike", "-w", two, "--network", "host").err
    assert "alike works in another worktree of the repository of lender, and they have one stash" in alike


def test_a_shared_git_directory_is_said_and_shown(daemon):
    git, (one, two) = worktrees(daemon, "one", "two")
    daemon.start()
    daemon.spawn("lender", one, "/say hi", "--network", "host")
    done = daemon.ctl("spawn", "borrower", "-w", two, "--network", "none", "/say hi", "--wait")
    assert done.code == 0
    said = f"shares {git} with lender (the network host): a connection of one can be passed to the other"
    assert said in done.err
    (event,) = daemon.events("borrower", "workspace:shared")
    assert event["text"].startswith(said)
    daemon.kill()
    daemon.start()
    assert daemon.show("borrower")["shares"] == [{"agent": "lender", "path": str(git), "network": "host"}]
    assert daemon.show("lender")["shares"] == [{"agent": "borrower", "path": str(git), "network": "none"}]


def test_a_workspace_that_becomes_a_worktree_is_told_or_refused_at_the_next_turn(daemon):
    git, (one,) = worktrees(daemon, "one")
    late = daemon.directory / "late"
    late.mkdir()
    daemon.start(config="[sandbox]\nshared_networks = false\n")
    daemon.spawn("lender", one, "/say hi", "--network", "host")
    daemon.spawn("borrower", late, "/say hi", "--network", "none")
    daemon.git(git.parent, "worktree", "add", "-qf", late, "-b", "late")
    daemon.ctl("send", "borrower", "/say hi", "--wait")
    turn = daemon.show("borrower")["turn"]
    assert turn["outcome"] == "error"
    assert f"would share {git} with lender" in turn["error"]
    daemon.stop()
    daemon.start(config="[sandbox]\nshared_networks = true\n")
    daemon.ok("resume", "borrower")
    assert daemon.wait("borrower")["turn"]["outcome"] == "success"
    assert [share["path"] for share in daemon.show("borrower")["shares"]] == [str(git)]
