"""The guards of git's own commands when a branch moves, beside those of a landing.

Each case is a row of the table in docs/workspace.md ("what git guards"). git's own outcome is taken in the person's
repository, which is then put back as it was, and the landing's there; `DIFFERENT` says where they are not to be the same.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from substrat.core.workspaces import landing as decisions
from substrat.daemon.clones.host_git import Move
from substrat.daemon.clones.landing_git import Conflicting
from substrat.errors import SubstratError
from tests.daemon.clones.conftest import Room
from tests.support import git_lfs

ROOT = Path(__file__).parents[3]


class Case(NamedTuple):
    """A repository of a person's and an agent's work in it.

    Args:
        prepare: makes the repository, before the agent begins.
        work: the agent's files; None: they are deleted.
        meanwhile: the person's act between look and move.
    """

    prepare: Callable[[Room], object] = lambda _: None
    work: dict[str, str | bytes | None] = {"a.txt": "theirs\n"}  # noqa: RUF012 - nobody changes it
    meanwhile: Callable[[Room], object] = lambda _: None


def write(room, path, text="mine\n"):
    (room.top / path).parent.mkdir(parents=True, exist_ok=True)
    (room.top / path).write_text(text)


def sparse(room):
    room.commit({"in/a": "a\n", "out/b": "b\n"})
    room.git("sparse-checkout", "set", "in")


def split_index(room):
    room.git("config", "core.splitIndex", "true")
    room.git("update-index", "--split-index", "--untracked-cache")


def separate(room):
    room.git("init", "-q", f"--separate-git-dir={room.top.parent / 'elsewhere.git'}")
    room.git("config", "core.worktree", str(room.top))
    room.clone_of(room.top.parent / "elsewhere.git")


def linked(room):
    room.git("checkout", "-q", "-b", "other")
    room.git("worktree", "add", "-q", str(room.top.parent / "linked"), "main")


def gone(room, *verbs):
    linked(room)
    for verb in verbs:
        room.git("worktree", verb, str(room.top.parent / "linked"))
    shutil.rmtree(room.top.parent / "linked")


def copy_gone(room, *options):
    copy = room.top.parent / "copy"
    room.git("worktree", "add", "-q", "--detach", *options, str(copy))
    shutil.rmtree(copy)


def submodule_gone(room):
    submodule(room)
    room.git("rm", "-q", "--cached", "lib")
    room.git("commit", "-qm", "no submodule")
    (room.top / "lib").rmdir()


def link(room, path, target):
    if (room.top / path).is_dir():
        shutil.rmtree(room.top / path)
    (room.top / path).symlink_to(target)


def submodule(room):
    room.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
    (room.top / "lib").mkdir()
    room.git("commit", "-qm", "a submodule")


def lfs(room):
    """A repository whose `*.bin` are git-lfs's; the object of `here` is in it, that of `far` is at a server."""
    git_lfs.install(room.top.parent / "bin")
    room.environ["PATH"] = f"{room.top.parent / 'bin'}:{os.environ['PATH']}"
    room.again()
    room.commit({".gitattributes": "*.bin filter=lfs -text\n"})
    for key, command in git_lfs.FILTERS.items():
        room.git("config", "--global", key, command)
    room.git("config", "--global", "filter.lfs.required", "true")
    git_lfs.store(room.top / ".git", b"here\n")


def hooks(room):
    for name in ("pre-merge-commit", "post-merge", "reference-transaction"):
        hook = room.top / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n[ $1 = prepared ] && exit 0\ntouch hooked\n")
        hook.chmod(0o755)


