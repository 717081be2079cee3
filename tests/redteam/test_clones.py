"""What worked in a checkout that is shared with a person, tried once more in a private clone: none of it works there."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.redteam.hostile import PROGRAM, said
from tests.redteam.test_chats import look
from tests.system.test_clones import fingerprint

GIT_RUNS_IT = """
git config core.fsmonitor 'touch {ran}'
git config core.hooksPath hooks
git config include.path ../evil
git config extensions.worktreeConfig true
git config filter.evil.clean 'touch {ran}; cat'
mkdir -p hooks .git/hooks .git/worktrees/other .husky .githooks nested sub/.vscode .vscode .claude
for name in post-checkout pre-commit post-merge; do
    printf '#!/bin/sh\\ntouch {ran}\\n' > hooks/$name; cp hooks/$name .git/hooks/$name; cp hooks/$name .husky/$name
    cp hooks/$name .githooks/$name; chmod +x hooks/$name .git/hooks/$name .husky/$name .githooks/$name
done
printf '[core]\\n\\tfsmonitor = touch {ran}\\n' > evil
for name in .git/worktrees/other/config.worktree .gitconfig .git/config.worktree; do cp evil $name; done
git -C nested init -q; git -C nested config core.fsmonitor 'touch {ran}'; git -C nested commit -q --allow-empty -m x
echo '* filter=evil' > .gitattributes
for name in .envrc .bashrc .zlogin .gdbinit .nvimrc .dir-locals-2.el .mise.toml .autoenv lefthook.yml .mcp.json; do
    echo 'touch {ran}' > $name
done
git add --sparse -f . nested; git commit -qm 'all of it' --no-verify; touch done-with-it
"""


@pytest.fixture
def app(daemon):
    """A repository with a linked worktree beside it and a directory below its top."""
    work = daemon.workspace("app", git=True)
    (work / "sub").mkdir()
    (work / "sub" / "part.txt").write_text("part\n")
    daemon.git(work, "add", "-A")
    daemon.git(work, "commit", "-qm", "a part")
    daemon.git(work, "worktree", "add", "-q", daemon.directory / "other")
    return work


def tree(daemon, name):
    return Path(next(tree["path"] for tree in daemon.ok("clones") if tree["agent"] == name))


def test_a_persons_own_git_beside_a_turn_opens_no_way_and_runs_nothing(daemon, app, until):
    """S1, S5, S6, S11, S12 and C9: the person works on, with every name that their programs would obey, and then looks."""
    daemon.start()
    ran, mine = daemon.directory / "ran", app / "mine.txt"
    names = sorted(path.name for path in app.iterdir())
    attack = daemon.workspace("attack") / "attack.sh"
    attack.write_text(GIT_RUNS_IT.format(ran=ran))
    script = f"touch began; while [ ! -e go ]; do sleep 0.02; done; sh -e {attack}"
    daemon.ok("spawn", "fix", "-w", app, "--clone", "--bind-ro", attack.parent, f"/shell {script}")
    until(lambda: list((daemon.state / "trees").glob("*/began")), "the start of the turn")
    assert sorted(path.name for path in app.iterdir()) == names, "no placeholder stands in the user's checkout"
    for work in (
        ("config", "user.signingkey", "none"), ("remote", "add", "origin", "/nowhere"), ("checkout", "-q", "-b", "mine"),
        ("branch", "-m", "mine", "mine-too"),
    ):  # fmt: skip
        daemon.git(app, *work)
    mine.write_text("mine\n")
    before = fingerprint(app)
    (tree(daemon, "fix") / "go").touch()
    assert daemon.wait("fix")["turn"]["outcome"] == "success"
    assert (tree(daemon, "fix") / "done-with-it").exists(), daemon.shell("fix")
    assert fingerprint(app) == before
    for directory in (app, app / "sub", daemon.directory / "other"):
        daemon.git(directory, "status", "--short")
        daemon.git(directory, "log", "--all", "--oneline", "--stat")
    daemon.git(app, "add", "mine.txt")
    daemon.git(app, "commit", "-qm", "mine")
    assert not ran.exists()
    held = daemon.ctl("merge", "fix", "--into", "main", stdin=b"")
    assert held.code == 1
    assert ".autoenv" in held.error
    head = daemon.show("fix")["clone"]["head"]
    assert held.error.endswith(f"to land them: substratctl merge fix --accept . --at {head[:12]}")
    assert "all of it" not in daemon.git(app, "log", "--format=%s", "main")
    daemon.git(app, "checkout", "-q", "main")
    daemon.ok("merge", "fix", "--into", "main", "--accept", ".", "--at", head)
    assert daemon.git(app, "log", "-1", "--format=%s", "main") == "all of it\n"
    assert not ran.exists()


@pytest.mark.slow
def test_thousands_of_worktrees_hold_nobody_up(daemon, app):
    """S3: the daemon reads nothing of a clone's git directory that an agent sizes."""
    daemon.start()
    many = "for n in $(seq 3000); do mkdir -p .git/worktrees/w$n; echo x > .git/worktrees/w$n/config.worktree; done"
    daemon.spawn("fix", app, f"/shell {many}", "--clone")
    daemon.ok("send", "fix", "--wait", "/shell echo more > more.txt")
    assert daemon.show("fix")["turn"]["outcome"] == "success"
    assert daemon.git(app, "show", "refs/substrat/fix/wip:more.txt") == "more\n"


