"""A person's ordinary git beside a running agent: files stay protected, and a change by a faster agent is reported."""

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

# Obeys files called go-1, go-2 …: tries to append to each path, and reports the result.
OBEDIENT = """
begin()
mark("ready")
number = 0
while True:
    number += 1
    wait_for(f"go-{number}")
    orders = json.loads(pathlib.Path(f"go-{number}").read_text())
    if not orders:
        break
    results = []
    for path, text in orders:
        try:
            with open(path, "a") as file:
                file.write(text)
            results.append("written")
        except OSError as problem:
            results.append(type(problem).__name__ + " " + os.strerror(problem.errno))
    mark(f"result-{number}", json.dumps(results))
finish()
"""

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


class Agent:
    """An agent whose turn runs in a git workspace with a remote."""

    def __init__(self, house, name="agent", *, options=()):
        self.house = house
        self.name = name
        self.work = house.directory / "work"
        self.options = options
        self._number = 0

    def start(self, prompt="go"):
        self.house.ok("spawn", self.name, "-w", self.work, *self.options, prompt)
        wait_until((self.work / "ready").exists, "the start of the turn")
        return self

    def git(self, *arguments):
        return self.house.git(self.work, *arguments)

    def tries(self, *orders):
        """Let the agent append to paths, and return each result."""
        self._number += 1
        done = self.work / f"result-{self._number}"
        order = self.work / f"go-{self._number}"
        order.with_suffix(".part").write_text(json.dumps([(str(self.work / path), text) for path, text in orders]))
        order.with_suffix(".part").rename(order)
        wait_until(done.exists, "the agent's answer")
        return json.loads(done.read_text())

    def finish(self):
        """Let the agent come to its end."""
        self._number += 1
        order = self.work / f"go-{self._number}"
        order.with_suffix(".part").write_text("[]")
        order.with_suffix(".part").rename(order)
        assert self.house.wait(self.name)["turn"]["outcome"] == "success"

    def told(self, kind):
        return [event["text"] for event in self.house.events(self.name, kind)]

    def wait_told(self, kind, count=1):
        wait_until(lambda: len(self.told(kind)) >= count, f"{count} times {kind}")
        return self.told(kind)

    @property
    def attention(self):
        return self.house.show(self.name)["attention"]


def prepare(house):
    """Make a repository with a remote and a branch that has files which the host would run."""
    house.workspace("origin", git=True)
    work = house.directory / "work"
    house.git(house.directory, "clone", "-q", house.directory / "origin", work)
    house.git(house.directory / "origin", "config", "receive.denyCurrentBranch", "ignore")
    house.git(house.directory / "origin", "branch", "elsewhere")
    house.git(work, "fetch", "-q")
    house.git(work, "checkout", "-q", "-b", "tooled")
    (work / ".envrc").write_text("export A=1\n")
    (work / ".vscode").mkdir()
    (work / ".vscode" / "settings.json").write_text("{}\n")
    house.git(work, "add", "-f", ".")
    house.git(work, "commit", "-q", "-m", "tools")
    house.git(work, "checkout", "-q", "main")
    return work


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


@pytest.fixture
def agent(house):
    prepare(house)
    house.start(agent=house.program(OBEDIENT))
    return Agent(house)


ORDINARY = {
    "config": [("config", "user.name", "Somebody")],
    "remote add": [("remote", "add", "other", "https://example.invalid/x.git")],
    "checkout -b": [("checkout", "-q", "-b", "x", "origin/elsewhere")],
    "push -u": [("push", "-q", "-u", "origin", "main")],
    "branch -m": [("branch", "-m", "main", "trunk")],
    "several": [("config", "user.name", "A"), ("config", "user.email", "b@c"), ("remote", "add", "r", "/x"), ("gc", "-q")],
}


