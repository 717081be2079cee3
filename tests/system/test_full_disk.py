"""A full disk: what is refused changed nothing, what was accepted is done once, and the daemon lives on.

The state is a small file system of its own in a mount namespace of its own, so nothing is left on the machine.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")

SIZE = 24 * 1024 * 1024  # the daemon keeps 8 MiB of it for stopping turns
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


OFTEN = """
import functools, sys
from substrat.daemon import main
from substrat.daemon.turns.disk_watch import DiskWatch
DiskWatch.__init__ = functools.partialmethod(DiskWatch.__init__, interval=0.1)
sys.exit(main.main(sys.argv[2:]))
"""


class SmallDisk:
    """A daemon whose state directory is a small file system."""

    def __init__(self, daemon):
        self.daemon = daemon
        daemon.state.mkdir()
        options = f"size={SIZE},nr_inodes=300,mode=0700"
        script = f"mount -t tmpfs -o {options} tmpfs '{daemon.state}' && echo ready && exec sleep 100000"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._holder.stdout.readline() != b"ready\n":
            self.close()
            pytest.skip("no file system can be mounted here")
        self.state = Path(f"/proc/{self._holder.pid}/root{daemon.state}")

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()

    def start(self, config="[disk]\nfree = 0\n", *, often=False, **how):
        """Start a daemon that sees the small file system; `often` where it is to look at the disk all the time."""
        script = self.daemon.directory / "often.py"
        script.write_text(OFTEN)
        words = [sys.executable, script] if often else []
        self.daemon.start(config=config, prefix=(*self.prefix, *words), **how)

    @property
    def prefix(self):
        return ("nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt")

    def fill(self, leave=0):
        """Use up all the room but some bytes."""
        with (self.state / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while self.free() > leave:
                        file.write(b"x" * min(size, max(1, self.free() - leave)))
                except OSError:
                    continue

    def free(self):
        found = os.statvfs(self.state)
        return found.f_bavail * found.f_frsize

    def make_room(self):
        (self.state / "ballast").unlink()

    def make_room_in_caches(self):
        for cache in self.state.glob("agents/*/cache"):
            shutil.rmtree(cache)

    def use_up_files(self, leave):
        (self.state / "files").mkdir()
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (self.state / "files" / str(number)).touch()
        for number in range(leave):
            (self.state / "files" / str(number)).unlink()

    def give_back_files(self):
        shutil.rmtree(self.state / "files")

    def count(self, kind):
        with self.daemon.wire() as wire:
            events, cursor = [], 0
            while page := wire.call("events.read", since=cursor)["events"]:
                events += page
                cursor = page[-1]["cursor"]
        return [event for event in events if event["kind"] == kind]


@pytest.fixture
def disk(daemon):
    small = SmallDisk(daemon)
    yield small
    small.close()


# Fills the disk that its cache is on, takes every block that gets free, and obeys no signal but SIGKILL.
HOARDER = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
begin()
mark(f"began-{session}")
wait_for("start")
cache = os.path.expanduser("~/.cache")
os.makedirs(cache, exist_ok=True)
sizes = (1 << 20, 1 << 12)
files = [open(f"{cache}/hoard-{os.getpid()}-{number}", "wb", buffering=0) for number in range(4)]
while True:
    for file in files:
        for size in sizes:
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    if not os.path.exists(f"full-{session}"):
        mark(f"full-{session}")
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


def hoarding(disk, until, *more):
    """Let an agent fill the disk without pause."""
    daemon = disk.daemon
    disk.start(config="[disk]\nfree = 0\n[turns]\nstop_grace = 0.2\n", agent=daemon.program(HOARDER))
    work = daemon.workspace()
    for name in ("anna", *more):
        daemon.ok("spawn", name, "-w", work, "x")
    until(lambda: len(list(work.glob("began-*[!t]"))) == 1 + len(more), "the turns")
    (work / "start").touch()
    until(lambda: list(work.glob("full-*[!t]")), "a full disk")
    return work


@pytest.mark.slow
def test_a_turn_that_fills_the_disk_without_pause_can_be_stopped(disk, until):
    daemon = disk.daemon
    hoarding(disk, until, "bert", "carl", "dora")
    assert daemon.ok("suspend", "--freeze", "dora")["state"] == "suspended"
    for name, verb, state in (("anna", "suspend", "suspended"), ("bert", "interrupt", "idle"), ("carl", "end", "ended")):
        until(lambda: disk.free() < 4096, "a full disk")
        daemon.ok(verb, name)
        agent = daemon.show(name)
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted")
        assert disk.free() < 4096
    assert daemon.ok("end", "dora")["state"] == "ended"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_many_that_fill_the_disk_are_stopped_by_a_daemon_that_found_it_full(disk, until, how):
    daemon = disk.daemon
    hoarding(disk, until, "bert", "carl")
    until(lambda: {agent["state"] for agent in daemon.ok("ls")} == {"running"}, "three turns")
    getattr(daemon, how)()
    disk.fill()
    disk.start(config="[disk]\nfree = 0\n[turns]\nstop_grace = 0.2\n")
    assert {agent["state"] for agent in daemon.ok("ls")} == {"running"}
    daemon.ok("suspend", "anna")
    daemon.ok("end", "bert")
    daemon.ok("end", "carl")
    assert [agent["state"] for agent in daemon.ok("ls")] == ["suspended", "ended", "ended"]
    assert not daemon.sandboxed()
    assert disk.free() < 4096


@pytest.mark.slow
def test_all_are_suspended_by_a_shutdown_on_a_full_disk(disk, until):
    daemon = disk.daemon
    hoarding(disk, until, "bert")
    daemon.ok("shutdown", "--suspend")
    assert daemon.process.wait(20) == 0
    assert not daemon.sandboxed()
    disk.make_room_in_caches()
    disk.start()
    assert {agent["state"] for agent in daemon.ok("ls")} == {"suspended"}


def test_what_changes_nothing_works_on_a_full_disk_and_the_rest_is_refused(disk, until):
    daemon = disk.daemon
    work = hoarding(disk, until)
    for command in (("send", "anna", "more"), ("spawn", "bert", "-w", work, "x"), ("resume", "anna", "more")):
        refused = until(lambda command=command: (done := daemon.ctl(*command)).code and done, "a refusal")
        assert refused.code == 1
        assert "disk is full" in refused.error
    unread = daemon.show("anna")["unread"]  # what was accepted before the last block was gone
    with daemon.wire() as wire:
        answer = wire.answer(wire.ask("agent.send", agent="anna", prompt="more"))
        assert answer["error"]["data"]["type"] == "StorageFailed"
        assert 7 << 20 < wire.call("daemon.status")["reserve"] <= 8 << 20
    assert [agent["name"] for agent in daemon.ok("ls")] == ["anna"]
    assert daemon.show("anna")["unread"] == unread
    assert daemon.ctl("logs", "anna").code == 0
    assert daemon.ctl("wait", "anna", "--timeout", "0.1").code == 124
    daemon.ok("interrupt", "anna")


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


# Writes to its cache when it is told to, as much as its prompt says; says so; and goes on until it is told to end.
WRITER = """
begin()
wait_for("write-" + prompt.strip())
cache = os.path.expanduser("~/.cache")
with open(cache + "/big", "wb", buffering=0) as file:
    for _ in range(int(prompt)):
        try:
            file.write(b"x" * 65536)
        except OSError:
            break
