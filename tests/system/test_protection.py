"""A person's ordinary git beside a running agent: files stay protected, and a change by a faster agent is reported."""

import contextlib
import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.system.obedient import OBEDIENT, Agent, prepare

# Tries without a pause to put a program into git's configuration, and keeps each descriptor that it got.
GREEDY = """
begin()
evil = "\\n[core]\\n\\tfsmonitor = touch " + os.path.join(os.getcwd(), "stolen") + "; false\\n"
mark("ready")
kept = []
while not os.path.exists("enough"):
    for path in sys.argv[0] and json.loads(prompt):
        try:
            kept.append(open(path, "a"))
        except OSError:
            continue
        kept[-1].write(evil if path.endswith("config") else "touch stolen\\n")
        kept[-1].flush()
finish()
"""


# Writes through a mapping, which inotify doesn't tell, to a file that a person's git has just renamed into its place.
MAPPING = """
import mmap
begin()
kept = []
mark("ready")
while True:
    try:
        opened = os.open(".git/config", os.O_RDWR)
    except OSError:
        continue
    size = os.fstat(opened).st_size
    evil = b"[core]\\n\\tfsmonitor = touch stolen; false\\n"
    kept.append(mmap.mmap(opened, size))
    kept[-1][:] = (evil + b"#" * size)[:size]
    while os.path.exists(".git/config") and os.path.samestat(os.stat(".git/config"), os.fstat(opened)):
        pass
"""


# Adds to git's own new file before git renames it, and keeps it open, so that no change of `config` is told.
LOCK = """
begin()
evil = b"\\n#" + b"x" * 3000 + b"\\n[core]\\n\\tfsmonitor = touch stolen; false\\n"
mark("ready")
kept = {}
while True:
    try:
        opened = os.open(".git/config.lock", os.O_WRONLY)
    except OSError:
        continue
    os.pwrite(opened, evil, 600)
    kept[opened] = None
    while os.path.exists(".git/config.lock"):
        pass
"""


# Makes a file `.git`, which leads git to a repository of the agent's, as soon as there is none.
LEADING = """
begin()
subprocess.run(["git", "init", "-q", "evil"])
with open("evil/.git/config", "a") as file:
    file.write("[core]\\n\\tfsmonitor = touch stolen; false\\n")
mark("ready")
while True:
    try:
        opened = os.open(".git", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        continue
    os.write(opened, b"gitdir: evil/.git\\n")
    os.close(opened)
    wait_for("never")
"""


# Makes a directory that holds a protected name as soon as there is none.
REMAKING = """
begin()
mark("ready")
while os.path.exists("a"):
    pass
os.makedirs("a/pkg")
with open("a/pkg/.envrc", "w") as file:
    file.write("touch stolen\\n")
wait_for("never")
"""


ORDINARY: dict[str, list[tuple[str, ...]]] = {
    "config": [("config", "user.name", "Somebody")],
    "remote add": [("remote", "add", "other", "https://example.invalid/x.git")],
    "push -u": [("push", "-q", "-u", "origin", "main")],
    "checkout -b": [("checkout", "-q", "-b", "x", "origin/elsewhere")],
    "branch -m": [("branch", "-m", "main", "trunk")],
    "sparse-checkout": [("sparse-checkout", "set", "docs"), ("sparse-checkout", "disable")],
    "lfs": [
        ("config", "--local", f"filter.lfs.{key}", value)
        for key, value in {"clean": "git-lfs clean -- %f", "process": "git-lfs filter-process", "required": "true"}.items()
    ],
    "tools": [("config", "core.fsmonitor", "true"), ("config", "gpg.format", "ssh"), ("config", "merge.tool", "vimdiff")],
    "several": [("config", "user.name", "A"), ("config", "user.email", "b@c"), ("remote", "add", "r", "/x"), ("gc", "-q")],
}


