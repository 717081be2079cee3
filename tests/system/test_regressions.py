"""Faults that were there once: each test is the shortest way to the fault."""

import json

import pytest


def test_a_child_that_ends_while_its_parent_is_being_ended_stops_nobody(daemon, until):
    daemon.start(config="[turns]\nstop_grace = 1.0\n")
    work = daemon.workspace()
    spawn = json.dumps({"name": "child", "prompt": "/sleep 1"})
    daemon.ok("spawn", "anna", "-w", work, f"/ignore-signals\n/tool spawn_agent {spawn}\n/sleep 100")
    until(lambda: any(a["name"] == "child" and a["state"] == "running" for a in daemon.ok("ls")), "the child")
    daemon.ok("end", "anna", "--alone")
    assert daemon.wait("child")["turn"]["outcome"] == "success"
    assert daemon.show("anna")["state"] == "ended"
    assert daemon.process.poll() is None


def test_a_result_that_an_earlier_daemon_read_still_counts(daemon, until):
    daemon.start(config="[turns]\nresult_grace = 0.5\n")
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "/say done\n/hang")
    until(lambda: daemon.events("anna", "result:success"), "the result")
    daemon.kill()
    daemon.start()
    turn = daemon.wait("anna")["turn"]
    assert (turn["outcome"], turn["result"]) == ("success", "done")


def test_a_workspace_that_the_agent_locked_stops_nobody(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/shell chmod 555 .")
    daemon.stop()
    daemon.start()
    assert daemon.spawn("bert", daemon.workspace("other"), "hello")["turn"]["outcome"] == "success"
    work.chmod(0o755)


@pytest.mark.slow
def test_a_flood_of_empty_lines_leaves_the_daemon_answering(daemon):
    daemon.start(agent=daemon.program("begin()\nsys.stdout.write('\\n' * 50_000)\nsys.stdout.flush()\nfinish()\n"))
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "x")
    assert daemon.ok("ls")[0]["name"] == "anna"
    ended = daemon.ok("wait", "anna", "--timeout", "60")
    assert ended["turn"]["outcome"] == "success"


def test_a_suspended_retry_is_not_told_twice(daemon, until):
    daemon.start()
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "/fail busy 1\n/say done")
    until(lambda: daemon.events("anna", "turn:retry"), "the retry")
    daemon.ok("suspend", "anna")
    daemon.ok("resume", "anna", "--wait")
    turn = daemon.show("anna")["turn"]
    assert (turn["number"], turn["result"]) == (2, "done")


def test_a_second_daemon_cannot_take_the_sockets(daemon):
    daemon.start()
    code, said = daemon.refused(arguments=["--state-dir", daemon.directory / "another"])
    assert code == 1
    assert str(daemon.process.pid) in said
    assert daemon.ok("ls") == []


def test_an_agent_whose_chat_never_held_a_turn_can_be_resumed(daemon, until):
    """A killed program leaves an empty chat behind, and the next one that is stopped removes it."""
    daemon.start()
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.kill_sandboxed()
    daemon.wait("anna", "failed")
    daemon.ok("send", "anna", "/shell touch again; sleep 100")
    until((work / "again").exists, "the second turn")
    daemon.ok("suspend", "anna")
    daemon.ok("resume", "anna", "--wait", "--timeout", "20")
    assert daemon.show("anna")["turn"]["outcome"] == "success"