SAME = {
    "a file that only the agent has changed": Case(),
    "files that both have changed, in different lines": Case(
        lambda room: room.commit({"a": "1\n2\n3\n4\n5\n6\n7\n8\n"}), {"a": "0\n2\n3\n4\n5\n6\n7\n8\n"},
        lambda room: room.commit({"a": "1\n2\n3\n4\n5\n6\n7\n9\n"}),
    ),
    "a conflict": Case(lambda room: room.commit({"a": "1\n"}), {"a": "2\n"}, lambda room: room.commit({"a": "3\n"})),
    "an uncommitted change of a file that lands": Case(
        lambda room: room.commit({"a": "1\n"}), {"a": "2\n"}, lambda room: write(room, "a")
    ),
    "an uncommitted change of another file": Case(meanwhile=lambda room: write(room, "README")),
    "a staged change of another file": Case(meanwhile=lambda room: (write(room, "new"), room.git("add", "new"))),
    "an untracked file where one lands": Case(meanwhile=lambda room: write(room, "a.txt")),
    "an untracked directory where a file lands": Case(meanwhile=lambda room: write(room, "a.txt/inner")),
    "a directory that a file replaces": Case(
        lambda room: room.commit({"d/a": "a\n", "d/b": "b\n"}), {"d/a": None, "d/b": None, "d": "file\n"}
    ),
    "a deleted file": Case(lambda room: room.commit({"d/a": "a\n"}), {"d/a": None}),
    "attributes: merge=union, -merge, text": Case(
        lambda room: room.commit({".gitattributes": "*.log merge=union\n*.txt text eol=crlf\n", "a.log": "0\n"}),
        {"a.log": "0\ntheirs\n", "b.txt": "b\n"}, lambda room: room.commit({"a.log": "0\nmine\n"}),
    ),
    "a merge driver of the system": Case(
        lambda room: (room.commit({".gitattributes": "a merge=keep\n", "a": "0\n"}),
                      room.git("config", "--global", "merge.keep.driver", "true")),
        {"a": "theirs\n"}, lambda room: room.commit({"a": "mine\n"}),
    ),
    "a filter of the system": Case(
        lambda room: (room.commit({".gitattributes": "*.up filter=up\n"}),
                      room.git("config", "filter.up.clean", "tr A-Z a-z"),
                      room.git("config", "filter.up.smudge", "tr a-z A-Z")),
        {"a.up": "text\n"},
    ),
    "a file of git-lfs whose object the repository has": Case(lfs, {"a.bin": git_lfs.pointer(b"here\n")}),
    "core.autocrlf": Case(lambda room: room.git("config", "core.autocrlf", "true")),
    "a lock of another git": Case(meanwhile=lambda room: (room.top / ".git" / "index.lock").touch()),
    "a sparse checkout": Case(sparse, {"in/c": "c\n", "out/d": "d\n"}),
    "a file with skip-worktree": Case(
        lambda room: (room.commit({"a": "a\n", "b": "b\n"}), room.git("update-index", "--skip-worktree", "b")),
        meanwhile=lambda room: write(room, "b"),
    ),
    "a file with assume-unchanged": Case(
        lambda room: (room.commit({"b": "b\n"}), room.git("update-index", "--assume-unchanged", "b")),
        {"b": "theirs\n"}, lambda room: write(room, "b"),
    ),
    "a submodule": Case(submodule),
    "a git directory elsewhere (--separate-git-dir)": Case(separate),
    "a branch that a linked worktree has": Case(linked),
    "a branch that no checkout has": Case(lambda room: room.git("checkout", "-q", "-b", "other")),
    "links and modes": Case(lambda room: room.commit({"tool": "#!/bin/sh\n"}), {"tool": "#!/bin/sh\n# more\n"},
                            lambda room: (room.top / "tool").chmod(0o755)),
    "a link that is deleted": Case(
        lambda room: (link(room, "l", "README"), room.git("add", "l"), room.git("commit", "-qm", "link")), {"l": None}
    ),
    "a link of the person's where a directory was": Case(
        lambda room: room.commit({"d/a": "a\n"}), {"d/a": "theirs\n"},
        lambda room: link(room, "d", room.top.parent),
    ),
    "core.fileMode = false": Case(
        lambda room: (room.commit({"tool": "1\n"}), room.git("config", "core.fileMode", "false")), {"tool": "2\n"},
        lambda room: (room.top / "tool").chmod(0o755),
    ),
    "a split index and an untracked cache": Case(split_index),
    "a sparse index": Case(lambda room: (sparse(room), room.git("sparse-checkout", "set", "--sparse-index", "in")),
                           {"out/d": "d\n"}),
    "an index of version 4": Case(lambda room: room.git("update-index", "--index-version", "4")),
    "attributes in info/attributes and core.attributesFile": Case(
        lambda room: (room.commit({"a.log": "0\n", "b": "0\n"}), write(room, ".git/info/attributes", "*.log merge=union\n"),
                      (room.home / "rules").write_text("b -merge\n"),
                      room.git("config", "core.attributesFile", "~/rules")),
        {"a.log": "0\ntheirs\n"}, lambda room: room.commit({"a.log": "0\nmine\n"}),
    ),
    "a merge of the person's under way": Case(
        lambda room: (room.git("branch", "side"), room.commit({"mine": "1\n"})),
        meanwhile=lambda room: (room.git("checkout", "-q", "side"), room.commit({"mine": "2\n"}),
                                room.git("checkout", "-q", "main"), room.refuses("merge", "-q", "side")),
    ),
    "a linked worktree that is locked and isn't there": Case(
        lambda room: gone(room, "lock"),
    ),
    "a file of the person's where a submodule was": Case(
        submodule_gone, {"lib": "theirs\n"}, lambda room: write(room, "lib")
    ),
    "a branch that a rebase or a bisect holds": Case(
        meanwhile=lambda room: (room.commit({"mine": "mine\n"}), room.git("bisect", "start", "HEAD", "HEAD~1"),
                                room.git("checkout", "-q", "--detach", "HEAD~1")),
    ),
    "two names that differ in case": Case(work={"A.txt": "A\n", "a.txt": "a\n"}),
}  # fmt: skip
"""The landing's outcome is git's: the same files, index and branch, or nothing changed."""
DIFFERENT = {
    "an ignored file where one lands": (
        Case(lambda room: write(room, ".git/info/exclude", "*.txt\n"), meanwhile=lambda room: write(room, "a.txt")),
        "git overwrites it", "untracked working tree files would be overwritten by merge: a.txt",
    ),
    "a filter that a file can make another program": (
        Case(lambda room: (room.commit({".gitattributes": "*.txt filter=odd\n", "tool": "cat\n"}),
                           room.git("config", "filter.odd.smudge", "sh tool"))),
        "git runs it", "selects your git's filter odd",
    ),
    "a name that is longer than 255 bytes": (
        Case(work={"a": "a\n"}), "git leaves the files that came before", "longer than 255 bytes",
    ),
    "a branch that two worktrees have": (
        Case(meanwhile=lambda room: room.git("worktree", "add", "-qf", str(room.top.parent / "linked"), "main")),
        "git moves it under the other one", "held by two working trees",
    ),
    "a file of git-lfs whose object is at its server": (
        Case(lfs, {"a.bin": git_lfs.pointer(b"far\n"), ".lfsconfig": "[lfs]\n\turl = http://evil.invalid\n"}),
        "git asks the server", None,
    ),
    "a lock of the branch": (
        Case(meanwhile=lambda room: (room.top / ".git/refs/heads/main.lock").touch()),
        "git leaves the new files and the old branch", "main.lock",
    ),
    "a prunable worktree": (Case(gone), "git refuses", None),
    "a merge driver that a file can make another program": (
        Case(lambda room: (room.commit({".gitattributes": "a merge=odd\n", "a": "0\n", "tool": "true\n"}),
                           room.git("config", "merge.odd.driver", "sh tool")),
             {"a": "theirs\n"}, lambda room: room.commit({"a": "mine\n"})),
        "git runs it", "selects your git's merge driver odd",
    ),
    "hooks": (Case(meanwhile=hooks), "git runs them", None),
    "merge.ff = false, branch.main.mergeOptions": (
        Case(meanwhile=lambda room: (room.git("config", "merge.ff", "false"),
                                     room.git("config", "branch.main.mergeOptions", "--no-commit"))),
        "git makes a commit of its own, or none", None,
    ),
    "merge.autoStash": (
        Case(lambda room: (room.commit({"a.txt": "1\n"}), room.git("config", "merge.autoStash", "true")),
             meanwhile=lambda room: write(room, "a.txt")),
        "git stashes", "would be overwritten by merge",
    ),
    "commit.gpgSign": (
        Case(lambda room: (room.git("config", "commit.gpgSign", "true"), room.git("config", "gpg.program", "false")),
             meanwhile=lambda room: (room.git("config", "commit.gpgSign", "false"), room.commit({"mine": "mine\n"}),
                                     room.git("config", "commit.gpgSign", "true"))),
        "git signs", None,
    ),
}  # fmt: skip
"""Each with git's own act, and the landing's sentence; None: it lands."""
COPIES = {
    "a working copy": Case(lambda room: room.commit({"tool": "#!/bin/sh\n"}), {"a.txt": "theirs\n", "d/e": "new\n"}),
    "a working copy beside a sparse checkout": Case(sparse, {"in/c": "c\n", "out/d": "d\n"}),
    "a working copy with a filter of the system, and core.autocrlf": Case(
        lambda room: (SAME["a filter of the system"].prepare(room), room.git("config", "core.autocrlf", "true")),
        {"a.up": "text\n", "b": "b\n"},
    ),
    "a working copy with a submodule": Case(submodule),
    "a working copy where a file is": Case(meanwhile=lambda room: write(room, "../copy/mine")),
    "a working copy where a prunable one was": Case(meanwhile=copy_gone),
    "a working copy where a locked one was": Case(meanwhile=lambda room: copy_gone(room, "--lock")),
}  # fmt: skip
"""`substratctl checkout` has the outcome of git's own `worktree add`."""