mark("wrote-" + prompt.strip())
wait_for("go")
finish()
"""


@pytest.mark.slow
def test_the_turn_that_fills_the_disk_is_stopped_and_the_quiet_one_goes_on(disk, until):
    daemon = disk.daemon
    disk.start(config="[disk]\nfree = 8000000\n", agent=daemon.program(WRITER))
    work = daemon.workspace()
    daemon.ok("spawn", "quiet", "-w", work, "0")
    daemon.ok("spawn", "writer", "-w", work, "200")
    until(lambda: len(disk.count("system:init")) == 2, "two turns")
    for name in ("write-0", "write-200"):
        (work / name).touch()
    agent = daemon.wait("writer")
    assert agent["state"] == "failed"
    assert "filling the disk" in agent["turn"]["error"]
    (told,) = disk.count("turn:fills-disk")
    assert told["agent"] == agent["id"]
    assert "MiB were left" in told["text"]
    assert daemon.show("quiet")["state"] == "running"
    (work / "go").touch()
    assert daemon.wait("quiet")["turn"]["outcome"] == "success"


def test_an_agents_own_directories_are_bounded(disk, until):
    """Also of a turn that the daemon finds running."""
    daemon, config = disk.daemon, "[disk]\nfree = 0\nagent_home = 4000000\n"
    disk.start(config, often=True, agent=daemon.program(WRITER))
    for name in ("anna", "bert"):
        work = daemon.workspace(name)
        daemon.ok("spawn", name, "-w", work, "80")
        until(lambda name=name: daemon.events(name, "system:init"), "the turn")
        if name == "bert":
            daemon.kill()
        (work / "write-80").touch()
        until((work / "wrote-80").exists, "5 MiB")
        if name == "bert":
            disk.start(config, often=True)
        agent = daemon.wait(name)
        assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
        for word in ("4000000 bytes", "disk.agent_home", "substratctl exec"):
            assert word in agent["turn"]["error"]
        assert len(daemon.events(name, "turn:home-too-big")) == 1


# Takes all blocks there are without writing to a file, and has none that can be seen.
HIDER = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
begin()
path = os.path.expanduser("~/.cache/x")
os.makedirs(os.path.dirname(path), exist_ok=True)
file = os.open(path, os.O_RDWR | os.O_CREAT)
os.unlink(path)
at, size = 0, 1 << 20
while size >= 4096:
    try:
        os.posix_fallocate(file, at, size)
        at += size
    except OSError:
        size //= 2
mark("full")
wait_for("never")
"""


def test_a_file_without_a_name_counts_as_its_agents_own(disk, until):
    daemon = disk.daemon
    config = "[disk]\nfree = 0\nagent_home = 4000000\n[turns]\nstop_grace = 0.2\n"
    disk.start(config, often=True, agent=daemon.program(HIDER))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "x")
    until((work / "full").exists, "a full disk")
    agent = daemon.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert "disk.agent_home" in agent["turn"]["error"]
    assert len(disk.count("turn:home-too-big")) == 1
    assert disk.free() > 4 << 20


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
