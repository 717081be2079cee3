"""Programs and repositories that git in a workspace obeys: protected where named, told where an agent makes them."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

NAMED = {
    "hooks": (("config", "core.hooksPath", "tools/hooks"), "tools/hooks/pre-commit"),
    "include": (("config", "include.path", "../team.gitconfig"), "team.gitconfig"),
    "fsmonitor": (("config", "core.fsmonitor", "tools/monitor"), "tools/monitor"),
    "filter": (("config", "filter.x.clean", "sh tools/clean %f"), "tools/clean"),
    "textconv": (("config", "diff.x.textconv", "tools/convert"), "tools/convert"),
    "alias": (("config", "alias.hello", "!sh tools/hello"), "tools/hello"),
}


def test_what_gits_configuration_runs_in_the_workspace_is_protected(agent):
    for setting, path in NAMED.values():
        (agent.work / path).parent.mkdir(parents=True, exist_ok=True)
        (agent.work / path).write_text("# ours\n")
        agent.git(*setting)
    agent.start()
    found = agent.tries(*((path, "x") for _, path in NAMED.values()), ("tools/hooks/pre-commit.new", "x"), ("tools-2", "x"))
    expected = [*["OSError Read-only file system"] * (len(NAMED) + 1), "written"]
    assert dict(zip([*NAMED, "a new hook", "beside them"], found, strict=True)) == dict(
        zip([*NAMED, "a new hook", "beside them"], expected, strict=True)
    )
    assert {(agent.work / path).read_text() for _, path in NAMED.values()} == {"# ours\n"}


def test_hooks_that_are_named_and_not_there_cannot_be_made(agent):
    agent.git("config", "core.hooksPath", ".githooks")
    agent.start()
    assert "written" not in agent.tries((".githooks/pre-commit", "x"))


def test_a_program_that_cannot_be_told_from_a_setting_asks_for_attention_until_it_is_accepted(agent):
    agent.git("config", "alias.fmt", "!make fmt")
    agent.start()
    assert agent.attention["kind"] == "unsafe"
    assert "alias.fmt" in agent.attention["text"]
    agent.daemon.ok("accept", "agent")
    assert agent.attention["kind"] == "working"
    agent.daemon.ok("interrupt", "agent")
    assert agent.attention["kind"] == "idle"


@pytest.fixture
def short():
    """A workspace whose path leaves room for a socket's name: it has 107 bytes in all (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="work-", dir="/tmp") as path:
        yield Path(path)


def test_a_socket_of_the_persons_in_the_workspace_is_told(daemon, short, monkeypatch):
    """With no network at all an agent talks to whoever listens there."""
    work = short
    daemon.git(work, "init", "-q")
    monkeypatch.chdir(work)
    (work / "node_modules").mkdir()
    absolute = os.fspath(work / "node_modules" / "absolute.sock")
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind("ended.sock")
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        one.bind("relative.sock")
        one.listen()
        other.bind(absolute)
        daemon.start()
        ask = 'python3 -c \'import socket; socket.socket(socket.AF_UNIX).connect("relative.sock"); print("reached")\''
        daemon.spawn("agent", work, f"/shell {ask}", "--network", "none")
        assert daemon.shell("agent") == "reached\n", "a control"
        (told,) = [event["text"] for event in daemon.events("agent", "workspace:unprotected")]
        assert f"{absolute}, {work}/relative.sock" in told
        assert "ended" not in told
        assert daemon.show("agent")["attention"]["kind"] == "unsafe"


def test_no_other_worktrees_configuration_can_be_made(agent):
    """Git on the host obeys it in worktrees that lie outside of the workspace too."""
    agent.git("config", "extensions.worktreeConfig", "true")
    agent.git("worktree", "add", "-q", agent.daemon.directory / "elsewhere", "-b", "else")
    agent.start()
    found = agent.tries((".git/worktrees/elsewhere/config.worktree", "[core]\n\tfsmonitor = touch stolen\n"))
    assert "written" not in found
    agent.daemon.git(agent.daemon.directory / "elsewhere", "status")


def test_a_repository_that_an_agent_makes_stays_in_the_attention(daemon):
    """The outer `git status` obeys its configuration once it is in the index."""
    work = daemon.workspace("work", git=True)
    daemon.start()
    script = "git init -q sub; cd sub; git -c user.name=a -c user.email=b commit -q --allow-empty -m x; cd ..; git add sub"
    daemon.spawn("agent", work, f"/shell {script}")
    shown = daemon.show("agent")
    assert shown["attention"]["kind"] == "unsafe"
    assert shown["findings"][0]["path"] == str(work / "sub/.git")
    assert len(daemon.events("agent", "workspace:unprotected")) == 1
    daemon.ok("send", "agent", "/say more", "--wait")
    assert len(daemon.events("agent", "workspace:unprotected")) == 2
    daemon.ok("accept", "agent")
    daemon.ok("send", "agent", "/say more", "--wait")
    assert len(daemon.events("agent", "workspace:unprotected")) == 2
    assert daemon.show("agent")["attention"]["kind"] == "idle"


