"""Waits that end because an agent needs a person, with exit status 6 and the command to type; `ls --watch` shows it."""

import json
import re

from tests.support.terminal import Screen

ASKS = '/tool ask_operator {"question": "which way?"}'
NEEDED = b"anna needs you: which way?: substratctl answer anna TEXT\n"
HOLD = "/shell while [ ! -e go ]; do sleep 0.02; done"


def test_a_wait_for_an_agent_that_asks_is_status_6_with_the_command(running):
    work = running.workspace()
    done = running.ctl("spawn", "anna", "-w", work, "--network", "none", "--wait", f"/say on it\n{ASKS}")
    assert (done.code, done.out, done.err) == (6, "on it\n", NEEDED.decode())
    done = running.ctl("wait", "anna", "--json")
    assert (done.code, done.json["name"], done.err) == (6, "anna", NEEDED.decode())
    assert running.ctl("send", "anna", "more", "--wait").code == 6, "the question is as old as that"
    running.ok("spawn", "bert", "-w", running.workspace("other"), "--network", "none")
    done = running.ctl("wait", "bert", "anna")
    assert (done.code, done.err.count("needs you")) == (6, 1)
    assert running.ctl("wait", "bert").code == 0
    assert running.ctl("wait", "anna", "--until", "idle").code == 0
    done = running.ctl("wait", "anna", "nobody")
    assert (done.code, "no agent 'nobody'" in done.err) == (4, True), done
    running.ctl("send", "bert", "/exit 3", "--wait")
    done = running.ctl("wait", "anna", "bert")
    assert (done.code, "needs you" in done.err) == (5, False), done
    running.ok("answer", "anna", "left")
    assert running.ctl("wait", "anna").code == 0


def test_an_agent_that_is_answered_meanwhile_is_waited_for_again(running, until):
    work = running.workspace()
    running.spawn("anna", work, ASKS)
    running.ok("spawn", "bert", "-w", work, "--network", "none", HOLD)
    until(lambda: running.show("bert")["activity"], "bert at work")
    waiting = running.follow("wait", "anna", "bert")
    running.ok("answer", "anna", "/shell while [ ! -e go2 ]; do sleep 0.02; done")
    until(lambda: running.show("anna")["state"] == "running", "the answer")
    (work / "go").touch()
    running.wait("bert", "idle")
    assert waiting.poll() is None, "anna works"
    (work / "go2").touch()
    assert waiting.wait(30) == 0


def test_a_lead_whose_child_asks_is_not_done_and_the_child_is_named(running, until):
    work = running.workspace()
    child = json.dumps({"name": "anna", "prompt": ASKS})
    script = f"/tool spawn_agent {child}\n/tool wait_agents {{}}"
    done = running.ctl("spawn", "lead", "-w", work, "--network", "none", "--wait", script)
    assert (done.code, done.err) == (6, NEEDED.decode())
    assert (running.show("lead")["attention"]["kind"], running.show("lead")["turn"]["number"]) == ("waiting", 1)
    assert running.ctl("wait", "lead").err == NEEDED.decode()
    running.ok("answer", "anna", "/say left it is")
    done = running.ctl("wait", "lead")
    assert (done.code, running.show("lead")["turn"]["number"]) == (0, 2)
    assert "left it is" in running.events("lead", "user")[-1]["text"]


def test_a_question_that_is_dismissed_lets_the_lead_go_on(running, until):
    child = json.dumps({"name": "anna", "prompt": ASKS})
    script = f"/tool spawn_agent {child}\n/tool wait_agents {{}}"
    running.ctl("spawn", "lead", "-w", running.workspace(), "--network", "none", "--wait", script)
    (question,) = running.ok("inbox")
    running.ctl("inbox", "--dismiss", str(question["id"]))
    until(lambda: running.show("lead")["turn"]["number"] == 2, "the lead's wake")


def frame_with(screen, sight):
    """Read until a frame has a sight, and return that frame's lines."""

    def found():
        *frames, last = screen.shown.split("\x1b[H")
        for frame in frames[1:] + ([last] if last.endswith("\x1b[J") else []):
            if re.search(sight, frame):
                screen.shown = last
                return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
        return None

    return screen.read_until(found)


def test_ls_watch_redraws_in_place_keeps_to_the_terminal_and_ends_cleanly(running):
    work = running.workspace()
    for number in range(12):
        running.ok("spawn", f"calm-{number}", "-w", work, "--network", "none")
    with Screen(running, "ls", "--watch", size=(10, 80)) as screen:
        frame = frame_with(screen, "12 agents: 12 idle")
        assert len(frame) == 10
        assert any("more idle: 'ls -a' lists them" in line for line in frame)
        running.spawn("anna", work, ASKS)
        frame = frame_with(screen, "1 answer")
        assert frame[1].startswith("anna")
        assert "answer anna TEXT" in "".join(frame[1:3])
        screen.resize(30, 60)
        frame = frame_with(screen, r"calm-11")
        assert len(frame) == 30
        assert max(map(len, frame)) <= 60
        running.kill()
        assert frame_with(screen, "the daemon is gone")[1].startswith("anna"), "what was last known stays"
        running.start()
        frame_with(screen, "Ctrl-C ends")
        screen.type("\x03")
        assert screen.end() == 0
    assert screen.shown.endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the first screen are back"