@pytest.mark.parametrize("commands", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_git_on_the_host_leaves_the_configuration_protected(agent, commands):
    agent.start()
    # A control: protected now, and the directory beside it writable.
    assert agent.tries((".git/config", "x"), (".git/description", "x")) == ["OSError Read-only file system", "written"]
    for command in commands:
        agent.git(*command)
    wait_until(
        lambda: any(".git/config" in text for text in agent.told("workspace:protected-again")), "the protection of the file"
    )
    config = (agent.work / ".git/config").read_bytes()
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]
    assert (agent.work / ".git/config").read_bytes() == config
    assert agent.house.show("agent")["state"] == "running"
    assert agent.attention["kind"] == "working"
    agent.git("status")
    agent.finish()
    assert agent.told("workspace:unprotected") == []
    assert agent.attention["kind"] == "idle"


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
    # Somebody who makes room for it again and again: once the agent is in between.
    while house.show("agent")["state"] == "running":
        assert time.monotonic() < deadline
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
    accepted = house.ok("accept", "agent")
    assert accepted["attention"]["kind"] == "idle"
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


def test_a_resumed_turn_is_protected_again(agent):
    agent.start()
    agent.house.ok("suspend", "agent")
    for name in ("ready", "go-1"):
        (agent.work / name).unlink(missing_ok=True)
    agent.house.ok("resume", "agent")
    wait_until((agent.work / "ready").exists, "the start of the turn")
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
    assert agent.tries((".git/config", "x")) == ["OSError Read-only file system"]


def test_a_frozen_turn_is_protected_again_and_stays_frozen(agent):
    agent.start()
    agent.house.ok("suspend", "agent", "--freeze")
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("workspace:protected-again")
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


NAMED = {
    "hooks": (("config", "core.hooksPath", "tools/hooks"), "tools/hooks/pre-commit"),
    "include": (("config", "include.path", "../team.gitconfig"), "team.gitconfig"),
    "fsmonitor": (("config", "core.fsmonitor", "tools/monitor"), "tools/monitor"),
    "filter": (("config", "filter.x.clean", "sh tools/clean %f"), "tools/clean"),
    "textconv": (("config", "diff.x.textconv", "tools/convert"), "tools/convert"),
    "alias": (("config", "alias.hello", "!sh tools/hello"), "tools/hello"),
}


@pytest.mark.parametrize(("setting", "path"), NAMED.values(), ids=NAMED)
def test_what_gits_configuration_runs_in_the_workspace_is_protected(agent, setting, path):
    (agent.work / path).parent.mkdir(parents=True, exist_ok=True)
    (agent.work / path).write_text("# ours\n")
    agent.git(*setting)
    agent.start()
    assert agent.tries((path, "x"), ("tools-2", "x")) == ["OSError Read-only file system", "written"]
    with pytest.raises(OSError, match="Read-only"):
        raise OSError(agent.tries((path + ".new", "x") if "hooks" in path else (path, "x"))[0])
    assert (agent.work / path).read_text() == "# ours\n"


def test_hooks_that_are_named_and_not_there_cannot_be_made(agent):
    agent.git("config", "core.hooksPath", ".githooks")
    agent.start()
    assert "written" not in agent.tries((".githooks/pre-commit", "x"))


def test_a_program_that_cannot_be_told_from_a_setting_asks_for_attention_until_it_is_accepted(agent):
    agent.git("config", "alias.fmt", "!make fmt")
    agent.start()
    assert agent.attention["kind"] == "unsafe"
    assert "alias.fmt" in agent.attention["text"]
    agent.house.ok("accept", "agent")
    assert agent.attention["kind"] == "working"
    agent.house.ok("interrupt", "agent")
    assert agent.attention["kind"] == "idle"


def test_no_other_worktrees_configuration_can_be_made(agent):
    """Git on the host obeys it in worktrees that lie outside of the workspace too."""
    agent.git("config", "extensions.worktreeConfig", "true")
    agent.git("worktree", "add", "-q", agent.house.directory / "elsewhere", "-b", "else")
    agent.start()
    found = agent.tries((".git/worktrees/elsewhere/config.worktree", "[core]\n\tfsmonitor = touch stolen\n"))
    assert "written" not in found
    agent.house.git(agent.house.directory / "elsewhere", "status")


