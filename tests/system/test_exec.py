"""`substratctl exec`: a command in a sandbox like the agent's, on pipes and on a terminal, and what is left of it."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.system.conftest import PATIENCE, PROGRAMS, _alive

LOOK = """
import json, os, resource
print(json.dumps({
    "environment": dict(os.environ), "cwd": os.getcwd(), "uid": os.getuid(), "groups": os.getgroups(),
    "mounts": sorted(line.split(" - ")[0].split()[4] for line in open("/proc/self/mountinfo")),
    "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE)],
    "kept": [line for line in open("/proc/self/status") if line.startswith(("Cap", "NoNewPrivs", "Seccomp:"))],
    "ignored": [line for line in open("/proc/self/status") if line.startswith("SigIgn")],
    "cursor": sorted(os.listdir(".cursor")), "umask": os.umask(0o22),
    "interfaces": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else None,
}))
"""


def look(house, name, *before):
    done = house.ctl("exec", name, "--", *before, "/usr/bin/python3", "-c", LOOK)
    assert done.code == 0, done
    return done.json


class Screen:
    """A substratctl on a terminal of its own."""

    def __init__(self, house, *arguments, **environment):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            environment = house.environment(SUBSTRAT_SOCKET=str(house.socket), TERM="xterm", **environment)
            os.execve(PROGRAMS / "substratctl", ["substratctl", *arguments], environment)
        self.shown = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 4096).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def end(self):
        """Read to the end; returns the exit status."""
        while True:
            try:
                self.shown += os.read(self.master, 4096).decode(errors="replace")
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


def left_over(house):
    """What visits have left of files and sandboxes."""
    visits = house.state / "visits"
    return [*(visits.iterdir() if visits.exists() else ()), *house.runtime.glob("exec-*"), *house.sandboxed()]


@pytest.fixture
def anna(shared):
    work = shared.workspace()
    shared.ok("spawn", "anna", "-w", work, "--network", "none")
    return shared


def test_a_sandbox_exactly_like_the_agents(daemon):
    work = daemon.workspace(git=True)
    (work / "look.py").write_text(LOOK)
    run = "subprocess.run(['/usr/bin/python3', 'look.py'], capture_output=True, text=True)"
    agent = daemon.program(f"begin()\nmark('seen', {run}.stdout)\nfinish()")
    daemon.stop()
    daemon.start(agent=agent)
    for network in ("none", "host", "filtered"):
        daemon.spawn(network, work, "go", "--network", network)
        wanted = json.loads((work / "seen").read_text())
        found = look(daemon, network)
        ignored = ("_", "OLDPWD", "SHLVL")
        for one in (wanted, found):
            one["environment"] = {key: value for key, value in one["environment"].items() if key not in ignored}
        assert found == wanted
    assert found["kept"][-1] == "Seccomp:\t2\n"


def test_input_output_and_errors_are_the_commands_own(anna):
    data = bytes(range(256)) * 4096
    done = anna.ctl("exec", "anna", "--", "sh", "-c", "cat; echo complaint >&2", stdin=data)
    assert (done.code, done.raw, done.err) == (0, data, "complaint\n")


@pytest.mark.parametrize("network", ["none", "filtered"])
def test_a_reader_that_goes_away_ends_the_command(shared, network):
    shared.ok("spawn", "anna", "-w", shared.workspace(), "--network", network)
    process = shared.follow("exec", "anna", "--", "sh", "-c", "yes; echo $? >&2")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"141\n"
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_nothing_inside(anna, closed):
    """And never the client's own, such as its connection to the daemon."""
    command = f"{PROGRAMS}/substratctl exec anna -- sh -c 'ls -l /proc/self/fd > seen; cat' {closed}"
    environment = anna.environment(SUBSTRAT_SOCKET=str(anna.socket))
    done = subprocess.run(["sh", "-c", command], env=environment, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE)
    assert done.returncode == 0
    assert "socket:" not in (anna.directory / "work" / "seen").read_text()


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 1", 1), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -SEGV $$", 139)],
)
def test_the_exit_status_is_the_commands(anna, script, status):
    done = anna.ctl("exec", "anna", "--", "sh", "-c", script)
    assert (done.code, done.out, done.err) == (status, "", "")