async def land(room):
    """Land the agent's head as `Landings` does; returns the sentence that says why not, None where it has landed."""
    git, clone, head, landing = room.landing_git, room.clone, room.head, room.landing()
    try:
        found = await room.standing()
        checkout = await room.host_git.checkout(clone, "main", found.holders)
        persons = await room.host_git.persons_git(checkout.top if checkout is not None else clone.repository, found.names)
        preview = await git.preview(clone, landing, persons, found, head)
        commit = preview.commit
        refusal = decisions.unwritable(preview.files) or await git.refusal(clone, persons, commit, preview.selected)
        if refusal is None:
            await room.host_git.move(clone, landing, Move(commit, found.tip, persons.programs), checkout)
    except SubstratError as problem:
        return problem.message
    except Conflicting as conflict:
        return f"conflict in {', '.join(conflict.files)}; {conflict.why}"
    return refusal


def state(room):
    """All that a person sees: files with their modes, the index, the branch's files and parents."""
    found: dict[str, object] = {}
    for top in (room.top, room.top.parent / "linked"):
        for path in sorted(top.rglob("*")) if top.exists() else ():
            name = str(path.relative_to(room.top.parent))
            if "/.git/" not in f"{name}/" and not path.is_dir():
                found[name] = (oct(path.lstat().st_mode), os.readlink(path) if path.is_symlink() else path.read_bytes())
        found[f"{top} status"] = room.git("status", "--porcelain", at=top) if (top / ".git").exists() else ""
    found["tree"] = room.git("rev-parse", "main^{tree}")
    found["parents"] = len(room.git("log", "-1", "--format=%P", "main").split())
    return found