def is_protected(agent, path):
    """Whether a file's newest version is mounted read-only where the agent's turn finds it."""
    inside = [Path(f"/proc/{pid}/root") / (agent.work / path).relative_to("/") for pid in agent.house.sandboxed()]
    with contextlib.suppress(OSError):
        return any(place.samefile(agent.work / path) and os.statvfs(place).f_flag & os.ST_RDONLY for place in inside)
    return False


def test_ordinary_git_on_the_host_leaves_the_configuration_protected(agent):
    agent.start()
    # A control: protected now, and the directory beside it writable.
    assert agent.tries((".git/config", "x"), (".git/description", "x")) == ["OSError Read-only file system", "written"]
    for name, commands in ORDINARY.items():
        told = len(agent.told("workspace:protected-again"))
        for command in commands:
            agent.git(*command)
        wait_until(lambda: is_protected(agent, ".git/config"), f"the protection of the file after {name}")
        assert any(".git/config" in text for text in agent.wait_told("workspace:protected-again", told + 1)[told:]), name
        config = (agent.work / ".git/config").read_bytes()
        assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"], name
        assert (agent.work / ".git/config").read_bytes() == config, name
        assert agent.house.show("agent")["state"] == "running", name
        assert agent.attention["kind"] == "working", name
    agent.git("status")
    agent.finish()
    assert agent.told("workspace:unprotected") == []
    assert agent.attention["kind"] == "idle"


@pytest.mark.slow
def test_a_script_that_replaces_the_configuration_in_a_loop_ends_no_turn_and_leaves_no_other_unprotected(agent):
    """Faster than a look takes, and for longer than a few looks; another workspace changes meanwhile."""
    house = agent.house
    other = house.workspace("other", git=True)
    house.ok("spawn", "other", "-w", other, "go")
    wait_until((other / "ready").exists, "the start of the other turn")
    agent.start()
    loop = 'i=0; while [ ! -e ../enough ]; do i=$((i+1)); git config user.name "N$i"; done'
    script = subprocess.Popen(["sh", "-c", loop], cwd=agent.work, env=house.environment())
    try:
        wait_until(lambda: house.log.count("not protected yet") >= 8, "many looks that came too early")
        house.git(other, "config", "user.name", "Other")
        patient = Agent(house, "other")
        patient.work = other
        wait_until(
            lambda: patient.tries((".git/config", "x")) == ["OSError Read-only file system"], "the protection beside it"
        )
    finally:
        (house.directory / "enough").touch()
        script.wait()
    assert "Read-only" in wait_until(lambda: agent.tries((".git/config", "x")), "an answer")[0]
    assert any(".git/config" in text for text in agent.told("workspace:protected-again"))
    agent.finish()
    assert agent.told("workspace:touched") == patient.told("workspace:touched") == []


def test_a_checkout_of_protected_files_leaves_them_there_and_protected(agent):
    agent.start()
    agent.git("checkout", "-q", "tooled")
    agent.wait_told("workspace:protected-again")
    wait_until(lambda: agent.tries((".envrc", "x")) == ["OSError Read-only file system"], "the protection of .envrc")
    assert agent.tries((".vscode/settings.json", "x")) == ["OSError Read-only file system"]
    assert (agent.work / ".envrc").read_text() == "export A=1\n"
    assert agent.git("status", "--porcelain", "--untracked-files=no") == ""
    assert agent.house.show("agent")["state"] == "running"
    # And back again.
    agent.git("checkout", "-q", "main")
    agent.wait_told("workspace:protected-again", 2)
    assert "written" not in agent.tries((".envrc", "x"), (".vscode/tasks.json", "x"))


def prepare_nested(house):
    """Make a repository with protected names further down, and a branch without them."""
    work = prepare(house)
    (work / "a" / "pkg" / ".vscode").mkdir(parents=True)
    (work / "a" / "pkg" / ".vscode" / "tasks.json").write_text("{}\n")
    (work / "a" / "pkg" / ".envrc").write_text("export A=1\n")
    house.git(work, "checkout", "-q", "-b", "nested")
    house.git(work, "add", "-f", ".")
    house.git(work, "commit", "-q", "-m", "nested")
    return work


