"""`substratctl exec`: a command in a sandbox like the agent's, on pipes, and its leftovers."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import PROGRAMS
from tests.support.processes import is_alive
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

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


def look(daemon, name, *before):
    done = daemon.ctl("exec", name, "--", *before, "/usr/bin/python3", "-c", LOOK)
    assert done.code == 0, done
    return done.json


def shell(daemon, line, **how):
    """Run a line of bash's, in which EXEC runs a command in anna's sandbox."""
    environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), EXEC="substratctl exec anna --")
    environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
    how = {"env": environment, "capture_output": True, "cwd": daemon.directory, "timeout": PATIENCE, **how}
    return subprocess.run(["bash", "-c", line], check=False, **how)


def left_over(daemon):
    """Files and sandboxes that visits have left."""
    visits = [*daemon.state.glob("visits/*"), *daemon.runtime.glob("visits/*")]
    return [*visits, *daemon.runtime.glob("exec-*"), *daemon.sandboxed()]


@pytest.fixture
def anna(shared):
    work = shared.workspace()
    shared.ok("spawn", "anna", "-w", work, "--network", "none")
    return shared


def test_a_sandbox_exactly_like_the_agents(daemon):
    running, work = daemon, daemon.workspace(git=True)
    (work / "look.py").write_text(LOOK)
    run = "subprocess.run(['/usr/bin/python3', 'look.py'], capture_output=True, text=True)"
    agent = running.program(f"begin()\nmark('seen', {run}.stdout)\nfinish()")
    running.start(agent=agent)
    for network in ("none", "host", "filtered"):
        running.spawn(network, work, "begin the chat, which is moved at the turn's end", "--network", network)
        running.ok("send", network, "go", "--wait")
        wanted = json.loads((work / "seen").read_text())
        found = look(running, network)
        ignored = ("_", "OLDPWD", "SHLVL")
        for one in (wanted, found):
            one["environment"] = {key: value for key, value in one["environment"].items() if key not in ignored}
        assert found == wanted
    assert found["kept"][-1] == "Seccomp:\t2\n"


def test_input_output_and_errors_are_the_commands_own(anna):
    data = bytes(range(256)) * 4096
    done = anna.ctl("exec", "anna", "--", "sh", "-c", "cat; echo complaint >&2", stdin=data)
    assert (done.code, done.raw, done.err) == (0, data, "complaint\n")


def test_much_goes_through_unchanged(anna):
    data = os.urandom(5_000_001)
    (anna.directory / "given").write_bytes(data)
    for line in ("$EXEC cat < given > got", "$EXEC cat > got < <(cat given)", "cat given | $EXEC cat | cat > got"):
        done = shell(anna, line)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line
        assert (anna.directory / "got").read_bytes() == data, line


def test_output_and_errors_stay_apart_and_in_order_where_they_are_one(anna):
    script = "$EXEC sh -c 'for n in $(seq 500); do echo out $n; echo err $n >&2; done'"
    apart = shell(anna, script)
    assert apart.stdout.decode() == "".join(f"out {number}\n" for number in range(1, 501))
    assert apart.stderr.decode() == "".join(f"err {number}\n" for number in range(1, 501))
    wanted = "".join(f"out {number}\nerr {number}\n" for number in range(1, 501))
    assert shell(anna, f"{script} 2>&1").stdout.decode() == wanted
    shell(anna, f"echo before > log; {script} >> log 2>&1")
    assert (anna.directory / "log").read_text() == "before\n" + wanted


def test_a_command_that_does_not_read_its_input_ends_as_ever(anna):
    """Neither its unread input is waited for, nor the end of an input that stays open."""
    much = b"x" * 1_000_000
    for given, command in (
        (b"", "exit 3"), (much, "exit 3"), (much, "exec <&-; sleep 0.1; exit 3"), (much, "head -c 10; exit 3"),
    ):  # fmt: skip
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        if given:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, len(given))
            os.write(writing, given)
        done = shell(anna, f"$EXEC sh -c '{command}'", stdin=reading)
        os.close(writing)
        os.close(reading)
        assert (done.returncode, done.stderr) == (3, b""), (len(given), command)


def test_what_could_not_be_read_or_written_is_told(anna):
    done = shell(anna, "$EXEC echo hello > /dev/full")
    assert done.returncode == 1
    assert b"standard output can't be written" in done.stderr
    assert b"no space left on device" in done.stderr
    here, there = socket.socketpair()
    here.send(b"unread")
    there.close()
    with here:
        done = shell(anna, "$EXEC cat", stdin=here)
    assert done.returncode == 1
    assert b"standard input can't be read: connection reset" in done.stderr
    assert shell(anna, "$EXEC cat 0> /dev/null").returncode == 0, "as nohup has it"
    assert shell(anna, "$EXEC sh -c 'cat; echo hello; exit 3' < /dev/null > /dev/null 2>&1").returncode == 3


@pytest.mark.parametrize("blocking", [True, False])
def test_the_callers_descriptors_stay_as_they_are(anna, blocking):
    data = bytes(range(256)) * 4096
    (reading, feed), (drain, writing) = os.pipe(), os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, blocking)
    environment = anna.environment(SUBSTRAT_SOCKET=str(anna.socket))
    command: list[str | Path] = [PROGRAMS / "substratctl", "exec", "anna", "--", "cat"]
    with subprocess.Popen(command, env=environment, stdin=reading, stdout=writing) as process:
        received = b""
        for start in range(0, len(data), 8192):
            os.write(feed, data[start : start + 8192])
            received += os.read(drain, 8192)
            assert [os.get_blocking(reading), os.get_blocking(writing)] == [blocking] * 2
        os.close(feed)
        os.close(writing)
        while more := os.read(drain, 65536):
            received += more
    os.close(reading)
    os.close(drain)
    assert (process.returncode, received) == (0, data)


def test_a_reader_that_is_slow_holds_no_signal_up(anna, until):
    work = anna.directory / "work"
    script = "trap 'echo caught >&2; exit 9' TERM; head -c 5000000 /dev/zero & touch up; while :; do sleep 0.01; done"
    process = anna.follow("exec", "anna", "--", "sh", "-c", script)
    until((work / "up").exists)
    process.send_signal(signal.SIGTERM)
    assert process.stderr.read(7) == b"caught\n"
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 9
    assert not out.strip(b"\0")


def test_one_that_never_reads_is_waited_for_until_a_signal(anna, until):
    work = anna.directory / "work"
    process = anna.follow("exec", "anna", "--", "sh", "-c", "head -c 100000 /dev/zero; echo done > up")
    until(lambda: (work / "up").exists() and left_over(anna) == [])
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_a_reader_that_has_had_enough_ends_the_command(anna):
    done = shell(anna, "yes | $EXEC sh -c 'cat; echo $? >&2' | head -n 1; echo ${PIPESTATUS[*]}")
    assert (done.stdout, done.stderr) == (b"y\n141 0 0\n", b"141\n")


def test_closed_descriptors_are_nothing_inside(anna):
    """And never the client's own, such as its connection to the daemon."""
    environment = anna.environment(SUBSTRAT_SOCKET=str(anna.socket))
    for closed in ("<&-", ">&-", "<&- >&- 2>&-"):
        command = f"'{PROGRAMS}/substratctl' exec anna -- sh -c 'ls -l /proc/self/fd > seen; cat' {closed}"
        done = subprocess.run(
            ["sh", "-c", command], env=environment, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, closed
        assert "socket:" not in (anna.directory / "work" / "seen").read_text(), closed


def test_the_exit_status_is_the_commands(anna):
    for script, status in (("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -9 $$", 137), ("kill -SEGV $$", 139)):
        done = anna.ctl("exec", "anna", "--", "sh", "-c", script)
        assert (done.code, done.out, done.err) == (status, "", ""), script


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


def test_without_bubblewrap_or_a_daemon(daemon):
    work = daemon.workspace()
    daemon.start()
    daemon.spawn("anna", work)
    daemon.stop()
    daemon.start(config="[sandbox]\nbwrap = '/nonexistent/bwrap'\n")
    done = daemon.ctl("exec", "anna", "--", "true")
    assert done.code == 1
    assert "there is no bubblewrap at /nonexistent/bwrap: apt install bubblewrap" in done.error
    daemon.stop()
    assert daemon.ctl("exec", "anna", "--", "true").code == 3


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
    *listed, processes, pid = seen.out.split()
    assert listed == (work / "before").read_text().split()
    assert int(processes) < 8
    assert pid == "2"
    # Also one that begins and ends while the other is there, and the turn's own files stay.
    (work / "go").touch()
    assert anna.wait("bert")["turn"]["outcome"] == "success"
    until(lambda: not (work / ".cursor").exists())


def speak(daemon, name, *messages):
    """Speak to the companion in an agent's sandbox as its mcp.json says, and return the answers."""
    server = "json.load(open('.cursor/mcp.json'))['mcpServers']['substrat']"
    start = f"import json, os; s = {server}; os.execve(s['command'], [s['command'], *s['args']], s['env'])"
    lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
    done = daemon.ctl("exec", name, "--", "/usr/bin/python3", "-c", start, stdin=b"\n".join(lines))
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def call(number, name, **arguments):
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


INITIALIZE = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


def test_the_companion_answers_in_the_agents_name(running, until):
    running.spawn("idle", running.workspace("idle"))
    running.held("busy", running.workspace())
    for name in ("idle", "busy"):
        before = running.show(name)["turn"]
        answers = speak(
            running, name, INITIALIZE, b"{no json", b"",
            b"\xef\xbb\xbf" + json.dumps([call(1, "whoami"), call("1", "send_message", to="operator", text="hi")]).encode(),
            call(1, "send_message", to="operator", text="hi"),
        )  # fmt: skip
        (batch,) = [answer for answer in answers if isinstance(answer, list)]
        single, handshake, no_json = (
            next(answer for answer in answers if isinstance(answer, dict) and answer["id"] == number)
            for number in (1, 0, None)
        )
        assert len(answers) == 4
        assert handshake["result"]["protocolVersion"] == "2025-03-26"
        assert no_json["error"]["code"] == -32700
        assert json.loads(batch[0]["result"]["content"][0]["text"])["name"] == name
        assert [answer["id"] for answer in (*batch, single)] == [1, "1", 1]
        assert [message["from"] for message in running.ok("inbox")][-2:] == [name, name]
        assert running.show(name)["turn"] == before
        until(lambda: not list(running.runtime.glob("visits/*")), "the removal of its socket")
    assert len(running.ok("inbox")) == 4


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


def test_signals_reach_the_command(anna, until):
    work = anna.directory / "work"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        name = number.name.removeprefix("SIG")
        script = f"trap 'echo caught; exit 9' {name}; touch {name}; while :; do sleep 0.01; done"
        process = anna.follow("exec", "anna", "--", "sh", "-c", script)
        until((work / name).exists)
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE)[0] == b"caught\n", name
        assert process.returncode == 9, name


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
    # A signal that came when the command had ended already may have ended `substratctl`.
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


