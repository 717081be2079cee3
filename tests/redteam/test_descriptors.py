"""A hostile program's use of descriptors: those it was started with, those of others, those it is lent, those it sends."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from substrat.daemon.state.layout import TurnDir
from tests.redteam.hostile import DOOR, PROGRAM, TRIED, said
from tests.support.daemon import PROGRAMS
from tests.support.terminal import Screen

if TYPE_CHECKING:
    from pathlib import Path

# Lists the files behind each visible descriptor, and writes to those that can be opened for writing.
SCRIBBLE = (
    TRIED
    + r"""
def scribble(path):
    target = os.readlink(path)
    if not target.startswith("/") or target.startswith("/dev/") or target.endswith("/stdout"):
        return "left"
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    tried(lambda: os.fchmod(descriptor, 0o4777))  # refused for a file of any kind
    return os.pwrite(descriptor, b"EVIL", 0)

answer = {"files": {}, "memory": [], "environment": ""}
for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
    try:
        if int(pid) == os.getpid() or seen(pid):
            names = os.listdir(f"/proc/{pid}/fd")
        else:
            continue
    except OSError:
        continue
    for name in names:
        path = f"/proc/{pid}/fd/{name}"
        try:
            answer["files"][os.readlink(path)] = tried(lambda: scribble(path))
        except OSError:
            pass  # the descriptor that listed the directory
    if int(pid) != os.getpid():
        answer["environment"] += open(f"/proc/{pid}/environ").read()
        answer["memory"] += [tried(lambda: os.open(f"/proc/{pid}/{name}", os.O_RDWR)) for name in ("mem", "oom_score_adj")]
"""
)
EVERYBODY = "seen = lambda pid: True\n"
CANARY = "canary-in-the-daemons-environment"


def outside(code, *arguments, **how):
    """Run the same code without a sandbox, and return its `answer`."""
    source = f"import json, os, subprocess, sys\n{code}\nprint(json.dumps(answer))"
    command = [sys.executable, "-I", "-S", "-c", source, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout)


def test_the_first_processs_descriptors_lead_to_its_own_turn_and_no_further(daemon, tmp_path):
    """Through `/proc/1/fd` an agent opens bubblewrap's descriptors: its own prompt and lock, and it spoils no others."""
    daemon.start(agent=daemon.program(PROGRAM), environment={"CANARY": CANARY}, executed=True)
    with (tmp_path / "held").open("wb") as held:
        victim = subprocess.Popen(["sleep", "1000"], stdin=held, env={"CANARY": CANARY})
        try:
            control = outside(f"seen = lambda pid: pid == '{victim.pid}'\n{SCRIBBLE}")
        finally:
            victim.kill()
            victim.wait()
    assert control["files"][str(tmp_path / "held")] == 4, "the control: written to"
    assert (tmp_path / "held").read_bytes() == b"EVIL"
    assert CANARY in control["environment"], "the control"
    assert any(isinstance(found, int) for found in control["memory"]), "the control: opened"
    work = daemon.workspace()
    first = said(daemon.spawn("anna", work, EVERYBODY + SCRIBBLE))
    daemon.ok("suspend", "anna")
    daemon.kill()
    daemon.start()
    daemon.ok("resume", "anna", EVERYBODY + SCRIBBLE, "--wait")
    anna = daemon.wait("anna")
    for number, found in ((1, first), (2, said(anna))):
        own = f"{daemon.agents_directory(anna)}/turns/{number}/"
        paths = {path for path in found["files"] if path.startswith("/") and not path.startswith("/dev/")}
        prompt = "/memfd:substrat (deleted)"
        assert paths <= {prompt, *(own + name for name in ("stdout", "stderr", "lock"))}, paths
        assert prompt in paths
        assert found["files"][prompt] == "EPERM", "a copy in memory that is sealed"
        assert set(found["memory"]) <= {"EROFS", "EACCES", "EPERM"}, found["memory"]
        assert CANARY not in found["environment"]
        prompt = daemon.agents_directory(anna) / "turns" / str(number) / "prompt"
        assert "EVIL" in prompt.read_text(), "the script's own word"
        assert stat.S_IMODE(prompt.stat().st_mode) & 0o4111 == 0, "the record is out of its reach"
    prompts = [event["text"] for event in daemon.events("anna", "user")]
    assert not any("EVIL" in text for text in prompts)
    daemon.kill()
    daemon.start()
    assert said(daemon.ok("send", "anna", "answer = 3", "--wait")) == 3


