"""A person's ordinary git beside a running agent: a turn whose protected files are replaced freezes until it is resumed."""

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.system.obedient import OBEDIENT, Agent, prepare
from tests.system.test_freeze import check_frozen

READ_ONLY = ["OSError Read-only file system"]

# Keeps a file within its reach that a person is about to put in the place of `.git/config`, as git does with its own lock.
KEEPING = """
import mmap, socket
begin()
mark("ready")
wait_for("new")
opened = os.open("new", os.O_RDWR)
if prompt == "open":
    kept = os.open(f"/proc/self/fd/{opened}", os.O_PATH)
elif prompt == "mapped":
    kept = mmap.mmap(opened, 1)
elif prompt == "sent":
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [opened])
else:
    os.link("new", "other-name")
os.close(opened)
mark("has-it")
wait_for("never")
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
mark("made", "touch stolen\\n")
mark("ready")
while os.path.exists("a"):
    pass
os.makedirs("a/pkg")
os.rename("made", "a/pkg/.envrc")
wait_for("never")
"""


# A person's commands that replace `.git/config`.
ORDINARY = [
    ("config", "user.name", "Bert"),
    ("remote", "add", "other", "https://example.invalid/x.git"),
    ("push", "-q", "-u", "origin", "main"),
    ("checkout", "-q", "-b", "x", "origin/elsewhere"),
    ("branch", "-m", "main", "trunk"),
]


def prepare_nested(daemon):
    """Make a repository with protected names further down, and a branch without them."""
    work = prepare(daemon)
    (work / "a" / "pkg" / ".vscode").mkdir(parents=True)
    (work / "a" / "pkg" / ".vscode" / "tasks.json").write_text("{}\n")
    (work / "a" / "pkg" / ".envrc").write_text("export A=1\n")
    daemon.git(work, "checkout", "-q", "-b", "nested")
    daemon.git(work, "add", "-f", ".")
    daemon.git(work, "commit", "-q", "-m", "nested")
    return work


FURTHER_DOWN = (("a/pkg/.envrc", "x"), ("a/pkg/.vscode/tasks.json", "x"))


def is_protected(agent, path):
    """Whether a file's newest version is mounted read-only where the agent's turn finds it."""
    inside = [Path(f"/proc/{pid}/root") / (agent.work / path).relative_to("/") for pid in agent.daemon.sandboxed()]
    with contextlib.suppress(OSError):
        return any(place.samefile(agent.work / path) and os.statvfs(place).f_flag & os.ST_RDONLY for place in inside)
    return False


def wait_frozen(agent):
    """Wait until an agent's turn is frozen because `.git/config` was replaced, to its last process."""
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    assert agent.attention["text"] == f"frozen, because .git/config was replaced here: resume {agent.name}"
    assert agent.attention["frozen"] is True
    assert agent.daemon.show(agent.name)["state"] == "suspended"
    check_frozen(agent.daemon)
    assert is_protected(agent, ".git/config")


def test_ordinary_git_that_replaces_a_protected_file_freezes_the_turn_until_a_person_resumes_it(agent):
    agent.start()
    # A control: protected now, and the directory beside it writable.
    assert agent.tries((".git/config", "x"), (".git/description", "x")) == [*READ_ONLY, "written"]
    for number, command in enumerate(ORDINARY, 1):
        agent.git(*command)
        wait_frozen(agent)
        (*_, told) = agent.wait_told("agent:frozen", number)
        assert f"{agent.work}/.git/config was replaced here" in told
        config = (agent.work / ".git/config").read_bytes()
        agent.daemon.ok("resume", "agent")
        assert agent.tries((".git/config", "x")) == READ_ONLY, command
        assert (agent.work / ".git/config").read_bytes() == config, command
        assert agent.attention["kind"] == "working", command
    agent.finish()
    assert agent.told("workspace:unprotected") == []
    assert agent.attention["kind"] == "idle"