def test_settings_that_an_agent_plants_rule_no_other(daemon, app):
    """S7: a server in the clone's own `.cursor`, or in a directory's below it, is no later agent's."""
    daemon.start()
    evil = json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [str(daemon.directory / "ran")]}}})
    plant = f"mkdir -p sub/.cursor; echo '{evil}' > sub/.cursor/mcp.json; git add -f sub; git commit -qm plant"
    swap = "mv sub was; ln -s /etc sub"
    daemon.spawn("fix", app, f"/shell {plant}; mkdir .cursor/x; echo '{evil}' > .cursor/mcp.json", "--clone")
    assert daemon.git(app, "show", "refs/substrat/fix/head:sub/.cursor/mcp.json")
    look = "/shell grep -c evil .cursor/mcp.json; grep -o SUBSTRAT_SOCKET .cursor/mcp.json"
    daemon.spawn("next", app / "sub", look, "--clone", "--base", "refs/substrat/fix/head")
    assert daemon.shell("next").split() == ["0", "SUBSTRAT_SOCKET"]
    daemon.ok("send", "fix", "--wait", f"/shell {swap}")
    daemon.ok("send", "fix", "--wait", look)
    assert daemon.shell("fix").split()[-2:] == ["0", "SUBSTRAT_SOCKET"]
    assert not (daemon.directory / "ran").exists()


def test_a_clone_of_an_agents_commit_gets_no_ignored_file_that_the_commit_names(daemon, app):
    (app / ".gitignore").write_text("secret.key\n")
    (app / "secret.key").write_text("mine\n")
    daemon.git(app, "add", ".gitignore")
    daemon.git(app, "commit", "-qm", "ignore it")
    daemon.start()
    plant = "echo secret.key > .worktreeinclude; git add .worktreeinclude; git commit -qm plant"
    daemon.spawn("fix", app, f"/shell {plant}", "--clone")
    daemon.spawn("next", app, "/shell ls -a", "--clone", "--base", "refs/substrat/fix/head")
    assert ".worktreeinclude" in daemon.shell("next").split()
    assert "secret.key" not in daemon.shell("next").split()
    (told,) = daemon.events("next", "clone:setup")
    assert "is in no branch or tag of yours" in told["text"]
    daemon.git(app, "branch", "mine", "refs/substrat/fix/head")
    daemon.spawn("trusted", app, "/shell cat secret.key", "--clone", "--base", "mine")
    assert daemon.shell("trusted") == "mine\n"


def test_agents_at_one_path_see_no_chat_but_their_own(daemon, app):
    """S9: clones stand at one path, and their chats in one directory of cursor-agent's."""
    daemon.start(agent=daemon.program(PROGRAM))
    first = daemon.spawn("anna", app, "answer = None", "--clone")
    second = daemon.spawn("bert", app, look(first["session_id"]), "--clone")
    assert said(second) == {"seen": [second["session_id"]], "forged": []}


def test_gits_own_commands_work_as_in_a_checkout(daemon, app):
    """C5 and C8: what half-fails in a protected checkout works, and what would be lost fails."""
    daemon.start()
    commands = (
        "set -e; git config alias.x y; git remote add up /nowhere; git branch -m renamed; git tag v1; git stash list; "
        "git worktree add -q inside; git -C inside status --short; git worktree remove inside; git gc -q; "
        "git -c protocol.file.allow=always submodule add -q ./ itself; git commit -qam 'a submodule'; "
        "if git worktree add -q ../outside; then echo lost; fi; git branch --show-current"
    )
    daemon.spawn("fix", app, f"/shell {commands}", "--clone")
    said = daemon.shell("fix")
    assert said.startswith("renamed\nfatal: could not create leading directories of '../outside/.git': Read-only"), said
    assert daemon.show("fix")["clone"]["ahead"] == 1
    assert daemon.git(app, "fsck", "--no-dangling") == ""


class Attempt(NamedTuple):
    """A script at the top of a checkout, and a command of the person's there; the file `ran` shows that the script won."""

    script: str
    look: str


