"""Agents that fill the disk: they can be stopped, are stopped once they take too much, and the others go on."""

import pytest

from tests.system.small_disk import ONLY_ROOT

pytestmark = ONLY_ROOT

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
