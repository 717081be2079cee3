"""The keeping of work in private clones: odd files, large ones, and what no bundle takes along."""

import hashlib
import json
import os
import subprocess

import pytest

from tests.support.processes import arguments_of, processes
from tests.support.waiting import wait_until
from tests.system.test_clones import git
from tests.system.test_clones_places import type_remedy


@pytest.fixture
def app(daemon):
    work = daemon.workspace("app", git=True)
    (work / "part.txt").write_text("part\n")
    (work / "other.txt").write_text("other\n")
    (work / ".gitignore").write_text("ignored/\n*.tmp\n")
    git(daemon, work, "add", "-A")
    git(daemon, work, "commit", "-qm", "a part")
    return work


def tree_of(daemon):
    return next(path for path in (daemon.state / "trees").iterdir() if path.is_dir() and "." not in path.name)


def kept(daemon, name="fix"):
    return [event["text"] for event in daemon.events(name) if event["kind"] in {"clone:kept", "clone:not-kept"}]


def only_here(daemon):
    """Return the counts of the last report: nested, submodules, lfs, ignored."""
    found = json.loads((tree_of(daemon).with_suffix(".out") / "report").read_text())
    return {name: found[name] for name in ("nested", "submodules", "lfs", "ignored")}


def test_odd_files_are_kept_or_left_out_and_hold_nothing_up(daemon, app):
    deeds = (
        "printf a > \"$(printf 'new\\nline')\"; printf b > \"$(printf '\\377')\"; mkfifo pipe; rm part.txt; "
        "mkfifo part.txt; echo secret > closed; chmod 0 closed; ln -s /etc/passwd link; "
        "rm other.txt; mkdir other.txt; echo in > other.txt/in; touch .git/index.lock .git/refs/substrat.lock; "
        "mkdir -p .git/refs/substrat; touch .git/refs/substrat/head.lock .git/refs/substrat/wip.lock"
    )
    daemon.start()
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    names = git(daemon, app, "ls-tree", "-r", "--name-only", "refs/substrat/fix/wip").splitlines()
    assert {'"new\\nline"', '"\\377"', "link", "other.txt/in"} <= set(names)
    assert not {"pipe", "part.txt", "closed"} & set(names)
    assert git(daemon, app, "cat-file", "-t", "refs/substrat/fix/wip:link") == "blob"
    assert "1 can't be read" in kept(daemon)[-1]