def prepared(room, case):
    case.prepare(room)
    room.branch_again()
    room.agent_commits(case.work)
    case.meanwhile(room)
    before = state(room)
    kept = room.top.parent.with_name(f"{room.top.parent.name}.kept")
    subprocess.run(["cp", "-a", room.top.parent, kept], check=True)
    return before, kept


def merged_by_git(room, before, kept):
    """git's own outcome, whether it succeeded; the repository is as before afterwards."""
    tops = [top for top in (room.top, room.top.parent / "linked") if (top / ".git").exists()]
    heads = {room.git("rev-parse", "--symbolic-full-name", "HEAD", at=top): top for top in tops}
    has_it = heads.get("refs/heads/main")
    head = str(room.clone.kept.head)
    if has_it is not None:
        line = ["git", "-C", str(has_it), "merge", "-q", "--no-edit", head]
    else:
        line = ["git", "-C", str(room.top), "branch", "-q", "-f", "main", head]
    done = subprocess.run(line, env=room.environ, capture_output=True, check=False)
    if done.returncode:  # a person would go back
        subprocess.run(("git", "-C", str(has_it), "merge", "--abort"), env=room.environ, capture_output=True, check=False)
    outcome = state(room)
    shutil.rmtree(room.top.parent)
    kept.rename(room.top.parent)
    assert state(room) == before
    return outcome, done.returncode == 0