def test_words_go_through_unchanged(anna):
    words = ["a b", "", "-x", "--json", "$HOME", "ü\n", "'"]
    done = anna.ctl("exec", "anna", "--", "/usr/bin/python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    assert done.out == ascii(words) + "\n"


def test_a_command_that_is_not_there(anna):
    done = anna.ctl("exec", "anna", "--", "no-such-program")
    assert (done.code, done.out) == (127, "")
    assert "failed to execute no-such-program: No such file or directory" in done.error
    (anna.directory / "work" / "plain").write_text("")
    done = anna.ctl("exec", "anna", "--", "./plain")
    assert done.code == 126
    assert "Permission denied" in done.error


def test_refusals(anna):
    done = anna.ctl("exec", "nobody", "--", "true")
    assert done.code == 4
    assert "there is no agent 'nobody'" in done.error
    assert anna.ctl("exec", "anna", "--json", "--", "true").code == 2
    assert anna.ctl("exec").code == 2
    anna.ok("end", "anna")
    done = anna.ctl("exec", "anna", "--", "true")
    assert done.code == 1
    assert "anna has ended" in done.error
    assert left_over(anna) == []


def test_without_bubblewrap_or_a_daemon(house):
    work = house.workspace()
    house.start(config="[sandbox]\nbwrap = '/nonexistent/bwrap'\n")
    house.config.write_text("")
    house.stop()
    house.start()
    house.spawn("anna", work)
    house.stop()
    house.start(config="[sandbox]\nbwrap = '/nonexistent/bwrap'\n")
    done = house.ctl("exec", "anna", "--", "true")
    assert done.code == 1
    assert "there is no bubblewrap at /nonexistent/bwrap: apt install bubblewrap" in done.error
    house.stop()
    assert house.ctl("exec", "anna", "--", "true").code == 3


def test_nothing_is_left(anna, until):
    work = anna.directory / "work"
    script = "sleep 1000 & setsid sh -c 'trap \"\" TERM HUP; touch up; sleep 1001' & while [ ! -e up ]; do sleep 0.01; done"
    assert anna.ctl("exec", "anna", "--", "sh", "-c", script).code == 0
    # It is gone when the command comes back, not some time later.
    assert not anna.sandboxed()
    until(lambda: left_over(anna) == [])
    assert sorted(path.name for path in work.iterdir()) == ["up"]


def test_it_works_beside_a_running_turn(anna, until):
    work = anna.directory / "work"
    anna.held("bert", work, "--network", "none", before="/shell ls .cursor > before\n")
    seen = anna.ctl("exec", "bert", "--", "sh", "-c", "ls .cursor; ls /proc | grep -c '^[0-9]*$'; echo $$")
    listed, processes, pid = seen.out.split()[:-2], *seen.out.split()[-2:]
    assert listed == (work / "before").read_text().split()
    assert int(processes) < 8
    assert pid == "2"
    # Also one that begins and ends while the other is there, and the turn's own files stay.
    (work / "go").touch()
    assert anna.wait("bert")["turn"]["outcome"] == "success"
    until(lambda: not (work / ".cursor").exists())


def test_a_turn_that_begins_and_ends_meanwhile(anna, until):
    work = anna.directory / "work"
    process = anna.follow("exec", "anna", "--", "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.01; done; ls .cursor")
    until((work / "up").exists)
    anna.spawn("bert", work, "/say hello", "--network", "none")
    assert anna.ctl("send", "anna", "/say hello", "--wait").code == 0
    done = anna.ctl("rm", "anna")
    assert done.code == 1
    assert "end it first" in done.error
    (work / "go").touch()
    out, _ = process.communicate(timeout=PATIENCE)
    assert out.split() == [b"mcp.json", b"rules"]
    assert process.returncode == 0
    until(lambda: not (work / ".cursor").exists())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command(anna, until, number):
    work = anna.directory / "work"
    name = signal.Signals(number).name.removeprefix("SIG")
    script = f"trap 'echo caught; exit 9' {name}; touch up; while :; do sleep 0.01; done"
    process = anna.follow("exec", "anna", "--", "sh", "-c", script)
    until((work / "up").exists)
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE)[0] == b"caught\n"
    assert process.returncode == 9


def test_one_that_takes_no_notice_is_killed_the_second_time(anna, until):
    work = anna.directory / "work"
    process = anna.follow("exec", "anna", "--", "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.01; done")
    until((work / "up").exists)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)

    def again():
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    until(again)
    # The one that came when it had ended already may be what ended it.
    assert process.returncode in {128 + signal.SIGTERM, -signal.SIGTERM}
    until(lambda: left_over(anna) == [])