def test_what_an_agent_does_to_its_own_output_is_told_and_costs_its_turn_only(hostile):
    """The agent takes all permissions from its output, and punches a hole into the part that was read already."""
    code = r"""
import ctypes
say("hello")
wait_for("go")
answer = [ctypes.CDLL(None).fallocate(1, 3, ctypes.c_long(0), ctypes.c_long(4096))]
for descriptor in (0, 1, 2):
    os.fchmod(descriptor, 0)
"""
    work = hostile.workspace()
    (work / "go").touch()
    anna = hostile.spawn("anna", work, code)
    if os.geteuid() == 0:  # permissions don't keep root from reading
        assert said(anna) == [0]
    stdout = hostile.agents_directory(anna) / "turns" / "1" / "stdout"
    assert stdout.stat().st_mode & 0o777 == 0, "the control: it did"
    assert hostile.ok("send", "anna", "answer = 2", "--wait")["turn"]["result"] == "2"
    hostile.kill()
    hostile.start()
    for command in (("logs", "anna"), ("logs", "anna", "--json"), ("transcript", "anna"), ("ls",)):
        assert hostile.ctl(*command).code == 0, command
    assert hostile.show("anna")["state"] == "idle"
    assert "Traceback" not in hostile.log


def test_what_it_does_to_its_lock_counts_as_output_and_keeps_nobody_from_it(daemon, tmp_path):
    """The lock is open in its sandbox's first process, so `/proc/1/fd` leads to it: a place to write without a limit."""
    code = """
(lock,) = [path for path in map("/proc/1/fd/{}".format, os.listdir("/proc/1/fd")) if os.readlink(path).endswith("/lock")]
with open(lock, "r+b", buffering=0) as file:
    os.fchmod(file.fileno(), 0)
    while True:
        file.write(bytes(65536))
"""
    config = "[disk]\nturn_output = 1000000\n[turns]\nstop_grace = 0.2\n"
    daemon.start(agent=daemon.program(PROGRAM), config=config)
    anna = daemon.spawn("anna", daemon.workspace(), code)
    assert (anna["state"], anna["turn"]["outcome"]) == ("failed", "error")
    assert "disk.turn_output" in anna["turn"]["error"]
    lock = daemon.agents_directory(anna) / "turns" / "1" / "lock"
    assert lock.stat().st_size > 1000000, "the control"
    daemon.kill()
    daemon.start()
    assert said(daemon.ok("send", "anna", "answer = 1", "--wait")) == 1


def test_a_lock_without_rights_is_held_all_the_same(tmp_path):
    place = TurnDir(str(tmp_path))
    lock = place.take_lock()
    try:
        os.chmod(place.lock, 0)
        assert place.is_held()
    finally:
        os.close(lock)
    os.chmod(place.lock, 0)
    assert not place.is_held()


@pytest.mark.slow
def test_output_that_is_said_to_be_longer_than_anybody_can_read(daemon, until, tmp_path):
    """A hole costs nothing to make: one call makes four terabytes, and the daemon neither reads nor compresses them."""
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 1 << 42)
    assert (tmp_path / "hole").stat().st_size == 1 << 42, "the control"
    config = "[disk]\nturn_output = 1000000\ncompress_after = 0\n[turns]\nstop_grace = 0.2\n"
    daemon.start(agent=daemon.program(PROGRAM), config=config)
    anna = daemon.spawn("anna", daemon.workspace(), "os.ftruncate(1, 1 << 42)\nanswer = 1")
    assert (anna["state"], anna["turn"]["outcome"]) == ("failed", "error")
    assert "disk.turn_output" in anna["turn"]["error"]
    (note,) = daemon.events("anna", "turn:output-unread")
    assert "too much to be read" in note["text"]
    assert said(daemon.ok("send", "anna", "say('x' * 200_000)\nanswer = 2", "--wait")) == 2
    assert said(daemon.ok("send", "anna", "answer = 3", "--wait")) == 3
    turns = daemon.agents_directory(anna) / "turns"
    until((turns / "2" / "stdout.z").exists, "the compression of the second turn's output")
    assert not list((turns / "1").glob("stdout.*"))
    daemon.ok("end", "anna")
    assert daemon.ctl("rm", "anna").code == 0


# Descriptors that a library left open

