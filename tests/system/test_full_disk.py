"""A full disk: what is refused changed nothing, what was accepted is done once, and the daemon lives on.

The state is a small file system of its own in a mount namespace of its own, so nothing is left on the machine.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")

SIZE = 6 * 1024 * 1024
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


class SmallDisk:
    """A house whose state directory is a small file system."""

    def __init__(self, house):
        self.house = house
        house.state.mkdir()
        options = f"size={SIZE},nr_inodes=300,mode=0700"
        script = f"mount -t tmpfs -o {options} tmpfs '{house.state}' && echo ready && exec sleep 100000"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._holder.stdout.readline() != b"ready\n":
            self.close()
            pytest.skip("no file system can be mounted here")
        self.state = Path(f"/proc/{self._holder.pid}/root{house.state}")

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()

    def start(self, config="[disk]\nfree = 0\n", **how):
        """Start a daemon that sees the small file system."""
        self.house.start(config=config, prefix=self.prefix, **how)

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
        with self.house.wire() as wire:
            events, cursor = [], 0
            while page := wire.call("events.read", since=cursor)["events"]:
                events += page
                cursor = page[-1]["cursor"]
        return [event for event in events if event["kind"] == kind]


@pytest.fixture
def disk(house):
    small = SmallDisk(house)
    yield small
    small.close()


def speaking(disk, until):
    """Let an agent say its first line and fill the disk while its turn runs; returns the workspace that holds the turn."""
    house = disk.house
    disk.start(agent=house.program(STEPS))
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, "x")
    say_line(work, until, 0)
    disk.fill(leave=4096)  # enough for the agent's own lines, not for the database's
    return work


def say_line(work, until, number):
    (work / f"step-{number}").touch()
    until((work / f"said-{number}").exists, f"line {number}")


def everything_was_said(disk, lines):
    """Let the turn end: what it printed is what the daemon tells."""
    house = disk.house
    (house.directory / "work" / "go").touch()
    assert house.wait("anna")["turn"]["result"] == f"{lines} lines"
    stdout = next(disk.state.glob("agents/*/turns/1/stdout")).read_bytes()
    assert house.ctl("logs", "anna", "--raw").raw == stdout
    assert stdout.count(b'"line ') == lines


def test_what_is_accepted_on_a_full_disk_is_done_once_when_there_is_room(disk, until):
    house = disk.house
    disk.start()
    work = house.workspace()
    house.spawn("anna", work, "/say before")
    disk.fill()
    accepted = refused = 0
    with house.wire() as wire:
        for number in range(300):
            text = f"/shell echo {number} >> done\n" + "x" * 2000
            answer = wire.answer(wire.ask("agent.send", agent="anna", prompt=text))
            if "error" in answer:
                assert answer["error"]["data"]["type"] == "StorageFailed", answer
                refused += 1
            else:
                accepted += 1
    assert refused, "the disk was full"
    assert house.daemon.poll() is None
    assert house.ok("ls")[0]["name"] == "anna"
    disk.make_room()
    until(lambda: house.show("anna")["unread"] == 0 and house.show("anna")["state"] == "idle", "the work", patience=60)
    done = (work / "done").read_text().split() if accepted else []
    assert len(done) == len(set(done)) == accepted
    assert house.spawn("bert", work, "/say after")["turn"]["outcome"] == "success"


def test_a_running_turns_events_are_complete_after_a_full_disk(disk, until):
    house, work = disk.house, speaking(disk, until)
    for number in range(1, 10):
        say_line(work, until, number)
    until(lambda: "waiting to write the state" in house.log, "the daemon's notice")
    disk.make_room()
    everything_was_said(disk, 10)
    assert len(disk.count("turn:ended")) == 1


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
def test_turns_that_find_no_room_for_their_files_wait_for_it(disk, until, left):
    """The database still has room, so the work is accepted, and not one more file can be made."""
    house = disk.house
    disk.start()
    work = house.workspace()
    house.spawn("anna", work, "/say before")
    disk.use_up_files(left)
    house.ok("send", "anna", "/shell echo once >> done")
    until(lambda: disk.count("turn:retry"), "a try")
    agent = house.show("anna")
    assert (agent["state"], agent["unread"]) == ("queued", 1)
    assert "No space left" in agent["turn"]["error"]
    disk.give_back_files()
    until((work / "done").exists, "the work", patience=60)
    assert house.wait("anna")["turn"]["outcome"] == "success"
    assert (work / "done").read_text() == "once\n"


def test_with_a_watermark_turns_wait_before_the_disk_is_full(disk, until):
    house = disk.house
    disk.start(config="[disk]\nfree = 1000000\n")
    work = house.workspace()
    house.spawn("anna", work, "/say before")
    disk.fill(leave=900_000)
    house.ok("send", "anna", "/shell echo once >> done")
    assert house.show("anna")["state"] == "queued"
    (told,) = disk.count("turn:waiting")
    assert "disk.free" in told["text"]
    disk.make_room()
    until((work / "done").exists, "the start")  # nobody tells the daemon: it looks by itself
    assert house.wait("anna")["turn"]["outcome"] == "success"
    assert (work / "done").read_text() == "once\n"
    assert disk.count("turn:waiting") == [told]


def test_a_daemon_killed_on_a_full_disk_comes_back_with_everything(disk, until):
    house, work = disk.house, speaking(disk, until)
    say_line(work, until, 1)
    house.kill()
    say_line(work, until, 2)
    disk.fill()
    disk.start()
    assert house.show("anna")["state"] == "running"
    disk.make_room()
    everything_was_said(disk, 3)


def test_a_daemon_that_finds_no_room_to_begin_says_so_and_loses_nothing(disk, until):
    house = disk.house
    disk.start()
    work = house.workspace()
    house.spawn("anna", work, "/say before")
    house.stop()
    disk.fill()
    process = house.launch(prefix=disk.prefix)

    def ended_or_answers():
        return process.poll() is not None or house.socket.exists()

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
    assert house.show("anna")["turn"]["result"] == "before"