def test_a_caller_that_is_killed(anna, until):
    work = anna.directory / "work"
    process = anna.follow("exec", "anna", "--", "sh", "-c", "touch up; sleep 1000")
    until((work / "up").exists)
    process.kill()
    process.wait()
    until(lambda: left_over(anna) == [])
    until(lambda: not (work / ".cursor").exists())


@pytest.mark.parametrize("network", ["none", "filtered"])
@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_a_daemon_that_ends_takes_it_along(daemon, until, network, stop):
    work = daemon.workspace()
    daemon.spawn("anna", work, None, "--network", network)
    process = daemon.follow("exec", "anna", "--", "sh", "-c", "touch up; sleep 1000")
    until((work / "up").exists)
    getattr(daemon, stop)()
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert b"the daemon at" in complaint
    until(lambda: not daemon.sandboxed())
    daemon.start()
    until(lambda: left_over(daemon) == [])
    assert not (work / ".cursor").exists()


def test_a_daemon_that_was_killed_before_the_sandbox_was_tied_to_it(daemon, until):
    """The next daemon ends what still holds a visit's lock."""
    daemon.kill()
    visit = daemon.state / "visits" / "0123"
    visit.mkdir(parents=True)
    script = "import fcntl, os, time, sys; os.dup2(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 5); "
    script += "fcntl.flock(5, fcntl.LOCK_EX); print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script, visit / "lock"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        daemon.start()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: left_over(daemon) == [])


def test_filtered_is_decided_and_told_as_in_a_turn(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work, None, "--network", "filtered", "--allow", "localhost")
    daemon.ctl("exec", "anna", "--", "sh", "-c", "getent hosts evil.test; curl -sS http://localhost./; true")
    told = [event["text"] for event in daemon.events("anna", "network:denied")]
    assert any(text.startswith("evil.test:53: ") for text in told), told
    assert {event["turn"] for event in daemon.events("anna", "network:denied")} == {None}


def test_a_shell_on_a_terminal(anna, until):
    screen = Screen(anna, "exec", "anna", "--", "/bin/bash", "--norc", "-i")
    screen.type("PS1='>'\n")
    screen.until("\n")
    screen.type("stty size; tty >/dev/null || echo unnamed; echo $TERM; : < /dev/tty && echo has-$((1+1))-one\n")
    screen.until("xterm")
    screen.until("has-2-one")
    # Job control: an interrupt ends what is in the foreground, not the shell.
    screen.type("sleep 1000; echo went-$((2+2))-on\n")
    until(lambda: any(b"sleep\x001000" in _arguments(pid) for pid in anna.sandboxed()))
    screen.type("\x03")
    screen.type("echo still-$((3+3))-there; sleep 1001 &\n")
    screen.until("still-6-there")
    assert "went-4-on" not in screen.shown
    screen.type("exit 5\n")
    assert screen.end() == 5
    assert "no job control" not in screen.shown
    until(lambda: left_over(anna) == [])


def _arguments(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_terminal_shows_everything_and_is_as_it_was(anna):
    script = "import sys\nfor n in range(20000): print('line', n)\nsys.stderr.write('the end')"
    screen = Screen(anna, "exec", "anna", "--", "/usr/bin/python3", "-c", script)
    assert screen.end() == 0
    lines = screen.shown.split("\r\n")
    assert lines == [*(f"line {number}" for number in range(20000)), "the end"]


def test_a_terminal_that_hangs_up(anna, until):
    screen = Screen(anna, "exec", "anna")
    screen.type("touch up\n")
    until((anna.directory / "work" / "up").exists)
    os.close(screen.master)
    os.waitpid(screen.pid, 0)
    until(lambda: left_over(anna) == [])


def test_a_sandbox_cannot_type_into_the_persons_terminal(anna):
    script = "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"
    screen = Screen(anna, "exec", "anna", "--", "/usr/bin/python3", "-c", script)
    assert screen.end() == 1
    assert "PermissionError" in screen.shown


def test_the_wire(anna):
    with anna.wire() as wire:
        for params, name in (
            ({"command": []}, "InvalidParams"),
            ({"command": ["a\0b"]}, "InvalidParams"),
            ({"descriptors": "relative"}, "InvalidParams"),
            ({"descriptors": "/nonexistent/socket"}, "InvalidParams"),
            ({"terminal": "a b"}, "InvalidParams"),
            ({"agent": "nobody"}, "NotFound"),
        ):
            given = {"agent": "anna", "command": ["true"], "descriptors": "/nonexistent/s", **params}
            assert wire.refuse("agent.exec", **given)["data"]["type"] == name
    assert _alive(anna.daemon.pid)