def test_what_comes_back_as_it_was_is_mounted_anew_without_a_word(daemon):
    work = prepare(daemon)
    daemon.git(work, "checkout", "-q", "tooled")
    daemon.start(agent=daemon.program(OBEDIENT))
    agent = Agent(daemon).start()
    made = (work / ".envrc").stat().st_ctime_ns
    daemon.git(work, "rebase", "-q", "--force-rebase", "main")  # takes them away, and brings them back
    assert (work / ".envrc").stat().st_ctime_ns != made, "a control"
    os.rmdir(work / ".idea")  # a placeholder
    for path in (".envrc", ".vscode/settings.json", ".idea"):
        wait_until(partial(is_protected, agent, path), f"the protection of {path}")
    assert agent.tries((".envrc", "x"), (".idea/x", "x")) == READ_ONLY * 2
    agent.finish()
    assert daemon.git(work, "status", "--porcelain", "--untracked-files=no") == ""
    assert agent.told("agent:frozen") == agent.told("workspace:unprotected") == []


def test_a_checkout_of_a_branch_with_other_protected_files_freezes_the_turn(agent):
    agent.start()
    agent.git("checkout", "-q", "tooled")
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    agent.daemon.ok("resume", "agent")
    assert agent.tries((".envrc", "x"), (".vscode/settings.json", "x")) == READ_ONLY * 2
    assert (agent.work / ".envrc").read_text() == "export A=1\n"
    assert agent.git("status", "--porcelain", "--untracked-files=no") == ""
    agent.git("checkout", "-q", "main")  # as it was at the turn's start
    wait_until(lambda: is_protected(agent, ".envrc"), "the placeholder")
    assert "written" not in agent.tries((".envrc", "x"), (".vscode/tasks.json", "x"))
    assert len(agent.told("agent:frozen")) == 1
    agent.finish()


def test_nested_protected_files_that_go_and_come_back_stay_protected(daemon):
    prepare_nested(daemon)
    daemon.start(agent=daemon.program(OBEDIENT))
    nested = Agent(daemon).start()
    assert "written" not in nested.tries(*FURTHER_DOWN)
    nested.git("checkout", "-q", "main")
    assert not (nested.work / "a" / "pkg" / ".vscode" / "tasks.json").exists()
    nested.git("checkout", "-q", "nested")
    wait_until(lambda: is_protected(nested, "a/pkg/.envrc"), "the protection of .envrc")
    if nested.attention["kind"] == "unsafe":  # the look came in between
        daemon.ok("resume", "agent")
    assert "written" not in nested.tries(*FURTHER_DOWN)
    assert (nested.work / "a" / "pkg" / ".envrc").read_text() == "export A=1\n"


def test_what_an_agent_makes_where_a_nested_directory_was_freezes_its_turn_and_is_told_at_its_end(daemon):
    work = prepare_nested(daemon)
    daemon.start(agent=daemon.program(REMAKING))
    agent = Agent(daemon).start()
    os.rename(work / "a", daemon.directory / "a")
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    assert agent.attention["text"].startswith("frozen, because ")
    daemon.ok("interrupt", "agent")
    daemon.wait("agent")
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the finding")
    assert "the turn hasn't gone on since" in agent.attention["text"]
    assert (work / "a/pkg/.envrc").read_text() == "touch stolen\n", "nothing of it is put back"
    daemon.ok("accept", "agent")


def test_a_repository_that_is_replaced_by_a_file_that_leads_elsewhere_freezes_the_turn(daemon):
    work = prepare(daemon)
    daemon.start(agent=daemon.program(LEADING))
    agent = Agent(daemon).start()
    os.rename(work / ".git", daemon.directory / "old")
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    assert agent.attention["text"] == "frozen, because .git was replaced here: resume agent"
    daemon.ok("end", "agent")


@pytest.mark.parametrize("way", ["open", "mapped", "linked", "sent"])
def test_an_agent_that_keeps_a_new_file_within_its_reach_is_ended(daemon, way):
    """It could write to the file behind any mount, long after a person has looked at it and has resumed the turn."""
    work = prepare(daemon)
    daemon.start(agent=daemon.program(KEEPING))
    agent = Agent(daemon).start(way)
    # The same content, so that nothing else stops the agent.
    (work / "new").write_bytes((work / ".git/config").read_bytes())
    wait_until((work / "has-it").exists, "the agent's hold on it")
    os.replace(work / "new", work / ".git/config")
    assert "may be open in the sandbox or has another name" in agent.wait_told("workspace:touched")[0]
    assert daemon.wait("agent", "failed")["turn"]["outcome"] == "error"
    assert agent.attention["kind"] == "unsafe"