def test_a_repository_that_an_agent_makes_stays_in_the_attention(house):
    """The outer `git status` obeys its configuration once it is in the index."""
    work = house.workspace("work", git=True)
    house.start()
    script = "git init -q sub; cd sub; git -c user.name=a -c user.email=b commit -q --allow-empty -m x; cd ..; git add sub"
    house.spawn("agent", work, f"/shell {script}")
    shown = house.show("agent")
    assert shown["attention"]["kind"] == "unsafe"
    assert shown["findings"][0]["path"] == str(work / "sub/.git")
    assert len(house.events("agent", "workspace:unprotected")) == 1
    house.ok("send", "agent", "/say more", "--wait")
    assert len(house.events("agent", "workspace:unprotected")) == 2
    house.ok("accept", "agent")
    house.ok("send", "agent", "/say more", "--wait")
    assert len(house.events("agent", "workspace:unprotected")) == 2
    assert house.show("agent")["attention"]["kind"] == "idle"


def test_what_has_a_name_in_no_encoding_is_told_and_keeps_no_turn_running(house):
    work = house.workspace("work", git=True)
    house.start()
    script = "d=$(printf 'bad\\377'); mkdir $d; touch $d/.envrc; git init -q $d/sub; git init -q $d"
    house.spawn("agent", work, f"/shell {script}")
    assert [path for path in os.listdir(os.fsencode(work)) if path.startswith(b"bad")] == [b"bad\xff"]
    first = house.show("agent")
    assert first["attention"]["kind"] == "unsafe"
    assert any("bad?/.envrc" in finding["path"] for finding in first["findings"])
    house.kill()
    house.start()
    house.ok("send", "agent", "/say more", "--wait")
    assert house.show("agent")["turn"]["outcome"] == "success"
    (told,) = (
        event["text"] for event in house.events("agent", "workspace:unprotected") if "can't be looked at" in event["text"]
    )
    assert "bad?/.git" in told


# What an agent makes so that the outer `git status` runs a program by a repository that isn't walked into.
NESTED = "git init -q {0} && git -C {0} -c user.name=a -c user.email=b commit -q --allow-empty -m x && git add -f {0}"
EVIL = "printf '[core]\\n\\tfsmonitor = touch %s/stolen; false\\n' $PWD"
HIDDEN = {
    "not entered": f"{NESTED.format('node_modules/p')} && {EVIL} >> node_modules/p/.git/config",
    "behind a link": f"{NESTED.format('sub')} && mkdir node_modules && mv sub/.git node_modules/x && "
    f"ln -s ../node_modules/x sub/.git && {EVIL} >> node_modules/x/config",
    "in parts behind a link": f"{NESTED.format('sub')} && mkdir s && mv sub/.git s/own && mkdir s/all && "
    f"mv s/own/objects s/own/refs s/own/config s/all && echo ../all > s/own/commondir && ln -s ../s/own sub/.git && "
    f"{EVIL} >> s/all/config",
}


@pytest.mark.parametrize("script", HIDDEN.values(), ids=HIDDEN)
def test_a_repository_that_an_agent_hides_is_found_and_read_only_in_the_next_turn(house, script):
    work = house.workspace("work", git=True)
    house.start()
    house.spawn("agent", work, f"/shell {script}")
    house.git(work, "status")
    assert (work / "stolen").exists(), "a control: git runs it"
    shown = house.show("agent")
    assert shown["attention"]["kind"] == "unsafe"
    (config,) = [path for path in work.glob("*/**/config") if "stolen" in path.read_text()]
    assert any(str(config).startswith(finding["path"]) for finding in shown["findings"])
    house.ok("accept", "agent")
    before = config.read_text()
    house.ok("send", "agent", f"/shell echo more >> {config}; true", "--wait")
    assert config.read_text() == before
    assert not any("made or replaced" in finding["text"] for finding in house.show("agent").get("findings", []))


