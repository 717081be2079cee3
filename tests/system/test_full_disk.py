"""A full disk: what is refused changed nothing, what was accepted is done once, and the daemon lives on."""

import pytest

from tests.system.small_disk import ONLY_ROOT

pytestmark = ONLY_ROOT

# Writes a line whenever the workspace has a further file `step-N`, and ends with `go`.
STEPS = """
begin()
number = 0
while not os.path.exists("go"):
    if os.path.exists(f"step-{number}"):
        say(f"line {number}")
        mark(f"said-{number}")
        number += 1
    time.sleep(0.005)
finish(f"{number} lines")
"""


def speaking(disk, until):
    """Let an agent say its first line and fill the disk while its turn runs; returns the workspace that holds the turn."""
    daemon = disk.daemon
    disk.start(agent=daemon.program(STEPS))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "x")
    say_line(work, until, 0)
    disk.fill(leave=4096)  # enough for the agent's own lines, not for the database's
    return work


def say_line(work, until, number):
    (work / f"step-{number}").touch()
    until((work / f"said-{number}").exists, f"line {number}")


def everything_was_said(disk, lines):
    """Let the turn end: what it printed is what the daemon tells."""
    daemon = disk.daemon
    (daemon.directory / "work" / "go").touch()
    assert daemon.wait("anna")["turn"]["result"] == f"{lines} lines"
    stdout = next(disk.state.glob("agents/*/turns/1/stdout")).read_bytes()
    assert daemon.ctl("logs", "anna", "--raw").raw == stdout
    assert stdout.count(b'"line ') == lines


def test_what_is_accepted_on_a_full_disk_is_done_once_when_there_is_room(disk, until):
    daemon = disk.daemon
    disk.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say before")
    disk.fill()
    accepted = refused = 0
    with daemon.wire() as wire:
        for number in range(300):
            text = f"/shell echo {number} >> done\n" + "x" * 2000
            answer = wire.answer(wire.ask("agent.send", agent="anna", prompt=text))
            if "error" in answer:
                assert answer["error"]["data"]["type"] == "StorageFailed", answer
                refused += 1
            else:
                accepted += 1
    assert refused, "the disk was full"
    assert daemon.process.poll() is None
    assert daemon.ok("ls")[0]["name"] == "anna"
    disk.make_room()
    until(lambda: daemon.show("anna")["unread"] == 0 and daemon.show("anna")["state"] == "idle", "the work", patience=60)
    done = (work / "done").read_text().split() if accepted else []
    assert len(done) == len(set(done)) == accepted
    assert daemon.spawn("bert", work, "/say after")["turn"]["outcome"] == "success"


