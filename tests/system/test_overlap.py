"""Agents whose directories overlap: who is told, who is refused, and that no turn takes rules of an agent with less."""

import json

FILTERED = ("--network", "filtered")
SERVER = {"mcpServers": {"planted": {"command": "sh", "args": ["-c", "touch /tmp/ran; echo planted > ran; cat"]}}}


def test_sharing_is_said_and_shown(house):
    house.start()
    work = house.workspace()
    assert house.ctl("spawn", "bob", "-w", work, "--network", "host").err == ""
    done = house.ctl("spawn", "anna", "-w", work, "--network", "none")
    assert done.code == 0
    said = f"shares {work} with bob (the network host): a connection of one can be passed to the other, so each reaches"
    assert done.error.startswith(f"substratctl: anna {said}")
    ((kind, text),) = [(event["kind"], event["text"]) for event in house.events("anna", "workspace:shared")]
    assert (kind, text.startswith(said)) == ("workspace:shared", True)
    assert house.show("bob")["shares"] == [{"agent": "anna", "path": str(work), "network": "none"}]
    assert f"{work} with bob (network host)" in house.ctl("show", "anna").out
    house.ok("end", "bob")
    assert "shares" not in house.show("anna")


def test_who_has_less_plants_no_server_for_who_has_more(house):
    """The same rights, so both may be there; then one loses some, and the other's turns don't start."""
    house.start()
    work = house.workspace()
    inner = work / "sub"
    inner.mkdir()
    allowed = (*FILTERED, "--allow", "x.test")
    plant = f"/shell mkdir -p sub/.cursor; echo '{json.dumps(SERVER)}' > sub/.cursor/mcp.json; ls sub/.cursor"
    house.spawn("bob", work, plant, *allowed)
    planted = house.shell("bob")
    assert house.ctl("spawn", "anna", "-w", inner, *allowed).error.endswith("each can change the other's files")
    refused = house.ctl("spawn", "eve", "-w", inner, "--network", "host")
    assert refused.code == 1
    assert "bob, which has less than eve" in refused.error
    with house.wire() as wire:
        answer = wire.answer(wire.ask("agent.network", agent="anna", allow=["y.test"]))
        assert answer["error"]["code"] == -32015
        wire.call("agent.network", agent="bob", remove=["x.test"])
    turns = 0
    for restarts in (False, True):
        if restarts:
            house.kill()
            house.start()
        house.ctl("send", "anna", "/say hi", "--wait")
        turn = house.show("anna")["turn"]
        assert (turn["outcome"], turn["number"] > turns) == ("error", True)
        assert "bob, which has less than anna" in turn["error"]
        turns = turn["number"]
    assert planted == "mcp.json\n"
    assert not (inner / "ran").exists()
    house.ok("rm", "bob")
    (inner / ".cursor" / "mcp.json").unlink()
    house.ok("resume", "anna")
    assert house.wait("anna")["turn"]["outcome"] == "success"


def worktrees(house, *names):
    """Linked worktrees of one repository; returns its git directory and where they are."""
    origin = house.workspace("origin", git=True)
    for name in names:
        house.git(origin, "worktree", "add", "-q", house.directory / name, "-b", name)
    return origin / ".git", [house.directory / name for name in names]


def test_worktrees_of_one_repository_pass_no_connections_where_that_is_forbidden(house):
    git, (one, two) = worktrees(house, "one", "two")
    house.start(config="[sandbox]\nshared_networks = false\n")
    house.spawn("lender", one, "/say hi", "--network", "host")
    house.stop()
    house.start(config="[sandbox]\nshared_networks = false\n")
    for place in (two, git.parent):
        refused = house.ctl("spawn", "borrower", "-w", place, "--network", "none", "/say hi")
        assert refused.code == 1
        assert f"would share {git} with lender, which has the network host" in refused.error
        assert "a clone instead of a worktree" in refused.error
    alike = house.ctl("spawn", "alike", "-w", two, "--network", "host").err
    assert "alike works in another worktree of the repository of lender, and they have one stash" in alike


def test_a_shared_git_directory_is_said_and_shown(house):
    git, (one, two) = worktrees(house, "one", "two")
    house.start()
    house.spawn("lender", one, "/say hi", "--network", "host")
    done = house.ctl("spawn", "borrower", "-w", two, "--network", "none", "/say hi", "--wait")
    assert done.code == 0
    said = f"shares {git} with lender (the network host): a connection of one can be passed to the other"
    assert said in done.err
    (event,) = house.events("borrower", "workspace:shared")
    assert event["text"].startswith(said)
    house.kill()
    house.start()
    assert house.show("borrower")["shares"] == [{"agent": "lender", "path": str(git), "network": "host"}]
    assert house.show("lender")["shares"] == [{"agent": "borrower", "path": str(git), "network": "none"}]


def test_a_workspace_that_becomes_a_worktree_is_told_or_refused_at_the_next_turn(house):
    git, (one,) = worktrees(house, "one")
    late = house.directory / "late"
    late.mkdir()
    house.start(config="[sandbox]\nshared_networks = false\n")
    house.spawn("lender", one, "/say hi", "--network", "host")
    house.spawn("borrower", late, "/say hi", "--network", "none")
    house.git(git.parent, "worktree", "add", "-qf", late, "-b", "late")
    house.ctl("send", "borrower", "/say hi", "--wait")
    turn = house.show("borrower")["turn"]
    assert turn["outcome"] == "error"
    assert f"would share {git} with lender" in turn["error"]
    house.stop()
    house.start(config="[sandbox]\nshared_networks = true\n")
    house.ok("resume", "borrower")
    assert house.wait("borrower")["turn"]["outcome"] == "success"
    assert [share["path"] for share in house.show("borrower")["shares"]] == [str(git)]