CARELESS = """
import ctypes, os, pathlib, select, signal, socket, sys

sys.argv = sys.argv[1:]
place, opened = pathlib.Path(PLACE), []


def be_careless(*_):
    if not opened:
        libc = ctypes.CDLL(None)
        listener = socket.create_server(("127.0.0.1", 0))
        kept = [*socket.socketpair(), listener, socket.create_connection(listener.getsockname()), select.epoll()]
        opened.extend(thing.detach() if hasattr(thing, "detach") else os.dup(thing.fileno()) for thing in kept)
        opened.extend(os.openpty())
        opened.extend(os.pipe())
        opened.append(os.open(place / "careless-file", os.O_RDWR | os.O_CREAT))
        opened.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
        opened.append(os.open("/", os.O_PATH))
        opened.append(os.open("/dev/null", os.O_RDWR))
        opened.append(os.memfd_create("careless-memory", 0))
        opened.append(os.eventfd(0, 0))
        opened.append(os.pidfd_open(os.getpid()))
        opened.append(libc.inotify_init1(0))
        opened.append(libc.timerfd_create(1, 0))
        opened.append(libc.signalfd(-1, bytes(8) + bytes(120), 0))
        opened.append(libc.fcntl(opened[0], 0, 900))  # a high number
    for descriptor in opened:
        os.set_inheritable(descriptor, True)
    done = place / "careless"
    done.write_text(str(int(done.read_text()) + 1 if done.exists() else 1))


signal.signal(signal.SIGUSR2, be_careless)
from substrat.daemon.main import main
sys.exit(main())
"""
OWN = "answer = sorted(os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd') if int(name) < 3)\n"
BEYOND = (
    OWN + "beyond = [name for name in os.listdir('/proc/self/fd') if int(name) > 2]\n"
    "answer += [os.readlink(f'/proc/self/fd/{name}') for name in beyond if os.path.exists(f'/proc/self/fd/{name}')]\n"
)


@pytest.mark.parametrize("network", ["filtered", pytest.param("none", marks=pytest.mark.slow)])
def test_a_sandbox_has_the_descriptors_it_is_given_and_no_others(daemon, until, network, tmp_path):
    """A library in the daemon opens descriptors of all kinds without close-on-exec, again before each start."""
    place = tmp_path / "careless"
    place.mkdir()
    script = place / "daemon.py"
    script.write_text(CARELESS.replace("PLACE", repr(str(place))))
    daemon.start(agent=daemon.program(PROGRAM), prefix=(sys.executable, str(script)))
    turns = 0

    def be_careless():
        nonlocal turns
        turns += 1
        daemon.process.send_signal(signal.SIGUSR2)
        until(lambda: (place / "careless").exists() and (place / "careless").read_text() == str(turns), "the carelessness")

    be_careless()
    listing = f"/proc/{daemon.process.pid}/fd"
    careless = set()
    for name in os.listdir(listing):
        with contextlib.suppress(FileNotFoundError):  # the daemon has closed it
            careless.add(os.readlink(f"{listing}/{name}"))
    assert any("careless-memory" in path for path in careless), "the control"
    before = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, check=True).stdout.split()
    work = daemon.workspace(git=True)
    found = said(daemon.spawn("anna", work, BEYOND, "--network", network))
    turn = daemon.agents_directory(daemon.show("anna")) / "turns" / "1"
    assert found == sorted(["/memfd:substrat (deleted)", f"{turn}/stderr", f"{turn}/stdout"])
    # From outside: bubblewrap's two processes, and the launcher before it became one of them.
    be_careless()
    daemon.ok("send", "anna", "mark('ready'); wait_for('go'); answer = 1")
    until((work / "ready").exists, "the turn")
    own = re.compile(rf"{re.escape(str(turn.parent))}/2/\w+|/memfd:substrat \(deleted\)|anon_inode:\[(eventfd|signalfd)\]")
    for pid in daemon.sandboxed():
        held = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        strange = [path for path in held if not own.fullmatch(path)]
        # Bubblewrap has a pipe between its two processes.
        assert [path for path in strange if path in careless or not path.startswith("pipe:")] == [], held
        assert len(strange) <= 2, held
    (work / "go").touch()
    daemon.wait("anna")
    be_careless()
    listed = daemon.ctl("exec", "anna", "--", "ls", "-l", "/proc/self/fd")
    assert len(listed.out.splitlines()) == 1 + len(before), listed
    be_careless()
    with Screen(daemon, "exec", "anna", "--", "ls", "/proc/self/fd") as screen:
        assert screen.end() == 0
    assert len(screen.shown.split()) == len(before), screen.shown


# Descriptors that `exec` lends

LENT = (
    TRIED
    + """
answer = tried(lambda: os.write(os.open("/proc/self/fd/0", os.O_RDWR), b"EVIL"))
"""
)