def test_what_has_a_name_in_no_encoding_is_told_and_keeps_no_turn_running(daemon):
    work = daemon.workspace("work", git=True)
    daemon.start()
    script = "d=$(printf 'bad\\377'); mkdir $d; touch $d/.envrc; git init -q $d/sub; git init -q $d"
    daemon.spawn("agent", work, f"/shell {script}")
    assert [path for path in os.listdir(os.fsencode(work)) if path.startswith(b"bad")] == [b"bad\xff"]
    first = daemon.show("agent")
    assert first["attention"]["kind"] == "unsafe"
    assert any("bad?/.envrc" in finding["difference"] for finding in first["findings"])
    daemon.kill()
    daemon.start()
    daemon.ok("send", "agent", "/say more", "--wait")
    assert daemon.show("agent")["turn"]["outcome"] == "success"
    (told,) = (
        event["text"] for event in daemon.events("agent", "workspace:unprotected") if "can't be looked at" in event["text"]
    )
    assert "bad?/.git" in told


# What an agent makes so that the outer `git status` runs a program by a repository that isn't walked into.
NESTED = "git init -q {0} && git -C {0} -c user.name=a -c user.email=b commit -q --allow-empty -m x && git add -f {0}"


EVIL = "printf '[core]\\n\\tfsmonitor = touch %s/stolen; false\\n' $PWD"


HIDDEN = {
    "among packages": f"mkdir node_modules && {NESTED.format('node_modules/x')} && {EVIL} >> node_modules/x/.git/config",
    "behind a link": f"{NESTED.format('sub')} && mkdir node_modules && mv sub/.git node_modules/x && "
    f"ln -s ../node_modules/x sub/.git && {EVIL} >> node_modules/x/config",
    "in parts behind a link": f"{NESTED.format('sub')} && mkdir s && mv sub/.git s/own && mkdir s/all && "
    f"mv s/own/objects s/own/refs s/own/config s/all && echo ../all > s/own/commondir && ln -s ../s/own sub/.git && "
    f"{EVIL} >> s/all/config",
}


def test_a_repository_that_an_agent_hides_is_found_and_read_only_in_the_next_turn(daemon):
    daemon.start()
    names = {f"a{number}": kind for number, kind in enumerate(HIDDEN)}
    works = {name: daemon.workspace(name, git=True) for name in names}
    for name, kind in names.items():
        daemon.ok("spawn", name, "-w", works[name], "--prompt-file", "-", stdin=f"/shell {HIDDEN[kind]}".encode())
    daemon.ok("wait", *names)
    before = {}
    for name, kind in names.items():
        daemon.git(works[name], "status")
        assert (works[name] / "stolen").exists(), ("a control: git runs it", kind)
        shown = daemon.show(name)
        assert shown["attention"]["kind"] == "unsafe", kind
        (config,) = [path for path in works[name].glob("*/**/config") if "stolen" in path.read_text()]
        told = [path for one in shown["findings"] for path in (one["path"], *one["difference"].splitlines())]
        assert str(config.parent) in told, kind
        daemon.ok("accept", name)
        before[config] = config.read_text()
        daemon.ok("send", name, f"/shell echo more >> {config}; true")
    daemon.ok("wait", *names)
    assert {config: config.read_text() for config in before} == before
    findings = [finding["text"] for name in names for finding in daemon.show(name).get("findings", [])]
    assert not any("were changed" in text for text in findings)


def test_an_odd_file_in_a_nested_repository_ends_no_later_turn(daemon):
    work = daemon.workspace("work", git=True)
    daemon.start()
    names = ("modules", "worktrees", "info")
    made = "; ".join(f"mkdir -p {name}/.git && mkfifo {name}/.git/{name}" for name in names)
    daemon.spawn("agent", work, f"/shell {made}")
    assert all((work / name / ".git" / name).exists() for name in names), "a control"
    daemon.ok("send", "agent", "/say still here", "--wait")
    assert daemon.show("agent")["turn"]["outcome"] == "success"


def test_a_repository_that_a_command_of_exec_makes_is_found_too(daemon):
    work = daemon.workspace("work", git=True)
    daemon.start()
    daemon.ok("spawn", "agent", "-w", work)
    assert daemon.ctl("exec", "agent", "--", "git", "init", "-q", "sub").code == 0
    assert daemon.show("agent")["attention"]["kind"] == "unsafe"


@pytest.mark.slow
def test_many_worktrees_and_repositories_hold_nobody_up(daemon):
    """Thousands of them made a daemon deaf; now their number is bounded, and it is said that there are more."""
    work = daemon.workspace("work", git=True)
    daemon.start()
    script = "for i in $(seq 1500); do mkdir -p sub/r$i/.git/objects sub/r$i/.git/refs; : > sub/r$i/.git/HEAD; done"
    daemon.spawn("agent", work, f"/shell {script}")
    daemon.ok("send", "agent", "/say still here", "--wait")
    assert any("too much" in event["text"] for event in daemon.events("agent", "workspace:unprotected"))
    assert daemon.show("agent")["attention"]["kind"] == "unsafe"
    assert len(daemon.show("agent")["findings"]) <= 50