@pytest.mark.parametrize("name", ["modules", "worktrees", "info"])
def test_an_odd_file_in_a_nested_repository_ends_no_later_turn(house, name):
    work = house.workspace("work", git=True)
    house.start()
    house.spawn("agent", work, f"/shell mkdir -p sub/.git && mkfifo sub/.git/{name}")
    house.ok("send", "agent", "/say still here", "--wait")
    assert house.show("agent")["turn"]["outcome"] == "success"


REBASE = """
begin()
with open(".git/rebase-merge/git-rebase-todo", "a") as todo:
    todo.write(prompt + "\\n")
finish()
"""


def test_what_an_agent_adds_to_a_rebase_under_way_is_found(house):
    """`git rebase --continue` runs the `exec` lines of a file that the agent may write, to go on with its own rebases."""
    work = house.workspace("work", git=True)
    for number in range(3):
        house.git(work, "commit", "-q", "--allow-empty", "-m", f"{number}")
    edit = ("-c", "sequence.editor=sed -i s/^pick/edit/", "-c", "core.editor=true")
    house.git(work, *edit, "rebase", "-q", "-i", "HEAD~2")
    house.start(agent=house.program(REBASE))
    house.ok("spawn", "agent", "-w", work, "--wait", "# nothing that runs")
    assert house.show("agent")["attention"]["kind"] == "idle"
    house.ok("send", "agent", "exec touch stolen", "--wait")
    shown = house.show("agent")
    assert shown["attention"]["kind"] == "unsafe"
    (finding,) = shown["findings"]
    assert finding["path"] == str(work / ".git/rebase-merge/git-rebase-todo")
    assert "would run `exec touch stolen`" in finding["text"]
    house.ok("accept", "agent")
    house.ok("send", "agent", "# nothing more", "--wait")
    assert house.show("agent")["attention"]["kind"] == "idle"


def test_a_repository_that_a_command_of_exec_makes_is_found_too(house):
    work = house.workspace("work", git=True)
    house.start()
    house.ok("spawn", "agent", "-w", work)
    assert house.ctl("exec", "agent", "--", "git", "init", "-q", "sub").code == 0
    assert house.show("agent")["attention"]["kind"] == "unsafe"


@pytest.mark.slow
def test_many_worktrees_and_repositories_hold_nobody_up(house):
    """Thousands of them made a daemon deaf; now their number is bounded, and it is said that there are more."""
    work = house.workspace("work", git=True)
    house.start()
    script = "for i in $(seq 1500); do mkdir -p sub/r$i/.git/objects sub/r$i/.git/refs; : > sub/r$i/.git/HEAD; done"
    house.spawn("agent", work, f"/shell {script}")
    house.ok("send", "agent", "/say still here", "--wait")
    assert any("too much" in event["text"] for event in house.events("agent", "workspace:unprotected"))
    assert house.show("agent")["attention"]["kind"] == "unsafe"
    assert len(house.show("agent")["findings"]) <= 50


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


def timed(do):
    began = time.monotonic()
    do()
    return time.monotonic() - began


def computed(pid):
    """Seconds of a processor's time that a process has had (proc(5), stat: utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_flood_of_changes_costs_little_and_delays_neither_answers_nor_the_look_at_a_real_one(house):
    work = prepare(house)
    for number in range(150):
        (work / f"d{number}").mkdir()
        (work / f"d{number}" / ".envrc").touch()
    house.start(agent=house.program(FLOOD))
    agent = Agent(house).start()

    with house.wire() as wire:
        began, before = time.monotonic(), computed(house.daemon.pid)
        answers = []
        while time.monotonic() < began + 5:
            answers.append(timed(lambda: wire.call("daemon.status")))
            time.sleep(0.05)
        share = (computed(house.daemon.pid) - before) / (time.monotonic() - began)
    agent.git("config", "user.name", "Somebody")
    seen = timed(lambda: agent.wait_told("workspace:protected-again"))
    (work / "enough").touch()
    assert house.wait("agent")["turn"]["outcome"] == "success"
    assert max(answers) < 1
    assert share < 0.4
    assert seen < 5
