"""Waits that end because an agent needs a person, with exit status 6 and the command to type; `ls --watch` shows it."""

import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from fcntl import ioctl

from tests.support.daemon import PROGRAMS

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


class Screen:
    """A command on a terminal, and what it has written."""

    def __init__(self, daemon, rows, columns, *words):
        self._master, slave = pty.openpty()
        self.resize(rows, columns)
        environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), TERM="xterm")
        self.process = subprocess.Popen(
            [PROGRAMS / "substratctl", *words],
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.written = ""

    def resize(self, rows, columns):
        ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, sight):
        """Read until a frame has a sight, and return that frame's lines."""
        while True:
            *frames, last = self.written.split("\x1b[H")
            for frame in frames[1:] + ([last] if last.endswith("\x1b[J") else []):
                if re.search(sight, frame):
                    self.written = last
                    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
            self.written += os.read(self._master, 65536).decode()

    def end(self):
        """End it as Ctrl-C does, and return the rest of what it wrote."""
        self.process.send_signal(signal.SIGINT)
        rest = b""
        while True:
            try:
                rest += os.read(self._master, 65536)
            except OSError:  # EIO: it has ended
                break
        os.close(self._master)
        return rest.decode()


def test_ls_watch_redraws_in_place_keeps_to_the_terminal_and_ends_cleanly(running):
    work = running.workspace()
    for number in range(12):
        running.ok("spawn", f"calm-{number}", "-w", work, "--network", "none")
    screen = Screen(running, 10, 80, "ls", "--watch")
    assert screen.written == ""
    frame = screen.read_until("12 agents: 12 idle")
    assert len(frame) == 10
    assert any("more idle: 'ls -a' lists them" in line for line in frame)
    running.spawn("anna", work, ASKS)
    frame = screen.read_until("1 answer")
    assert frame[1].startswith("anna")
    assert "answer anna TEXT" in "".join(frame[1:3])
    screen.resize(30, 60)
    screen.process.send_signal(signal.SIGWINCH)
    frame = screen.read_until(r"calm-11")
    assert len(frame) == 30
    assert max(map(len, frame)) <= 60
    running.kill()
    assert screen.read_until("the daemon is gone")[1].startswith("anna"), "what was last known stays"
    running.start()
    screen.read_until("Ctrl-C ends")
    rest = screen.end()
    assert rest.endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the first screen are back"
    assert screen.process.wait(20) == 0