def test_a_file_that_is_lent_for_reading_is_not_written(hostile):
    """`substratctl exec anna -- make < notes`: the command may be hostile, and notes lie outside of its workspace."""
    work, notes = hostile.workspace(), hostile.home / "notes"
    hostile.spawn("anna", work)
    notes.write_text("precious\n")
    with notes.open("rb") as lent:
        assert outside(LENT, stdin=lent) == 4, "the control"
    assert notes.read_text() == "EVILious\n", "the control"
    notes.write_text("precious\n")
    (work / "tool.py").write_text(f"import json, os\n{LENT}\nprint(json.dumps(answer))")
    environment = hostile.environment(SUBSTRAT_SOCKET=str(hostile.socket))
    with notes.open("rb") as lent:
        command: list[str | Path] = [PROGRAMS / "substratctl", "exec", "anna", "--", "python3", "tool.py"]
        done = subprocess.run(command, env=environment, stdin=lent, capture_output=True, text=True, check=True)
    assert done.stdout
    assert notes.read_text() == "precious\n"


ALL_THREE = """
import json, os, stat
kinds = [stat.S_ISFIFO(os.fstat(number).st_mode) for number in range(3)]
for number in range(3):
    os.fchmod(number, 0o777)
for number in (1, 2):
    os.write(os.open(f"/proc/self/fd/{number}", os.O_RDWR), json.dumps(kinds).encode())
"""


def test_of_what_exec_is_given_a_command_has_nothing_itself(hostile):
    """It has no file, no terminal and no /dev/null, whose mode it would change for all users where the daemon is root's."""
    work, out, err = hostile.workspace(), hostile.home / "out", hostile.home / "err"
    hostile.spawn("anna", work)
    (work / "tool.py").write_text(ALL_THREE)
    environment = hostile.environment(SUBSTRAT_SOCKET=str(hostile.socket))
    command: list[str | Path] = [PROGRAMS / "substratctl", "exec", "anna", "--", "python3", "tool.py"]
    before = os.stat(os.devnull).st_mode
    for path in (out, err):
        path.touch(0o600)
    with out.open("r+b") as lent, err.open("r+b") as other:
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=lent, stderr=other, check=True)
    for path in (out, err):
        assert json.loads(path.read_text()) == [True, True, True]
        assert path.stat().st_mode & 0o7777 == 0o600
    assert os.stat(os.devnull).st_mode == before
    master, slave = os.openpty()
    os.fchmod(slave, 0o600)
    subprocess.run(command, env=environment, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave, check=True)
    assert json.loads(os.read(master, 4096)) == [True, True, True]
    assert os.fstat(slave).st_mode & 0o7777 == 0o600
    os.close(master)
    os.close(slave)


# Descriptors that are sent, and leases


def test_descriptors_that_are_sent_to_the_door_are_not_kept(hostile, until):
    code = (
        DOOR
        + r"""
import array
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)]
gift = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
here, there = socket.socketpair()
here.sendmsg([b"x"], gift)
received = array.array("i", there.recvmsg(1, 4096)[1][0][2])
door = Door()
for number in range(40):
    door.socket.sendmsg([json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"}).encode() + b"\n"], gift)
    door.answer(f"p{number}")
mark("sent", str(len(received)))
wait_for("go")
answer = door.raw("ping")["result"]
"""
    )
    work = hostile.workspace()
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=code.encode())
    until((work / "sent").exists, "the descriptors")
    assert (work / "sent").read_text() == "250", "the control: between its own sockets they arrive"
    opened = os.listdir(f"/proc/{hostile.process.pid}/fd")
    assert len(opened) < 100
    (work / "go").touch()
    assert said(hostile.wait("anna")) == {}


LEASES = r"""
import errno
import fcntl
import signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
answer = {}
for place in (".", os.path.expanduser("~/.cursor")):
    for top, _, names in os.walk(place):
        for name in names:
            try:
                descriptor = os.open(os.path.join(top, name), os.O_RDONLY)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                answer[os.path.join(top, name)] = "held"
            except OSError as problem:
                answer[os.path.join(top, name)] = errno.errorcode[problem.errno]
"""


def test_leases_on_what_the_daemon_reads_are_refused(hostile, tmp_path):
    """A process that opens a file with another's lease on it, such as a reader of chats, waits up to 45 s (fcntl(2))."""
    work = hostile.workspace(git=True)
    (tmp_path / "mine").touch()
    assert outside(f"os.chdir({str(tmp_path)!r})\n{LEASES}")["./mine"] == "held", "the control"
    found = said(hostile.spawn("anna", work, LEASES))
    assert "./.git/HEAD" in found
    assert any(path.endswith("store.db") for path in found)
    assert set(found.values()) <= {"EPERM", "EACCES"}, found