@pytest.mark.parametrize("row", SAME)
async def test_a_landing_has_the_outcome_of_gits_own_merge(room, row):
    before, kept = prepared(room, SAME[row])
    theirs, has_merged = merged_by_git(room, before, kept)
    refusal = await land(room)
    assert (refusal is None) == has_merged, refusal
    assert state(room) == (theirs if has_merged else before)


@pytest.mark.parametrize("row", DIFFERENT)
async def test_a_landing_is_more_careful_than_git(room, row):
    case, _, sentence = DIFFERENT[row]
    if row.startswith("a name"):
        case = case._replace(work={})
    before, kept = prepared(room, case)
    if row.startswith("a name"):  # no checkout can have it
        blob = room.git("hash-object", "-w", "--stdin", given=b"x\n")
        tree = room.git("mktree", given=f"100644 blob {blob}\t{'n' * 300}\n".encode())
        room.is_kept(room.git("commit-tree", "-p", "main", "-m", "long", tree))
    theirs, _ = merged_by_git(room, before, kept) if not row.startswith("a name") else ({}, False)
    refusal = await land(room)
    assert (refusal is None) == (sentence is None), refusal
    assert sentence is None or sentence in str(refusal)
    after = state(room)
    assert after != theirs
    assert sentence is None or after == before


async def copied_by_substrat(room):
    """Make a working copy as `Checkouts` does; returns whether that went well."""
    clone, head = room.clone, str(room.clone.kept.head)
    persons = await room.host_git.persons_git(clone.repository, await room.landing_git.names(clone, (head,)))
    try:
        await room.host_git.add_worktree(clone, persons.programs, str(room.top.parent / "copy"), head, has_begun=False)
    except SubstratError:
        return False
    return True


@pytest.mark.parametrize("row", COPIES)
async def test_a_working_copy_is_that_of_gits_own(room, row):
    before, kept = prepared(room, COPIES[row])
    copy = room.top.parent / "copy"

    def copy_state():
        found = {"listed": room.git("worktree", "list", "--porcelain"), **state(room)}
        for path in sorted(copy.rglob("*")) if copy.exists() else ():
            if path.is_file() and path.name != ".git":
                found[str(path)] = (oct(path.stat().st_mode), path.read_bytes())
        found["status"] = room.git("status", "--porcelain", at=copy) if (copy / ".git").exists() else ""
        return found

    has_made = not room.refuses("worktree", "add", "-q", "--detach", str(copy), str(room.clone.kept.head))
    theirs = copy_state()
    shutil.rmtree(room.top.parent)
    kept.rename(room.top.parent)
    assert state(room) == before
    assert await copied_by_substrat(room) == has_made
    assert copy_state() == theirs


def test_every_row_of_the_table_is_a_case():
    text = (ROOT / "docs" / "workspace.md").read_text()
    rows = re.findall(
        r"^\| ([^|]+?) \| ([^|]+?) \|$", text.partition("### What git guards")[2].partition("\n#")[0], re.MULTILINE
    )
    same = {"as git's own merge": SAME, "as git's own `worktree add`": COPIES}
    for what, cases in same.items():
        assert {row for row, does in rows[1:] if does == what} == set(cases)
    assert {row for row, does in rows[1:] if does not in same} == set(DIFFERENT)
