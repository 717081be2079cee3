"""Faults that were there once: each test is the shortest way to the fault."""

import json

import pytest


def test_a_child_that_ends_while_its_parent_is_being_ended_stops_nobody(house, until):
    house.start(config="[turns]\nstop_grace = 1.0\n")
    work = house.workspace()
    spawn = json.dumps({"name": "child", "prompt": "/sleep 1"})
    house.ok("spawn", "anna", "-w", work, f"/ignore-signals\n/tool spawn_agent {spawn}\n/sleep 100")
    until(lambda: any(a["name"] == "child" and a["state"] == "running" for a in house.ok("ls")), "the child")
    house.ok("end", "anna", "--alone")
    assert house.wait("child")["turn"]["outcome"] == "success"
    assert house.show("anna")["state"] == "ended"
    assert house.process.poll() is None


def test_a_result_that_an_earlier_daemon_read_still_counts(house, until):
    house.start(config="[turns]\nresult_grace = 0.5\n")
    house.ok("spawn", "anna", "-w", house.workspace(), "/say done\n/hang")
    until(lambda: house.events("anna", "result:success"), "the result")
    house.kill()
    house.start()
    turn = house.wait("anna")["turn"]
    assert (turn["outcome"], turn["result"]) == ("success", "done")


def test_a_workspace_that_the_agent_locked_stops_nobody(house):
    house.start()
    work = house.workspace()
    house.spawn("anna", work, "/shell chmod 555 .")
    house.stop()
    house.start()
    assert house.spawn("bert", house.workspace("other"), "hello")["turn"]["outcome"] == "success"
    work.chmod(0o755)


@pytest.mark.slow
def test_a_flood_of_empty_lines_leaves_the_daemon_answering(house):
    house.start(agent=house.program("begin()\nsys.stdout.write('\\n' * 200_000)\nsys.stdout.flush()\nfinish()\n"))
    house.ok("spawn", "anna", "-w", house.workspace(), "x")
    assert house.ok("ls")[0]["name"] == "anna"
    ended = house.ok("wait", "anna", "--timeout", "35")
    assert ended["turn"]["outcome"] == "success"


def test_a_suspended_retry_is_not_told_twice(house, until):
    house.start()
    house.ok("spawn", "anna", "-w", house.workspace(), "/fail busy 1\n/say done")
    until(lambda: house.events("anna", "turn:retry"), "the retry")
    house.ok("suspend", "anna")
    house.ok("resume", "anna", "--wait")
    turn = house.show("anna")["turn"]
    assert (turn["number"], turn["result"]) == (2, "done")


def test_a_second_daemon_cannot_take_the_sockets(house):
    house.start()
    code, said = house.refused(arguments=["--state-dir", house.directory / "another"])
    assert code == 1
    assert str(house.process.pid) in said
    assert house.ok("ls") == []


def test_an_agent_whose_chat_never_held_a_turn_can_be_resumed(house, until):
    """A killed program leaves an empty chat behind, and the next one that is stopped removes it."""
    house.start()
    work = house.workspace()
    house.held("anna", work)
    house.kill_sandboxed()
    house.wait("anna", "failed")
    house.ok("send", "anna", "/shell touch again; sleep 100")
    until((work / "again").exists, "the second turn")
    house.ok("suspend", "anna")
    house.ok("resume", "anna", "--wait", "--timeout", "20")
    assert house.show("anna")["turn"]["outcome"] == "success"