FURTHER_DOWN = (("a/pkg/.envrc", "x"), ("a/pkg/.vscode/tasks.json", "x"))


def test_a_checkout_of_nested_protected_files_away_and_back_leaves_them_protected(house):
    prepare_nested(house)
    house.start(agent=house.program(OBEDIENT))
    nested = Agent(house).start()
    assert "written" not in nested.tries(*FURTHER_DOWN)
    nested.git("checkout", "-q", "main")
    assert not (nested.work / "a" / "pkg" / ".vscode" / "tasks.json").exists()
    time.sleep(0.3)
    nested.git("checkout", "-q", "nested")
    nested.wait_told("workspace:protected-again")
    wait_until(lambda: nested.tries(FURTHER_DOWN[0]) == ["OSError Read-only file system"], "the protection of .envrc")
    assert "written" not in nested.tries(*FURTHER_DOWN)
    assert (nested.work / "a" / "pkg" / ".envrc").read_text() == "export A=1\n"
    assert nested.house.show("agent")["state"] == "running"


def test_what_an_agent_makes_where_a_nested_directory_was_ends_its_turn(house):
    work = prepare_nested(house)
    house.start(agent=house.program(REMAKING))
    agent = Agent(house).start()
    os.rename(work / "a", house.directory / "a")
    house.wait("agent", "failed")
    assert agent.attention["kind"] == "unsafe"
    wait_until(lambda: (work / "a/pkg/.envrc").read_text() == "export A=1\n", "the copy that was kept")


def test_what_holds_a_nested_protected_file_cannot_be_renamed(house):
    work = house.workspace("work", git=True)
    (work / "a" / "pkg").mkdir(parents=True)
    (work / "a" / "pkg" / ".envrc").write_text("export A=1\n")
    house.start()
    house.spawn(
        "agent",
        work,
        '/shell python3 -c \'import os; os.rename("a/pkg", "b")\'; python3 -c \'import os; os.rename("a", "b")\'; true',
    )
    assert (work / "a" / "pkg" / ".envrc").read_text() == "export A=1\n"
    assert not (work / "b").exists()


def test_a_placeholder_that_is_removed_is_put_back(agent):
    agent.start()
    os.rmdir(agent.work / ".envrc")
    agent.wait_told("workspace:protected-again")
    assert agent.tries((".envrc", "x")) == ["IsADirectoryError Is a directory"]
    assert agent.tries((".envrc/x", "x")) == ["OSError Read-only file system"]


