"""What agents write stays within limits, and old output stays readable until it goes."""

import signal

import pytest

# Writes for ever, to the descriptor that its prompt names.
FLOOD = """
begin()
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    os.write(int(prompt), b'{"type":"thinking","subtype":"delta","text":"again"}\\n' * 10)
"""
LIMIT = "[disk]\nturn_output = 1000000\n[turns]\nstop_grace = 0.2\n"


def test_a_turn_that_writes_too_much_is_stopped_and_says_so(daemon):
    daemon.start(agent=daemon.program(FLOOD), config=LIMIT)
    work = daemon.workspace()
    for name, descriptor in (("anna", "1"), ("bert", "2")):
        done = daemon.ctl("spawn", name, "-w", work, "--wait", descriptor)
        assert done.code == 5
        turn = daemon.show(name)["turn"]
        assert turn["outcome"] == "error"
        assert "1000000 bytes" in turn["error"]
        assert "disk.turn_output" in turn["error"]
        assert not daemon.sandboxed()
        assert daemon.show(name)["state"] == "failed"


def test_many_short_lines_are_too_much_too(daemon):
    """Each is an event, which costs the state more than its bytes."""
    daemon.start(agent=daemon.program('begin()\nos.write(1, b"{}\\n" * 100_000)\nfinish()\n'), config=LIMIT)
    agent = daemon.spawn("anna", daemon.workspace(), "x")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert "disk.turn_output" in agent["turn"]["error"]
    assert len(daemon.events("anna")) < 5000
    (note,) = daemon.events("anna", "turn:output-unread")
    assert "too much to be read" in note["text"]


def test_the_limit_holds_for_a_turn_that_the_daemon_found_running(daemon, until):
    source = 'begin()\nmark("ready")\nwait_for("go")\nfor _ in range(200):\n    say("x" * 10000)\nsignal.pause()\n'
    daemon.start(agent=daemon.program(source), config=LIMIT)
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "x")
    until((work / "ready").exists, "the start")
    daemon.kill()
    (work / "go").touch()
    daemon.start()
    agent = daemon.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert "disk.turn_output" in agent["turn"]["error"]


def test_compressed_output_is_byte_for_byte_what_it_was_and_goes_when_it_is_old(daemon, until):
    daemon.start(config="[disk]\ncompress_after = 0\n")
    work = daemon.workspace()
    daemon.spawn("anna", work, "/emit 200 1000")
    directory = daemon.agents_directory(daemon.show("anna")) / "turns" / "1"
    before = daemon.ctl("logs", "anna", "--raw").raw
    assert before == (directory / "stdout").read_bytes()
    daemon.ok("send", "anna", "more", "--wait")
    until((directory / "stdout.z").exists, "the compression")
    until(lambda: not (directory / "stdout").exists(), "the end of what was compressed")
    assert daemon.ctl("logs", "anna", "--raw").raw.startswith(before)
    daemon.stop()
    daemon.start()
    assert daemon.ctl("logs", "anna", "--raw").raw.startswith(before)
    daemon.stop()
    daemon.start(config="[disk]\nkeep = 0.001\n")
    until(lambda: not directory.exists(), "the drop")
    until(lambda: not daemon.ctl("logs", "anna", "--raw").raw.startswith(before), "the end of its events")
    (dropped,) = daemon.events("anna", "history:dropped")
    assert "turn 1 was dropped" in dropped["text"]
    assert daemon.ok("show", "anna")["turn"]["number"] == 2
    until(lambda: not any((daemon.state / "trash").iterdir()), "the emptying of the trash")


def test_turns_wait_while_the_disk_is_nearly_full_and_start_when_it_is_not(daemon, until):
    daemon.start(config=f"[disk]\nfree = {1 << 60}\n")
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "hello")
    listed = daemon.ctl("ls")
    assert "  held  " in listed.out
    assert "disk.free" in listed.error
    (event,) = daemon.events("anna", "turn:waiting")
    assert "disk.free" in event["text"]
    assert daemon.log.count("no turn starts") == 1
    with daemon.wire() as wire:
        assert "disk.free" in wire.call("daemon.status")["waiting_for"]
    daemon.stop()
    daemon.start()  # the next daemon says it as well
    assert len(daemon.events("anna", "turn:waiting")) == 2
    daemon.config.write_text("")
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.wait("anna")["turn"]["result"] == "hello"
    with daemon.wire() as wire:
        assert wire.call("daemon.status")["waiting_for"] is None
    assert daemon.ctl("ls").err == ""


@pytest.mark.slow
def test_a_daemon_killed_while_it_sweeps_loses_nothing(daemon, until):
    """Whatever instant it is killed at, every turn's output is there whole, as it was or compressed."""
    daemon.start(config="[disk]\ncompress_after = 1000000\n")
    work = daemon.workspace()
    daemon.spawn("anna", work, "/emit 300 5000")
    for _ in range(4):
        daemon.ok("send", "anna", "/emit 300 5000", "--wait")
    before = daemon.ctl("logs", "anna", "--raw").raw
    turns = daemon.agents_directory(daemon.show("anna")) / "turns"
    daemon.kill()
    daemon.config.write_text("[disk]\ncompress_after = 0\n")
    for done in range(1, 5):
        daemon.launch()
        until(lambda done=done: len(list(turns.glob("*/stdout.z*"))) >= done, "a compression")
        daemon.process = daemon._started[-1]
        daemon.kill()
    daemon.start()
    assert daemon.ctl("logs", "anna", "--raw").raw == before
    until(lambda: len(list(turns.glob("*/stdout.z"))) == 4, "the compression of all but the newest")
    until(lambda: not list(turns.glob("*/*.part")), "the removal of what was left over")
    until(lambda: [path.parent.name for path in turns.glob("*/stdout")] == ["5"], "the end of what was compressed")
    assert daemon.ctl("logs", "anna", "--raw").raw == before
