"""Private clones of real projects, and of repositories of every form and size: each works, or is refused with a remedy."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(900)]

LONG = 300.0
"""Seconds for a turn in a large repository on a busy machine; the bound only ends a test that fails."""

PACKAGES = [
    ("curl",), ("git",), ("redis",), ("sqlite3",), ("nginx",), ("python-django",), ("requests", "jinja2"),
    ("node-lodash", "node-moment"), ("rust-ripgrep",), ("golang-github-spf13-cobra",),
]  # fmt: skip
"""Source packages, each with another of its size where a mirror lacks it."""

HISTORY = """
git init -q -b main; git add -A; git commit -qm 'the release'
d=$(git ls-files | grep / | cut -d/ -f1 | sort | uniq -c | sort -n | tail -1 | awk '{print $2}')
f=$(git ls-files -- "$d" | grep -v /[.] | head -1)
git checkout -qb moved; git mv "$d" "$d-moved"; git commit -qm 'a directory is renamed'
git checkout -q main; echo '/* more */' >> "$f"; git commit -qam 'a file of it is changed'
git merge -q --no-edit moved; git tag -a -m release v1
printf '%s' "$d-moved${f#"$d"}"
"""


def sh(daemon, where, script):
    """Run a script as a person would in a shell; returns what it printed."""
    who = {f"GIT_{role}_{part}": "me" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    # git's own gc would change files in the background.
    who |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "gc.auto", "GIT_CONFIG_VALUE_0": "0"}
    done = subprocess.run(
        ["sh", "-ec", script], cwd=where, env=daemon.environment(**who), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


def turn(daemon, *words, stdin):
    """Let an agent do its turn, however long that takes; returns what its shell printed."""
    name = words[1]
    daemon.ok(*words, "--prompt-file", "-", stdin=b"/shell " + "; ".join(stdin.strip().splitlines()).encode())
    wait_until(lambda: daemon.show(name)["state"] not in {"queued", "running"}, "the end of the turn", LONG)
    assert daemon.show(name)["turn"]["outcome"] == "success", daemon.show(name)
    said = daemon.shell(name)
    assert [event["text"] for event in daemon.events(name, "clone:not-kept")] == []
    return said


@pytest.mark.parametrize("names", PACKAGES, ids=[names[0] for names in PACKAGES])
def test_a_project_is_cloned_worked_on_seen_landed_and_pruned(daemon, source, names):
    work = source(*names)
    moved = sh(daemon, work, HISTORY)
    look = f"git ls-files -s | sha1sum; git log --stat | sha1sum; git log --oneline --follow -- '{moved}'; git describe"
    before, seen = fingerprint(work), sh(daemon, work, look)
    daemon.start()
    said = turn(daemon, "spawn", "fix", "-w", work, "--clone", stdin=f"""
        set -e; git status --short; {look}
        git mv '{moved}' moved-again; echo fix >> moved-again; git commit -qam fix; echo left > left-over
    """)  # fmt: skip
    assert said == seen
    assert fingerprint(work) == before
    (landed,) = daemon.ok("diff", "fix")["files"]
    assert (landed["path"], landed["old_path"], landed["status"]) == ("moved-again", moved, "renamed")
    assert [file["path"] for file in daemon.ok("diff", "fix", "--wip")["files"]] == ["left-over", "moved-again"]
    assert daemon.follow("merge", "fix").wait(LONG) == 0
    assert (work / "moved-again").read_text().endswith("/* more */\nfix\n")
    daemon.ok("end", "fix")
    assert daemon.ok("clones", "prune", "fix", "--yes", "--unlanded")[0]["removed"]
    assert sh(daemon, work, "git fsck --no-dangling; git status --short") == ""


class Form(NamedTuple):
    """A form that a repository may have.

    Args:
        made: makes it as `work`, beside `app`, a repository with a branch, a tag and the remote `up`, a bare one.
        deed: what the agent does there, besides a commit.
        said: the end of what that prints; of a refusal its sentence, which ends with the remedy.
        where: the workspace, below `work`.
        words: further words for `spawn`.
    """

    made: str
    deed: str = "true"
    said: str = ""
    where: str = "."
    words: tuple[str, ...] = ()
    is_refused: bool = False


FORMS = {
    "below the top": Form("git clone -q up work", "pwd; git rev-parse --show-prefix", "work/sub\nsub/\n", where="sub"),
    "shallow": Form("git clone -q --depth 1 file://$PWD/up work", "git log --oneline | wc -l", "1\n"),
    "partial": Form(
        "git clone -q --filter=blob:none file://$PWD/up work", is_refused=True,
        said="`git -C {work} fetch --refetch --no-filter origin` completes it, then `git -C {work} config --unset-all "
        "remote.origin.promisor` says so",
    ),
    "partial, completed": Form(
        "git clone -q --filter=blob:none file://$PWD/up work; cd work; git fetch -q --refetch --no-filter origin; "
        "git config --unset-all remote.origin.promisor", "git log -p | grep -c ^+1", "1\n",
    ),
    "bare": Form("git clone -q --bare up work", is_refused=True, said="has no files to work on: name a checkout of it"),
    "no repository": Form("mkdir work", is_refused=True, said="`git init` there, or leave out --clone"),
    "empty": Form("git init -q -b main work", "git log 2>&1", "does not have any commits yet\n"),
    "unborn": Form("git clone -q up work; cd work; git checkout -q --orphan new; git rm -rqf .", "git branch -r", "main\n"),
    "detached": Form("git clone -q up work; cd work; git checkout -q v1", "git describe --tags", "v1\n"),
    "linked worktree": Form("git -C app worktree add -q ../work side", "cat b", "side\n"),
    "linked worktree of a bare one": Form("git -C up worktree add -q $PWD/work side", "cat b", "side\n"),
    "git directory elsewhere": Form(
        "git clone -q --separate-git-dir=elsewhere up work", is_refused=True,
        said="if it belongs to this directory, `git --git-dir={elsewhere} config core.worktree {work}` says so",
    ),
    "git directory elsewhere that leads back": Form(
        "git clone -q --separate-git-dir=elsewhere up work; git --git-dir=elsewhere config core.worktree $PWD/work",
        "git log --oneline | wc -l", "2\n",
    ),
    "borrowing": Form("git clone -q --shared app work", "git log --oneline | wc -l", "2\n"),
    "sha256": Form("git init -q --object-format=sha256 -b main work", "git rev-parse --show-object-format", "sha256\n"),
    "in another repository": Form("git clone -q up app/inner; ln -s app/inner work", "git log --oneline | wc -l", "2\n"),
    "sparse": Form("git clone -q up work; cd work; git sparse-checkout set sub", "ls -d */; git status -s", "sub/\n"),
    "packed refs, commit graph, split index": Form(
        "git clone -q up work; cd work; git pack-refs --all; git commit-graph write --reachable; "
        "git update-index --split-index",
        "git log --oneline | wc -l", "2\n",
    ),
    "reference to nothing": Form(
        "git clone -q up work; cd work; echo 1234567890123456789012345678901234567890 > .git/refs/heads/broken",
        "git branch -r | grep -c broken", "0\n",
    ),
    "a replaced commit": Form("git clone -q up work; cd work; git replace HEAD HEAD~1 -f", "cat a", "1\n2\n"),
    "a rebase under way": Form(
        "git clone -q up work; cd work; git checkout -qb topic HEAD~1; echo 9 > a; git commit -qam 9; "
        "git rebase main || true",
        "git status | head -1", "On branch substrat/fix\n",
    ),
    "CRLF": Form(
        "git clone -q up work; cd work; git config core.autocrlf true; printf 'x\\r\\ny\\r\\n' > crlf; git add crlf; "
        "git commit -qm crlf", "git status -s; wc -c < crlf", "6\n",
    ),
    "CRLF by attributes": Form(
        "git clone -q up work; cd work; echo '*.bat text eol=crlf' > .gitattributes; printf 'x\\r\\n' > x.bat; git add .; "
        "git commit -qm bat", "git status -s; wc -c < x.bat", "3\n",
    ),
    "names that differ in case": Form(
        "git clone -q up work; cd work; mkdir Sub; echo 1 > Sub/part; echo 2 > A; git add .; git commit -qm case",
        "git status -s; git mv sub/part sub/PART; git mv A tmp; cat Sub/part tmp", "1\n2\n",
    ),
    "odd names": Form(
        "git clone -q up work; cd work; echo 1 > \"$(printf '\\377')\"; echo 2 > \"$(printf 'a\\nb')\"; echo 3 > -x; "
        "echo 4 > '日本'; git add .; git commit -qm odd", "git status -s; git ls-files | wc -l", "6\n",
    ),
    "a link out": Form(
        "git clone -q up work; cd work; ln -s /etc/passwd l; git add l; git commit -qm l", "readlink l", "/etc/passwd\n"
    ),
    "LFS pointers": Form(
        "git clone -q up work; cd work; echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes; "
        "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 5\\n' 1 > a.bin; "
        "git add .; git commit -qm lfs",
        "git status -s; wc -l < a.bin", "3\n",
    ),
    "submodules": Form(
        "git clone -q up work; cd work; git -c protocol.file.allow=always submodule --quiet add $PWD/../up lib; "
        "git commit -qm lib",
        "git status -s; git -c protocol.file.allow=always submodule --quiet update --init; cat lib/a", "1\n2\n",
        words=("--bind-ro", "{daemon}/up"),
    ),
    "a submodule": Form(
        "git clone -q up big; cd big; git -c protocol.file.allow=always submodule --quiet add $PWD/../up lib; "
        "ln -s big/lib ../work",
        "git log --oneline | wc -l", "2\n",
    ),
}  # fmt: skip

APP = """
git init -q -b main app; cd app; mkdir sub; echo 1 > a; echo part > sub/part; git add .; git commit -qm one; git tag v1
git checkout -qb side; echo side > b; git add b; git commit -qm side; git checkout -q main
echo 2 >> a; git commit -qam two; git clone -q --bare . ../up; git remote add up ../up
git -C ../up config uploadpack.allowFilter true
"""


@pytest.mark.parametrize("name", FORMS)
def test_a_repository_of_each_form_is_cloned_or_refused_with_a_remedy(daemon, name):
    form = FORMS[name]
    sh(daemon, daemon.directory, f"({APP}); {form.made}")
    work = Path(daemon.directory, "work").resolve()
    words = (
        "spawn",
        "fix",
        "-w",
        work / form.where,
        "--clone",
        *(word.format(daemon=daemon.directory) for word in form.words),
    )
    before = fingerprint(work)
    daemon.start()
    if form.is_refused:
        refused = daemon.ctl(*words)
        said = form.said.format(work=work, elsewhere=daemon.directory / "elsewhere")
        assert (refused.code, refused.error.endswith(said)) == (1, True), refused
    else:
        said = turn(daemon, *words, stdin=f"{form.deed}\ntouch new; git add new; git commit -qm new; touch left")
        assert said.endswith(form.said), said
        assert sh(daemon, work, "git show --stat --format=%s refs/substrat/fix/head").split()[0] == "new"
        assert daemon.show("fix")["clone"]["files"] == 1
    assert fingerprint(work) == before


SIZES = {
    "20,000 files": (
        "mkdir d; cd d; seq 20000 | xargs -n 1000 sh -c 'for n; do echo $n > f$n; done' sh; git add .; git commit -qm many",
        "test $(git ls-files d | wc -l) = 20000; rm d/f1*; echo new > d/new; git add -A; git commit -qm changed",
    ),
    "a blob of 500 MB": (
        "head -c 500000000 /dev/urandom > big; git add big; git commit -qm big",
        "test $(wc -c < big) = 500000000; git mv big large; git commit -qm moved",
    ),
    "a new blob of 500 MB": (
        "true", "head -c 500000000 /dev/urandom > big; git add big; git commit -qm big; echo more >> big"
    ),
}  # fmt: skip
"""What a person commits first, and what an agent does then."""


@pytest.mark.parametrize("name", SIZES)
def test_a_large_repository_is_cloned_kept_and_landed(daemon, name):
    first, deed = SIZES[name]
    sh(daemon, daemon.directory, f"{APP}\n{first}")
    work = daemon.directory / "app"
    before = fingerprint(work)
    daemon.start()
    turn(daemon, "spawn", "fix", "-w", work, "--clone", stdin=f"set -e; {deed}; git rev-parse HEAD^{{tree}}")
    assert fingerprint(work) == before
    assert daemon.follow("merge", "fix").wait(LONG) == 0
    assert sh(daemon, work, "git rev-parse HEAD^{tree}; git status -s") == daemon.shell("fix")
    sh(daemon, work, "git fsck --no-dangling --connectivity-only")