def test_a_running_turns_events_are_complete_after_a_full_disk(disk, until):
    daemon, work = disk.daemon, speaking(disk, until)
    for number in range(1, 10):
        say_line(work, until, number)
    until(lambda: "waiting to write the state" in daemon.log, "the daemon's notice")
    disk.make_room()
    everything_was_said(disk, 10)
    assert len(disk.count("turn:ended")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
def test_turns_that_find_no_room_for_their_files_wait_for_it(disk, until, left):
    """The database still has room, so the work is accepted, and not one more file can be made."""
    daemon = disk.daemon
    disk.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say before")
    disk.use_up_files(left)
    daemon.ok("send", "anna", "/shell echo once >> done")
    until(lambda: disk.count("turn:retry"), "a try")
    agent = daemon.show("anna")
    assert (agent["state"], agent["unread"]) == ("queued", 1)
    assert "No space left" in agent["turn"]["error"]
    disk.give_back_files()
    until((work / "done").exists, "the work", patience=60)
    assert daemon.wait("anna")["turn"]["outcome"] == "success"
    assert (work / "done").read_text() == "once\n"


def test_a_command_that_finds_no_room_for_its_files_says_so(disk):
    """`substratctl exec`, whose files lie beside the state; `left` so many files may be made yet."""
    daemon = disk.daemon
    disk.start()
    daemon.ok("spawn", "anna", "-w", daemon.workspace())
    assert daemon.ctl("exec", "anna", "--", "true").code == 0
    for left in (0, 1, 3, 6, 10):
        disk.use_up_files(left)
        done = daemon.ctl("exec", "anna", "--", "true")
        assert done.code == 1, left
        assert "No space left on device; make room" in done.error, left
        with daemon.wire() as wire:
            problem = wire.refuse("agent.exec", agent="anna", command=["true"], descriptors="/nonexistent")
            assert problem["data"]["type"] != "InternalError", left
        disk.give_back_files()
    disk.fill()
    done = daemon.ctl("exec", "anna", "--", "true")
    assert done.code in {0, 1}
    assert "internal error" not in done.err
    disk.make_room()
    assert daemon.ctl("exec", "anna", "--", "true").code == 0
    assert not list((disk.state / "visits").iterdir())


@pytest.mark.slow
def test_a_daemon_killed_on_a_full_disk_comes_back_with_everything(disk, until):
    daemon, work = disk.daemon, speaking(disk, until)
    say_line(work, until, 1)
    daemon.kill()
    say_line(work, until, 2)
    disk.fill()
    disk.start()
    assert daemon.show("anna")["state"] == "running"
    disk.make_room()
    everything_was_said(disk, 3)


@pytest.mark.slow
def test_a_daemon_that_finds_no_room_to_begin_says_so_and_loses_nothing(disk, until):
    daemon = disk.daemon
    disk.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say before")
    daemon.stop()
    disk.fill()
    process = daemon.launch(prefix=disk.prefix)

    def ended_or_answers():
        return process.poll() is not None or daemon.socket.exists()

    until(ended_or_answers, "an end or a start")
    if process.poll() is not None:
        assert process.poll() == 1
        (said,) = process.log.read_text().splitlines()
        assert "can't be used" in said
        assert "set-aside" not in said
    else:
        process.terminate()
        process.wait(20)
    disk.make_room()
    disk.start()
    assert daemon.show("anna")["turn"]["result"] == "before"


@pytest.mark.slow
def test_turns_can_be_stopped_when_no_file_can_be_made(disk, until):
    daemon = disk.daemon
    pausing = daemon.program("begin()\nmark('ready')\nsignal.pause()\n")
    disk.start(agent=pausing, config="[turns]\nstop_grace = 0.2\n[disk]\nfree = 0\n")
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "x")
    until((work / "ready").exists, "the start")
    disk.fill()
    disk.use_up_files(0)
    assert daemon.ok("interrupt", "anna")["state"] == "idle"
    daemon.kill()
    disk.start(config="[disk]\nfree = 0\n")
    assert daemon.ok("end", "anna")["state"] == "ended"


# Says lines until it is told to end; the prompt says whether it acts first.
TALKER = """
begin()
if prompt.strip() == "act":
    call = {"shellToolCall": {"args": {"command": "x"}}}
    emit("tool_call", "started", call_id="c", tool_call=call)
mark("began")
wait_for("talk")
while not os.path.exists("go"):
    say("x" * 8000)
finish()
"""


def talking(disk, until, prompt):
    daemon = disk.daemon
    disk.start(agent=daemon.program(TALKER))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, prompt)
    until((work / "began").exists, "the turn")
    until(lambda: disk.count("system:init"), "its first line")
    disk.fill()
    (work / "talk").touch()
    until(lambda: not daemon.sandboxed(), "its end for want of room")
    # Else the database had room left in its log for the turn's end.
    until(lambda: "waiting to write the state" in daemon.log or daemon.show("anna")["turn"]["outcome"], "the notice")
    (work / "go").touch()
    disk.make_room()
    return daemon.wait("anna")


def test_a_turn_that_only_spoke_and_finds_no_room_for_its_output_is_tried_again(disk, until):
    agent = talking(disk, until, "x")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["number"]) == ("idle", "success", 2)
    assert len(disk.count("turn:retry")) == 1


@pytest.mark.slow
def test_a_turn_that_acted_and_finds_no_room_for_its_output_fails_and_says_why(disk, until):
    turn = talking(disk, until, "act")["turn"]
    assert (turn["number"], turn["outcome"], "the disk is full" in turn["error"]) == (1, "error", True), turn


def test_a_clone_that_nobody_asked_for_leaves_room_on_the_disk(daemon, disk):
    work = daemon.workspace("app", git=True)
    (work / "big").write_bytes(b"x" * (3 << 20))
    daemon.git(work, "add", "big")
    daemon.git(work, "commit", "-qm", "big")
    disk.start('agent.workspace = "clone"\n[disk]\nfree = 0\n')
    refused = daemon.ctl("spawn", "fix", "-w", work)
    assert refused.code == 1
    assert "--in-place works in the checkout itself, --clone makes one all the same" in refused.error
    assert daemon.ctl("spawn", "fix", "-w", work, "--clone").code == 0