def test_a_force_added_ignored_file_and_one_that_becomes_ignored(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/shell echo x > a.tmp; git add -f a.tmp; head -c 6000000 /dev/urandom > b.log", "--clone")
    daemon.ok("send", "fix", "--wait", "/shell echo '*.log' >> .gitignore; git commit -qm tmp")
    names = git(daemon, app, "ls-tree", "-r", "--name-only", "refs/substrat/fix/wip").split()
    assert ("a.tmp" in names, "b.log" in names) == (True, False), names


@pytest.mark.slow
def test_a_large_file_that_stays_is_read_and_stored_once(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/shell head -c 40000000 /dev/urandom > big.bin; echo 1 > small", "--clone")
    objects = tree_of(daemon) / ".git" / "objects"

    def stored():
        return {path for path in objects.rglob("*") if path.is_file() and path.stat().st_size > 30_000_000}

    first = stored()
    assert len(first) == 1
    daemon.ok("send", "fix", "--wait", "/shell echo 2 > small; git commit -qm c --allow-empty")
    assert stored() == first
    assert git(daemon, app, "show", "refs/substrat/fix/wip:small") == "2"
    assert git(daemon, app, "cat-file", "-s", "refs/substrat/fix/wip:big.bin") == "40000000"
    count = git(daemon, app, "count-objects", "-v").split("\n")
    size = sum(int(line.split()[1]) for line in count if line.startswith(("size:", "size-pack:")))
    assert size < 60_000, count
    # An agent may throw away the objects that the keeper's own index names.
    prune = "git update-ref -d refs/substrat/wip; git prune; rm -f .git/objects/pack/*; echo 3 > small"
    daemon.ok("send", "fix", "--wait", f"/shell {prune}")
    assert git(daemon, app, "show", "refs/substrat/fix/wip:small") == "3", kept(daemon)


def test_files_of_nested_repositories_and_commits_of_submodules_are_counted(daemon, app):
    other = daemon.workspace("other", git=True)
    git(daemon, app, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    git(daemon, app, "commit", "-qm", "a submodule")
    deeds = (
        "git init -q nested; touch nested/a nested/b; mkdir -p ignored/deep; git init -q ignored/deep; "
        "touch ignored/deep/c ignored/d x.tmp; git init -q sub; git -C sub commit -q --allow-empty -m one; "
        "git -C sub commit -q --allow-empty -m two"
    )
    daemon.start()
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    assert only_here(daemon) == {"nested": 3, "submodules": 2, "lfs": 0, "ignored": 2}
    assert git(daemon, app, "fsck", "--no-dangling") == ""


def test_lfs_objects_whose_hash_is_right_are_copied(daemon, app):
    good = hashlib.sha256(b"large\n").hexdigest()
    bad = "ab" * 32
    deeds = "; ".join(
        f"mkdir -p .git/lfs/objects/{name[:2]}/{name[2:4]}; echo large > .git/lfs/objects/{name[:2]}/{name[2:4]}/{name}"
        for name in (good, bad)
    )
    daemon.start()
    daemon.spawn(
        "fix", app, f"/shell {deeds}; mkdir .git/lfs/objects/cd; ln -s / .git/lfs/objects/cd/cd; echo x > y", "--clone"
    )
    objects = app / ".git" / "lfs" / "objects"
    assert [path.name for path in objects.rglob("*") if path.is_file()] == [good]
    assert (objects / good[:2] / good[2:4] / good).read_text() == "large\n"


def test_work_that_cannot_be_kept_says_why_and_how_to_help(daemon, app):
    daemon.start(config="[clone]\nbundle_bytes = 1048576\n")
    daemon.spawn("fix", app, "/shell head -c 3000000 /dev/urandom > big.bin", "--clone")
    assert "more than `clone.bundle_bytes` lets through, 1 MiB: raise that" in kept(daemon)[-1]
    daemon.ok("send", "fix", "--wait", "/shell rm big.bin; echo x > small")
    assert git(daemon, app, "show", "refs/substrat/fix/wip:small") == "x"
    bad = (
        "git cat-file commit HEAD | sed 's/^author .*/author x <x@y> 99999999999999999999 +0000/' > c; "
        "git reset -q --hard $(git hash-object -t commit -w --literally c)"
    )
    daemon.ok("send", "fix", "--wait", f"/shell {bad}")
    assert "git refuses to take it into" in kept(daemon)[-1], kept(daemon)
    assert git(daemon, app, "log", "--format=%s", "main").splitlines()[0] == "a part"


def test_a_filter_that_hangs_holds_no_other_agent_up_and_ends_with_the_daemon(daemon, app):
    mark = f"2003{os.getpid()}"

    def hanging():
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in found if line.startswith(f"sleep {mark}")]

    daemon.start()
    deeds = f"printf '* filter=evil\\n' > .gitattributes; git config filter.evil.clean 'sleep {mark}'; echo x > y"
    daemon.ok("spawn", "fix", "-w", app, "--clone", f"/shell {deeds}")
    wait_until(hanging, "the filter hangs")
    daemon.spawn("other", app, "/say hi", "--clone")
    daemon.process.kill()
    wait_until(lambda: daemon.process.poll() is not None, "the daemon is dead")
    wait_until(lambda: not hanging(), "the filter is dead")


def test_checkouts_of_other_forms(daemon, app):
    """One with CRLF, a filter that no machine has and a hook, and one inside it whose files differ by their case."""
    git(daemon, app, "config", "core.autocrlf", "true")
    (app / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (app / ".gitattributes").write_text("*.bin filter=media diff=media merge=media -text\n")
    (app / "a.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 5\n")
    (app / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ran\n")
    (app / ".git" / "hooks" / "post-checkout").chmod(0o755)
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "form")
    inner = app / "inner"
    inner.mkdir()
    git(daemon, inner, "init", "-q", "-b", "main")
    (inner / "Name").write_text("1\n")
    (inner / "name").write_text("2\n")
    git(daemon, inner, "add", "-A")
    git(daemon, inner, "commit", "-qm", "form")
    daemon.start()
    for name, work in (("inner", inner), ("outer", app)):
        deed = "git status --short; echo x > a.txt; git add a.txt 2>/dev/null; git commit -qm c"
        daemon.spawn(name, work, f"/shell {deed}; git worktree add -q /tmp/w; git rev-parse --show-toplevel", "--clone")
        assert daemon.shell(name).splitlines() == [str(work)]
        assert daemon.show(name)["clone"]["ahead"] == 1
        assert git(daemon, work, "diff", "--name-only", "HEAD", f"refs/substrat/{name}/wip") == "a.txt"
    assert not list((daemon.state / "trees").glob("*/ran"))


def test_locks_that_a_killed_git_has_left_in_the_refs_hold_nothing_up(daemon, app):
    """The git that takes a turn's work in ends with the daemon, also while it sets the refs."""
    daemon.start()
    daemon.spawn("fix", app, "/shell echo 1 > a", "--clone")
    refs = app / ".git" / "refs" / "substrat" / "fix"
    for name in ("head.lock", "wip.lock", "turns/2.lock"):
        (refs / name).touch()
    daemon.ok("send", "fix", "--wait", "/shell echo 2 > a; git add a; git commit -qm two")
    assert git(daemon, app, "show", "refs/substrat/fix/head:a") == "2", kept(daemon)
    assert not list(refs.rglob("*.lock"))


def test_a_git_that_deletes_refs_ends_by_itself_when_the_daemon_is_killed(daemon, app):
    """Killed, it would leave packed-refs.lock, for which the person's own git refuses to delete a branch."""
    daemon.start(config="[clone]\nturns = 1\n")
    daemon.spawn("fix", app, "/shell echo 1 > a", "--clone")
    turns = app / ".git" / "refs" / "substrat" / "fix" / "turns"
    lock = turns / "1.lock"
    lock.touch()  # git waits for it
    daemon.ok("send", "fix", "/shell echo 2 > a")
    wait_until(lambda: (turns / "2").exists() and is_changing_refs(app), "the git that deletes the old turn's ref")
    daemon.kill()
    assert is_changing_refs(app)
    lock.unlink()
    wait_until(lambda: not is_changing_refs(app), "its end")
    assert not (turns / "1").exists()
    assert not list((app / ".git").rglob("*.lock"))


def is_changing_refs(app):
    """Say whether a sandbox lives whose git changes refs of a repository, and does nothing else."""
    words = ('change "$1"', str(app / ".git"))
    lines = ["\0".join(arguments_of(pid)) for pid in processes()]
    return any(all(word in line for word in words) for line in lines)


def test_a_lock_of_the_persons_git_stays_and_holds_up_no_keep(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/shell git stash list; echo 1 > README.md; git stash -q", "--clone")
    assert git(daemon, app, "rev-parse", "refs/substrat/fix/asides")
    lock = app / ".git" / "packed-refs.lock"
    lock.touch()
    daemon.ok("send", "fix", "--wait", "/shell git stash drop -q; echo 2 > a")
    assert git(daemon, app, "show", "refs/substrat/fix/wip:a") == "2"
    assert "couldn't" not in kept(daemon)[-1]
    assert lock.exists()
    assert git(daemon, app, "for-each-ref", "refs/substrat/fix/asides")
    lock.unlink()
    daemon.ok("send", "fix", "--wait", "/shell echo 3 > a")
    assert git(daemon, app, "for-each-ref", "refs/substrat/fix/asides") == ""


def test_refs_of_old_turns_that_stayed_are_deleted_by_a_later_keep(daemon, app):
    daemon.start(config="[clone]\nturns = 1\n")
    daemon.spawn("fix", app, "/shell echo 1 > README.md; git stash -q; echo 1 > a", "--clone")
    lock = app / ".git" / "packed-refs.lock"
    lock.touch()
    daemon.ok("send", "fix", "--wait", "/shell echo 2 > README.md; git stash -q; echo 2 > a")
    lock.unlink()
    told = kept(daemon)
    assert "couldn't" not in told[-1]
    daemon.ok("send", "fix", "--wait", "/say the same")
    assert kept(daemon) == told  # the second stash was recorded
    daemon.ok("send", "fix", "--wait", "/shell echo 4 > a")
    turns = git(daemon, app, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/substrat/fix/turns")
    assert turns == "turns/4"


def test_a_name_is_free_again_when_all_its_work_is_in_a_branch(daemon, app):
    daemon.start()
    daemon.spawn(
        "fix", app, "/shell git checkout -qb topic; echo t > t; git add t; git commit -qm t; git checkout -q -", "--clone"
    )
    daemon.ok("rm", "fix")
    refused = daemon.ctl("spawn", "fix", "-w", app, "--clone")
    assert (refused.code, "git log --glob=refs/substrat/fix --not --branches" in refused.error) == (1, True), refused
    git(daemon, app, "merge", "-q", "refs/substrat/fix/asides^2")
    daemon.ok("spawn", "fix", "-w", app, "--clone")


ODD = {
    "a shallow history": "T=$(mktemp -d); git init -q $T; for n in 1 2; do echo $n >$T/x; git -C $T add x; "
    "git -C $T commit -qm $n; done; git fetch -q --depth 1 file://$T HEAD:odd",
    "a large stash": "head -c 4000000 /dev/urandom > big; git add big; git stash -q",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_branch_or_stash_that_cannot_be_kept_holds_up_nothing_else(daemon, app, odd):
    daemon.start(config="[clone]\nbundle_bytes = 2000000\n")
    daemon.spawn(
        "fix", app, f"/shell {ODD[odd]}; echo mine > mine; git add mine; git commit -qm mine; echo w > w", "--clone"
    )
    found = daemon.show("fix")
    assert git(daemon, app, "show", "refs/substrat/fix/head:mine") == "mine"
    assert git(daemon, app, "show", "refs/substrat/fix/wip:w") == "w"
    assert found["attention"]["kind"] == "unkept"
    assert "its other branches and stashes" in found["attention"]["text"]
    daemon.ok("send", "fix", "--wait", "/shell git branch -qD odd; git stash drop -q; rm -f .git/shallow; true")
    assert daemon.show("fix")["attention"]["kind"] == "merge"


def test_what_is_said_after_rm_of_work_that_cannot_be_kept_needs_no_agent(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/shell echo mine > mine; git add mine; git commit -qm mine", "--clone")
    daemon.ok("send", "fix", "--wait", f"/shell {ODD['a shallow history']}")
    assert "substratctl exec fix git fsck" in daemon.show("fix")["clone"]["work"]["unkept"]
    look = ("clones", "prune", "--unlanded", "--dry-run")
    for said in (daemon.ctl("rm", "fix").out, daemon.ctl("clones").out, daemon.ctl(*look).out):
        assert "exec" not in said
        assert "+mine" in type_remedy(said)


def test_work_under_way_and_worktrees_of_one_name_are_kept(daemon, app):
    rebase = (
        "git checkout -qb o; echo o > a; git add a; git commit -qm o; git checkout -q -; echo m > a; git add a; "
        "git commit -qm m; echo draft > README.md; git rebase -q --autostash o"
    )
    two = "for d in x y; do git worktree add -q --detach $d/wt; git -C $d/wt commit -q --allow-empty -m in-$d; done"
    name = "/".join(["d" * 100] * 4)
    long = f"git checkout -qb {name}; git commit -q --allow-empty -m long; git checkout -q -"
    daemon.start()
    daemon.spawn("fix", app, f"/shell {long}; {two}; {rebase}; git status; ls .git .git/rebase-merge", "--clone")
    kept = git(daemon, app, "log", "--format=%s", "refs/substrat/fix/asides").splitlines()
    assert {"in-x", "in-y", "long"} <= set(kept)
    assert [line for line in kept if "autostash" in line], daemon.shell("fix")