EVIL = "git config core.fsmonitor 'touch {ran}; false'"
WON = "&& touch {ran}"
ATTEMPTS = {
    "a hook": Attempt(
        "cd .git; mkdir -p hooks; printf '#!/bin/sh\\ntouch {ran}\\n' > hooks/post-commit; chmod +x hooks/post-commit",
        "git commit -q --allow-empty -m mine",
    ),
    "a filter": Attempt(
        "echo '* filter=x' > .gitattributes; git config filter.x.clean 'touch {ran}; cat'",
        "echo > x; git add x; git rm -fq x",
    ),
    "a program for status": Attempt(EVIL, "git status"),
    "an alias": Attempt("git config alias.st '!touch {ran}'", "git st"),
    "an included file": Attempt(
        "git config include.path ../inc; git config -f inc core.fsmonitor 'touch {ran}; false'", "git status"
    ),
    "a nested repository": Attempt(
        f"git init -q n; git -C n commit -q --allow-empty -m n; git add n; cd n; {EVIL}", "git status"
    ),
    "a linked worktree's configuration": Attempt(
        "git config extensions.worktreeConfig true; mkdir -p .git/worktrees/other; "
        "git config -f .git/worktrees/other/config.worktree core.fsmonitor 'touch {ran}; false'",
        "git -C ../other status",
    ),
    "a rebase under way": Attempt(
        "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1; cd .git/rebase-merge; "
        "echo 'x touch {ran}' >> git-rebase-todo",
        "git rebase --continue",
    ),
    "a link in a parent's place": Attempt(
        "mv sub was; ln -s {out} sub", f"echo mine > sub/part.txt; test -e {{out}}/part.txt {WON}"
    ),
    "a file that two write": Attempt("echo theirs > README.md", f"grep theirs README.md {WON}"),
    "another's chat": Attempt(
        "echo theirs > $HOME/.cursor/chats/0/1/store.db || true", f"grep theirs $HOME/.cursor/chats/0/1/store.db {WON}"
    ),
    "a mark in the index": Attempt(
        "git update-index --skip-worktree README.md; echo theirs > README.md",
        f"test -z \"$(git status -s)\" && grep theirs README.md {WON}",
    ),
    "an excluded file": Attempt(
        "mkdir -p .git/info; echo hidden >> .git/info/exclude; touch hidden",
        f"test -z \"$(git status -s)\" && test -e hidden {WON}",
    ),
    "a replaced commit": Attempt(
        "git replace -f HEAD $(git commit-tree -m theirs HEAD^{{tree}})", f"git log -1 --format=%s | grep theirs {WON}"
    ),
    "a moved branch": Attempt(
        "git update-ref refs/heads/main $(git commit-tree -m theirs HEAD^{{tree}})", f"git log main | grep theirs {WON}"
    ),
    "a thrown away stash": Attempt(
        "git reflog expire --expire=now --all; git stash clear; git gc -q --prune=now",
        "git stash list | grep WIP || touch {ran}",
    ),
    "an editor's task": Attempt("mkdir -p .vscode; echo '{{}}' > .vscode/tasks.json", f"test -e .vscode/tasks.json {WON}"),
}  # fmt: skip
"""The kinds that worked in a checkout which a person and agents share."""


@pytest.mark.slow
def test_an_attempt_that_works_in_a_shared_checkout_fails_in_a_clone(daemon, app):
    """The control: the same script, at work in a copy of the checkout itself, wins."""
    ran, out = daemon.directory / "ran", daemon.directory / "out"
    chat = daemon.home / ".cursor" / "chats" / "0" / "1" / "store.db"
    out.mkdir()
    chat.parent.mkdir(parents=True)
    chat.write_text("mine")
    who = {f"GIT_{role}_{part}": "me" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}

    def person(command):
        environment = daemon.environment(GIT_EDITOR="true", **who)
        return subprocess.run(["sh", "-c", command], cwd=app, env=environment, capture_output=True, text=True, check=False)

    person("echo more >> README.md; git stash -q")
    daemon.start()
    before = fingerprint(app)
    attempts = [Attempt(*(part.format(ran=ran, out=out) for part in attempt)) for attempt in ATTEMPTS.values()]
    names = [f"a{number}" for number in range(len(attempts))]
    for name, attempt in zip(names, attempts, strict=True):
        daemon.ok("spawn", name, "-w", app, "--clone", f"/shell set -e; {attempt.script}; echo all of it")
    daemon.ok("wait", *names)
    assert [kind for kind, name in zip(ATTEMPTS, names, strict=True) if "all of it\n" not in daemon.shell(name)] == []
    assert fingerprint(app) == before
    places = (app, daemon.directory / "other")
    for place in places:
        shutil.copytree(place, daemon.directory / "kept" / place.name, symlinks=True)

    def restore():
        for place in places:
            shutil.rmtree(place)
            shutil.copytree(daemon.directory / "kept" / place.name, place, symlinks=True)

    for kind, name, attempt in zip(ATTEMPTS, names, attempts, strict=True):
        restore()
        person(attempt.look)
        person(
            f"git status; git diff refs/substrat/{name}/wip; git log --all --stat; "
            "git checkout -q --detach; git checkout -q main"
        )
        assert not ran.exists(), (kind, daemon.shell(name))
        restore()
        control = person(attempt.script), person(attempt.look)
        assert ran.exists(), (kind, control)
        ran.unlink()