def test_each_of_two_files_that_are_replaced_at_once_is_told_at_the_end_of_the_interrupted_turn(daemon):
    work = prepare_nested(daemon)
    daemon.start(agent=daemon.program(OBEDIENT))
    agent = Agent(daemon).start()
    paths = [work / ".git/config", work / "a/pkg/.envrc"]
    for path in paths:
        path.with_name("new").write_bytes(path.read_bytes() + b"# \n")
    for path in paths:
        path.with_name("new").replace(path)
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    assert agent.attention["text"] == "frozen, because .git/config and 1 more were replaced here: resume agent"
    daemon.ok("interrupt", "agent")
    daemon.wait("agent")
    (told,) = (one for one in agent.wait_told("workspace:unprotected") if "hasn't gone on since" in one)
    assert all(str(path) in told for path in paths)
    daemon.kill()
    daemon.start(agent=daemon.agent)
    assert agent.attention["kind"] == "unsafe"
    for path in paths:
        path.with_name("new").write_bytes(path.read_bytes().removesuffix(b"# \n"))
        path.with_name("new").replace(path)
    wait_until(lambda: agent.attention["kind"] != "unsafe", "the end of the finding")


def test_a_file_that_an_agent_keeps_ends_its_turn_also_by_the_next_daemon(daemon):
    """The first one has mounted it anew, so that all seems to be as it was."""
    work = prepare(daemon)
    program = daemon.program(KEEPING)
    daemon.start(agent=program, environment={"SUBSTRAT_KILL_AT": "after: protected again"})
    agent = Agent(daemon).start("open")
    (work / "new").write_bytes((work / ".git/config").read_bytes())
    wait_until((work / "has-it").exists, "the agent's hold on it")
    os.replace(work / "new", work / ".git/config")
    assert daemon.process.wait(20) == -signal.SIGKILL
    daemon.start(agent=program)
    said = f"{work}/.git/config was replaced on the host, and may be open in the sandbox or has another name"
    assert said in agent.wait_told("workspace:touched")[0]
    daemon.wait("agent", "failed")


@pytest.mark.parametrize("is_back", [False, True], ids=["other content", "the content of the turn's start"])
def test_what_is_written_to_a_file_after_it_was_mounted_anew_is_told_at_the_turns_end(agent, is_back):
    """Behind any mount: its inode stays."""
    config = agent.work / ".git/config"
    before = config.read_bytes()
    agent.start()
    agent.git("config", "user.name", "Bert")
    wait_frozen(agent)
    agent.daemon.kill()
    agent.daemon.start(agent=agent.daemon.agent)
    agent.daemon.ok("resume", "agent")
    with config.open("wb") as file:
        file.write(before if is_back else before + b"[core]\n\tfsmonitor = touch stolen\n")
    agent.finish()
    told = agent.told("workspace:unprotected")
    assert [str(config) in one for one in told] == ([] if is_back else [True])


def test_agents_that_share_a_workspace_are_frozen_and_resumed_together(agent):
    second = Agent(agent.daemon, "second")
    agent.start()
    (agent.work / "ready").unlink()
    second.start()
    agent.git("config", "user.name", "Bert")
    for one in (agent, second):
        wait_frozen(one)
    agent.daemon.ok("resume", "second")
    assert agent.attention["kind"] == second.attention["kind"] == "working"
    # Both read the same orders; neither may have written.
    assert agent.tries((".git/config", "x")) == READ_ONLY


def test_a_frozen_turn_stays_frozen_over_a_restart_and_goes_on_with_a_later_file(agent):
    daemon = agent.daemon
    agent.start()
    agent.git("config", "user.name", "Bert")
    wait_frozen(agent)
    daemon.kill()
    agent.git("config", "user.name", "Somebody else")
    daemon.start(agent=daemon.agent)
    wait_until(lambda: is_protected(agent, ".git/config"), "the protection of the file")
    wait_frozen(agent)
    agent.git("config", "user.name", "Carl")
    wait_until(lambda: is_protected(agent, ".git/config"), "the protection of the newest file")
    daemon.ok("resume", "agent")
    assert agent.tries((".git/config", "x")) == READ_ONLY
    agent.finish()
    assert len(agent.told("agent:frozen")) == 1
    assert agent.told("workspace:unprotected") == []