@pytest.mark.parametrize("path", [".git/config", ".envrc"])
def test_an_agent_that_is_faster_is_stopped_and_the_file_is_put_back(house, path):
    work = prepare(house)
    house.git(work, "checkout", "-q", "tooled")
    house.start(agent=house.program(GREEDY))
    agent = Agent(house).start(json.dumps([str(work / path)]))
    before = (work / path).read_bytes()
    deadline = time.monotonic() + 15
    # Somebody who makes room for it again and again, with pauses in which the agent can come in between.
    while house.show("agent")["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
        (work / "new").write_bytes(before)
        os.replace(work / "new", work / path)
    house.wait("agent", "failed")
    wait_until(lambda: (work / path).read_bytes() == before, "the copy that was kept")
    assert agent.attention["kind"] == "unsafe"
    assert agent.attention["level"] == "urgent"
    assert path in agent.told("workspace:touched")[0]
    finding = house.show("agent")["findings"][0]
    assert "stolen" in finding["difference"]
    # What is there may be the person's last file already, because this one goes on without a pause.
    assert Path(finding["aside"]).exists()
    house.git(work, "status")
    house.git(work, "add", "README.md")
    assert not (work / "stolen").exists()
    assert "stolen" in house.ctl("show", "agent").out
    # It stays until a person has accepted it, after a restart too.
    house.kill()
    house.start(agent=house.directory / "program-agent" / "agent")
    assert agent.attention["kind"] == "unsafe"
    assert house.ctl("accept", "agent", str(finding["number"] + 100)).code == 4
    # The person's last file may have come after the look at the turn's end: such a finding is refused once, and found anew.
    wait_until(lambda: house.ctl("accept", "agent").code == 0, "the findings are accepted")
    assert agent.attention["kind"] == "idle"
    assert house.ctl("accept", "agent").code == 1
    assert agent.told("workspace:accepted")


def looked_at_or_ended(house, number):
    """Say whether so many changes were looked at; the one that is judged to be the agent's ends the turn, and the looks."""
    kinds = [event["kind"] for event in house.events("agent")]
    return "turn:ended" in kinds or kinds.count("workspace:protected-again") >= number


@pytest.mark.parametrize("source", [MAPPING, LOCK], ids=["mapping", "lock file"])
def test_what_an_agent_adds_without_a_change_that_is_told_is_found(house, source):
    work = prepare(house)
    for number in range(12):
        house.git(work, "config", f"branch.b{number}.description", "x" * 60)
    house.start(agent=house.program(source))
    agent = Agent(house).start()
    deadline = time.monotonic() + 15
    number = 0
    while house.show("agent")["state"] == "running":
        assert time.monotonic() < deadline
        agent.git("config", "user.name", f"Somebody {number}")
        number += 1
        wait_until(partial(looked_at_or_ended, house, number), "the look")
    assert house.wait("agent", "failed")["turn"]["outcome"] == "error"
    wait_until(lambda: b"fsmonitor" not in (work / ".git/config").read_bytes(), "the copy that was kept")
    assert agent.attention["kind"] == "unsafe"
    assert "stolen" in house.show("agent")["findings"][0]["difference"]


def test_a_repository_that_is_removed_is_not_replaced_by_a_file_that_leads_elsewhere(house):
    work = prepare(house)
    house.start(agent=house.program(LEADING))
    agent = Agent(house).start()
    # In one instant; a person's `rm -rf` takes longer, while placeholders are put back.
    os.rename(work / ".git", house.directory / "old")
    house.wait("agent", "failed")
    wait_until(lambda: not (work / ".git").exists(), "the agent's file to be moved aside")
    assert agent.attention["kind"] == "unsafe"


def test_what_happens_while_no_daemon_looks_is_found_by_the_next(agent):
    agent.start()
    before = (agent.work / ".git/config").read_bytes()
    agent.house.kill()
    agent.git("config", "user.name", "Somebody")
    assert agent.tries((".git/config", "[core]\n\tfsmonitor = touch stolen\n")) == ["written"]
    agent.house.start(agent=agent.house.agent)
    agent.house.wait("agent", "failed")
    wait_until(lambda: (agent.work / ".git/config").read_bytes() == before, "the copy that was kept")
    assert agent.attention["kind"] == "unsafe"


def test_an_adopted_turn_is_protected_again(agent):
    agent.start()
    agent.house.kill()
    agent.git("config", "user.name", "Somebody")
    agent.house.start(agent=agent.house.agent)
    agent.wait_told("workspace:protected-again")
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
    agent.git("config", "user.name", "Somebody else")
    agent.wait_told("workspace:protected-again", 2)
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
    assert agent.house.show("agent")["state"] == "running"


def test_a_turn_is_protected_again_when_it_is_frozen_which_it_stays_and_resumed(agent):
    agent.start()
    agent.house.ok("suspend", "agent")
    for name in ("ready", "go-1"):
        (agent.work / name).unlink(missing_ok=True)
    agent.house.ok("resume", "agent")
    wait_until((agent.work / "ready").exists, "the start of the turn")
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
    agent.house.ok("suspend", "agent", "--freeze")
    agent.git("config", "user.name", "Somebody else")
    agent.wait_told("workspace:protected-again", 2)
    assert agent.house.show("agent")["state"] == "suspended"
    stopped = [
        pid for pid in agent.house.sandboxed() if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    ]
    assert stopped
    agent.house.ok("resume", "agent")
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]


