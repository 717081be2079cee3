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
    agent.house.ok("accept", "agent")
    assert agent.attention["kind"] == "working"
    agent.house.ok("interrupt", "agent")
    assert agent.attention["kind"] == "idle"


@pytest.fixture
def short():
    """A workspace whose path leaves room for a socket's name: it has 107 bytes in all (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="work-", dir="/tmp") as path:
        yield Path(path)


def test_a_socket_of_the_persons_in_the_workspace_is_told(house, short, monkeypatch):
    """With no network at all an agent talks to whoever listens there."""
    work = short
    house.git(work, "init", "-q")
    monkeypatch.chdir(work)
    (work / "node_modules").mkdir()
    absolute = os.fspath(work / "node_modules" / "absolute.sock")
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind("ended.sock")
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        one.bind("relative.sock")
        one.listen()
        other.bind(absolute)
        house.start()
        ask = 'python3 -c \'import socket; socket.socket(socket.AF_UNIX).connect("relative.sock"); print("reached")\''
        house.spawn("agent", work, f"/shell {ask}", "--network", "none")
        assert house.shell("agent") == "reached\n", "a control"
        (told,) = [event["text"] for event in house.events("agent", "workspace:unprotected")]
        assert f"{absolute}, {work}/relative.sock" in told
        assert "ended" not in told
        assert house.show("agent")["attention"]["kind"] == "unsafe"


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
    assert any("bad?/.envrc" in finding["difference"] for finding in first["findings"])
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
    "among packages": f"mkdir node_modules && {NESTED.format('node_modules/x')} && {EVIL} >> node_modules/x/.git/config",
    "behind a link": f"{NESTED.format('sub')} && mkdir node_modules && mv sub/.git node_modules/x && "
    f"ln -s ../node_modules/x sub/.git && {EVIL} >> node_modules/x/config",
    "in parts behind a link": f"{NESTED.format('sub')} && mkdir s && mv sub/.git s/own && mkdir s/all && "
    f"mv s/own/objects s/own/refs s/own/config s/all && echo ../all > s/own/commondir && ln -s ../s/own sub/.git && "
    f"{EVIL} >> s/all/config",
}


def test_a_repository_that_an_agent_hides_is_found_and_read_only_in_the_next_turn(house):
    house.start()
    names = {f"a{number}": kind for number, kind in enumerate(HIDDEN)}
    works = {name: house.workspace(name, git=True) for name in names}
    for name, kind in names.items():
        house.ok("spawn", name, "-w", works[name], "--prompt-file", "-", stdin=f"/shell {HIDDEN[kind]}".encode())
    house.ok("wait", *names)
    before = {}
    for name, kind in names.items():
        house.git(works[name], "status")
        assert (works[name] / "stolen").exists(), ("a control: git runs it", kind)
        shown = house.show(name)
        assert shown["attention"]["kind"] == "unsafe", kind
        (config,) = [path for path in works[name].glob("*/**/config") if "stolen" in path.read_text()]
        told = [path for one in shown["findings"] for path in (one["path"], *one["difference"].splitlines())]
        assert str(config.parent) in told, kind
        house.ok("accept", name)
        before[config] = config.read_text()
        house.ok("send", name, f"/shell echo more >> {config}; true")
    house.ok("wait", *names)
    assert {config: config.read_text() for config in before} == before
    findings = [finding["text"] for name in names for finding in house.show(name).get("findings", [])]
    assert not any("were changed" in text for text in findings)


def test_an_odd_file_in_a_nested_repository_ends_no_later_turn(house):
    work = house.workspace("work", git=True)
    house.start()
    names = ("modules", "worktrees", "info")
    made = "; ".join(f"mkdir -p {name}/.git && mkfifo {name}/.git/{name}" for name in names)
    house.spawn("agent", work, f"/shell {made}")
    assert all((work / name / ".git" / name).exists() for name in names), "a control"
    house.ok("send", "agent", "/say still here", "--wait")
    assert house.show("agent")["turn"]["outcome"] == "success"


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