def test_what_is_replaced_while_no_daemon_runs_is_noticed_by_the_next(agent):
    agent.start()
    agent.daemon.kill()
    agent.git("config", "user.name", "Bert")
    assert agent.tries((".git/config", "[core]\n\tfsmonitor = touch stolen\n")) == ["written"]
    agent.daemon.start(agent=agent.daemon.agent)
    wait_frozen(agent)
    assert "stolen" in (agent.work / ".git/config").read_text(), "nothing of it is put back"


def test_a_turn_that_a_person_has_frozen_is_protected_anew_and_goes_on_when_it_is_resumed(agent):
    agent.start()
    agent.daemon.ok("suspend", "agent", "--freeze")
    agent.git("config", "user.name", "Bert")
    wait_until(lambda: is_protected(agent, ".git/config"), "the protection of the file")
    assert agent.attention["kind"] == "suspended"
    check_frozen(agent.daemon)
    agent.daemon.ok("resume", "agent")
    assert agent.tries((".git/config", "x")) == READ_ONLY
    agent.finish()


def test_what_is_replaced_before_the_freeze_that_a_killed_daemon_has_only_noted_is_told(daemon):
    prepare(daemon)
    program = daemon.program(OBEDIENT)
    daemon.start(agent=program, environment={"SUBSTRAT_KILL_AT": "before: sandbox frozen"})
    agent = Agent(daemon).start()
    daemon.ctl("suspend", "agent", "--freeze")
    assert daemon.process.wait(20) == -signal.SIGKILL
    agent.git("config", "user.name", "Bert")
    assert agent.tries((".git/config", "[core]\n\tfsmonitor = touch stolen\n")) == ["written"]
    daemon.start(agent=program)
    wait_frozen(agent)


def test_a_command_of_exec_is_ended_with_a_sentence(agent):
    agent.daemon.ok("spawn", "agent", "-w", agent.work)
    command = agent.daemon.follow("exec", "agent", "--", "sh", "-c", "touch ready; sleep 100")
    wait_until((agent.work / "ready").exists, "the command")
    agent.git("config", "user.name", "Bert")
    assert command.wait(20) == 1
    said = f"the command was ended, because {agent.work}/.git/config was replaced on the host: run it again"
    assert said.encode() in command.stderr.read()


@pytest.mark.parametrize(
    "point", ["after: sandbox held", "before: protected again", "after: protected again",
              "before commit: protected path replaced", "after commit: protected path replaced"],
)  # fmt: skip
def test_a_daemon_that_is_killed_while_it_holds_a_sandbox_is_followed_by_one_that_freezes_the_turn(daemon, point):
    prepare(daemon)
    program = daemon.program(OBEDIENT)
    daemon.start(agent=program, environment={"SUBSTRAT_KILL_AT": point})
    agent = Agent(daemon).start()
    agent.git("config", "user.name", point)
    assert daemon.process.wait(20) == -signal.SIGKILL
    daemon.start(agent=program)
    wait_frozen(agent)
    daemon.ok("resume", "agent")
    assert agent.tries((".git/config", "x")) == READ_ONLY
    agent.finish()
    assert agent.told("workspace:unprotected") == []


def test_what_holds_a_nested_protected_file_cannot_be_renamed(daemon):
    work = daemon.workspace("work", git=True)
    (work / "a" / "pkg").mkdir(parents=True)
    (work / "a" / "pkg" / ".envrc").write_text("export A=1\n")
    daemon.start()
    daemon.spawn(
        "agent",
        work,
        '/shell python3 -c \'import os; os.rename("a/pkg", "b")\'; python3 -c \'import os; os.rename("a", "b")\'; true',
    )
    assert (work / "a" / "pkg" / ".envrc").read_text() == "export A=1\n"
    assert not (work / "b").exists()


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


def test_a_flood_of_changes_delays_neither_answers_nor_the_look_at_a_real_one(daemon):
    work = prepare(daemon)
    for number in range(150):
        (work / f"d{number}").mkdir()
        (work / f"d{number}" / ".envrc").touch()
    daemon.start(agent=daemon.program(FLOOD))
    agent = Agent(daemon).start()

    with daemon.wire() as wire:
        for _ in range(50):
            wire.call("daemon.status")
    agent.git("config", "user.name", "Bert")
    agent.wait_told("agent:frozen")
    daemon.ok("resume", "agent")
    (work / "enough").touch()
    assert daemon.wait("agent")["turn"]["outcome"] == "success"