@pytest.mark.slow
def test_a_caller_that_was_killed_before_it_handed_anything_over(anna, until):
    """Its socket is removed for it, also when it was killed before it asked."""
    for came_to in ("nothing", "asking", "listening"):
        path = anna.runtime / f"exec-{os.getpid()}-00c0ffee.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
            with anna.wire() as wire:
                if came_to == "listening":
                    dead.listen(1)
                if came_to != "nothing":
                    number = wire.ask("agent.exec", agent="anna", command=["true"], descriptors=str(path))
                if came_to == "asking":
                    assert "no descriptors can be had" in wire.answer(number)["error"]["message"]
                if came_to == "listening":
                    connected, _ = dead.accept()
            until(lambda path=path: not path.exists(), f"the removal of the socket of a caller that came to {came_to}")
            if came_to == "listening":
                connected.close()
    # Another file that a caller names stays.
    other = anna.directory / "exec-1-00c0ffee.sock"
    other.touch()
    with anna.wire() as wire:
        wire.refuse("agent.exec", agent="anna", command=["true"], descriptors=str(other))
    assert other.exists()


def test_sockets_of_callers_that_were_killed_with_their_daemon_are_removed_by_the_next(running):
    with subprocess.Popen(["true"]) as dead:
        pass
    running.kill()
    with subprocess.Popen(["sleep", "600"]) as caller:
        left, living = (running.runtime / f"exec-{process.pid}-00c0ffee.sock" for process in (dead, caller))
        for path in (left, living):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        running.start()
        assert not left.exists()
        # Its caller removes it itself.
        assert living.exists()
        caller.kill()


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_a_daemon_that_ends_takes_it_along(running, until, stop):
    work = running.workspace()
    processes = []
    for network in ("none", "filtered"):
        running.spawn(network, work, None, "--network", network)
        script = f"head -c 60000 /dev/zero; touch {network}; sleep 1000"
        processes.append(running.follow("exec", network, "--", "sh", "-c", script))
        until((work / network).exists)
    getattr(running, stop)()
    until(lambda: not running.sandboxed())
    for process in processes:
        out, complaint = process.communicate(timeout=PATIENCE)
        assert out == bytes(60_000), "the output from before the daemon's end"
        assert process.returncode == 3
        assert b"the daemon at" in complaint
    running.start()
    until(lambda: left_over(running) == [])
    assert not (work / ".cursor").exists()


def test_a_daemon_that_was_killed_before_the_sandbox_was_tied_to_it(running, until):
    """The next daemon ends a process that still holds a visit's lock."""
    running.kill()
    visit = running.state / "visits" / "0123"
    visit.mkdir(parents=True)
    script = "import fcntl, os, time, sys; os.dup2(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 5); "
    script += "fcntl.flock(5, fcntl.LOCK_EX); print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script, visit / "lock"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        running.start()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: left_over(running) == [])


def test_filtered_is_decided_and_told_as_in_a_turn(running):
    work = running.workspace()
    running.spawn("anna", work, None, "--network", "filtered", "--allow", "localhost")
    running.ctl("exec", "anna", "--", "sh", "-c", "getent hosts evil.test; curl -sS http://localhost./; true")
    told = [event["text"] for event in running.events("anna", "network:denied")]
    assert any(text.startswith("evil.test:53: ") for text in told), told
    assert {event["turn"] for event in running.events("anna", "network:denied")} == {None}


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
    assert is_alive(anna.process.pid)