def test_a_command_of_exec_is_protected_again(agent):
    agent.house.ok("spawn", "agent", "-w", agent.work)
    script = (
        "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo x >> .git/config; echo $? > first; "
        "while [ ! -e more ]; do sleep 0.02; done"
    )
    command = agent.house.follow("exec", "agent", "--", "sh", "-c", script)
    wait_until((agent.work / "ready").exists, "the command")
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
    (agent.work / "go").touch()
    wait_until((agent.work / "first").exists, "the command's try")
    assert (agent.work / "first").read_text().strip() != "0"
    (agent.work / "more").touch()
    assert command.wait(20) == 0
    assert agent.attention["kind"] == "idle"


def over_or_looked_at(command, agent, times):
    return command.poll() is not None or len(agent.told("workspace:protected-again")) >= times


def test_a_command_of_exec_that_was_faster_is_ended(agent):
    agent.house.ok("spawn", "agent", "-w", agent.work)
    before = (agent.work / ".git/config").read_bytes()
    script = "touch ready; while :; do echo '[core] fsmonitor=x' >> .git/config; done 2>/dev/null"
    command = agent.house.follow("exec", "agent", "--", "sh", "-c", script)
    wait_until((agent.work / "ready").exists, "the command")
    told = 0
    while command.poll() is None:
        (agent.work / "new").write_bytes(before)
        os.replace(agent.work / "new", agent.work / ".git/config")
        # Each time the command has the same few milliseconds, until it is stopped for the look.
        told += 1
        wait_until(partial(over_or_looked_at, command, agent, told), "a look")
    assert command.returncode == 1
    assert b"the command was stopped" in command.stderr.read()
    wait_until(lambda: (agent.work / ".git/config").read_bytes() == before, "the copy that was kept")
    assert agent.attention["kind"] == "unsafe"


def test_agents_that_share_a_workspace_are_protected_again_together(agent):
    second = Agent(agent.house, "second")
    agent.start()
    (agent.work / "ready").unlink()
    second.start()
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
    second.wait_told("workspace:protected-again")
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
    # Both read the same orders; neither may have written.
    assert (agent.work / ".git/config").read_bytes()[-1:] != b"x"


def test_a_daemon_killed_while_it_holds_a_sandbox_is_followed_by_one_that_lets_it_go(house):
    prepare(house)
    program = house.program(OBEDIENT)
    for number, point in enumerate(("after: sandbox held", "before: protected again", "after: protected again")):
        house.start(agent=program, environment={"SUBSTRAT_KILL_AT": point})
        agent = Agent(house, f"agent-{number}")
        for left in [*agent.work.glob("go-*"), *agent.work.glob("result-*"), agent.work / "ready"]:
            left.unlink(missing_ok=True)
        agent.start()
        agent.git("config", "user.name", point)
        assert house.daemon.wait(20) == -signal.SIGKILL
        house.start(agent=program)
        agent.wait_told("workspace:protected-again")
        assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
        assert house.ctl("end", agent.name).code == 0
        house.stop()


# Makes changes of and beside protected names without a pause: of a mode, of a name that is protected elsewhere.
FLOOD = """
begin()
mark("ready")
number = 0
while not os.path.exists("enough"):
    for name in (".git/.envrc", ".git/info/config"):
        os.close(os.open(name, os.O_CREAT))
        os.unlink(name)
    for _ in range(50):
        os.chmod(".git", 0o755 - 0o55 * (number & 1))
        os.chmod(".git/info", 0o755 - 0o55 * (number & 1))
        number += 1
mark("made", str(number))
finish()
"""


def test_a_flood_of_changes_delays_neither_answers_nor_the_look_at_a_real_one(house):
    work = prepare(house)
    for number in range(150):
        (work / f"d{number}").mkdir()
        (work / f"d{number}" / ".envrc").touch()
    house.start(agent=house.program(FLOOD))
    agent = Agent(house).start()

    with house.wire() as wire:
        for _ in range(50):
            wire.call("daemon.status")
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
    assert house.show("agent")["state"] == "running", "the flood goes on meanwhile"
    (work / "enough").touch()
    assert house.wait("agent")["turn"]["outcome"] == "success"
