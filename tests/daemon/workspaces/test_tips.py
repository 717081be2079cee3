"""What stood at a repository's refs before an agent is known, whatever git or the agent has done to the objects since."""

import os
import subprocess
import zlib
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from substrat.daemon.sandboxes import tip_proofs
from substrat.daemon.workspaces import copies, tips
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from tests.daemon.workspaces.repositories import git


@pytest.fixture
def tooled(repository):
    """A repository that has files for editors on a branch that isn't checked out."""
    git(repository, "checkout", "-q", "-b", "tooled")
    (repository / ".envrc").write_text("export A=1\n")
    (repository / ".vscode/deep er").mkdir(parents=True)
    (repository / ".vscode/settings.json").write_text("{}\n")
    (repository / ".vscode/deep er/$(x).json").write_text("[]\n")
    git(repository, "add", "-f", ".")
    git(repository, "commit", "-q", "-m", "tools")
    return repository


@pytest.fixture
def holds(tooled, bubblewrap, tmp_path):
    """Whether what is at a path now stood at one of the tips from before."""
    noted = tmp_path / "tips"
    tips.note(str(noted), tips.read(f"{tooled}/.git"))

    async def found():
        return bubblewrap

    async def nothing():
        return ()

    def ask(name):
        asked = tip_proofs.TipProofs(found, nothing)
        path = str(tooled / name)
        sandbox = ProtectedSandbox("t", "a", None, str(tooled), ProtectedPaths(), {}, cast("Any", None), None, None, {})
        return trio.run(asked.known, str(noted), sandbox, {path: copies.take(path)}) == [path]

    return ask


def test_all_refs_are_read(tooled):
    common = f"{tooled}/.git"
    git(tooled, "tag", "-a", "-m", "one", "v1", "main")
    git(tooled, "branch", "a/b")
    git(tooled, "worktree", "add", "-q", "--detach", "../tree", "main")
    git(tooled / "../tree", "commit", "-q", "--allow-empty", "-m", "detached")
    (tooled / ".envrc").write_text("export A=2\n")
    git(tooled, "stash")
    heads = git(tooled, "rev-parse", "HEAD").split() + git(tooled / "../tree", "rev-parse", "HEAD").split()
    expected = {*git(tooled, "for-each-ref", "--format=%(objectname)").split(), *heads}
    assert set(tips.read(common)) == expected
    git(tooled, "pack-refs", "--all")
    assert set(tips.read(common)) == {*expected, git(tooled, "rev-parse", "main").strip()}


def test_the_kept_work_of_agents_is_no_tip(tooled):
    git(tooled, "commit", "-q", "--allow-empty", "-m", "kept")
    git(tooled, "update-ref", "refs/substrat/agent/head", "HEAD")
    git(tooled, "reset", "-q", "--hard", "HEAD~1")
    before = tips.read(f"{tooled}/.git")
    git(tooled, "pack-refs", "--all")
    assert set(tips.read(f"{tooled}/.git")) == set(before) == {*git(tooled, "rev-parse", "--branches").split()}


def test_no_repository_and_an_odd_one_have_no_tips(work):
    assert tips.read(f"{work}/.git") == ()
    (work / ".git/refs/heads").mkdir(parents=True)
    os.mkfifo(work / ".git/HEAD")
    os.mkfifo(work / ".git/refs/heads/main")
    (work / ".git/packed-refs").write_text("1234 refs/heads/x\n" + "1" * 64 + " refs/heads/sha256\n")
    (work / ".git/refs/heads/link").symlink_to("/etc/passwd")
    assert tips.read(f"{work}/.git") == ()


@pytest.mark.parametrize("rewrite", ["gc -q --prune=now", "repack -adq", "stash", "pack-refs --all"])
def test_files_of_a_tip_are_known_though_git_has_written_their_objects_anew(tooled, holds, rewrite):
    git(tooled, *rewrite.split())
    assert holds(".envrc")
    assert holds(".vscode")
    (tooled / ".envrc").write_text("export A=2\n")
    (tooled / ".vscode/more.json").write_text("{}\n")
    assert not holds(".envrc")
    assert not holds(".vscode"), "one file that wasn't there is enough"


def test_a_file_counts_under_its_own_path_alone(tooled, holds):
    """An agent may move content of the person's to where it is run."""
    (tooled / ".envrc").write_text("{}\n")
    (tooled / ".vscode/tasks.json").write_text("{}\n")
    assert not holds(".envrc")
    assert not holds(".vscode")


def test_later_commits_and_refs_are_not_believed(tooled, holds):
    (tooled / ".envrc").write_text("evil\n")
    git(tooled, "commit", "-q", "-a", "-m", "evil")
    git(tooled, "branch", "-f", "main")
    assert not holds(".envrc")
    git(tooled, "replace", git(tooled, "rev-parse", "HEAD~1").strip(), "HEAD")
    assert not holds(".envrc")


def test_objects_that_are_forged_are_not_believed(tooled, holds):
    """git prints what lies under an object's id, and hashes none of it."""
    tip = git(tooled, "rev-parse", "HEAD").strip()
    (tooled / ".envrc").write_text("evil\n")
    git(tooled, "add", "-f", ".envrc")
    tree = git(tooled, "write-tree").strip()
    content = subprocess.run(["git", "-C", tooled, "cat-file", "tree", tree], capture_output=True, check=True).stdout
    forged = Path(f"{tooled}/.git/objects/{(old := git(tooled, 'rev-parse', f'{tip}^{{tree}}').strip())[:2]}/{old[2:]}")
    forged.unlink()
    forged.write_bytes(zlib.compress(b"tree %d\0%b" % (len(content), content)))
    assert git(tooled, "show", f"{tip}:.envrc") == "evil\n", "the control: git believes it"
    assert not holds(".envrc")


def test_a_hostile_repository_makes_git_run_nothing_and_is_not_waited_for(tooled, holds, monkeypatch):
    evil = tooled / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tooled}/MARK\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand", "extensions.partialClone"):
        git(tooled, "config", key, str(evil))
    (tooled / ".git/objects/info/alternates").write_text("/etc\n")
    assert holds(".envrc")
    tip = git(tooled, "-c", "core.fsmonitor=false", "rev-parse", "HEAD").strip()
    loose = tooled / f".git/objects/{tip[:2]}/{tip[2:]}"
    loose.unlink()
    os.mkfifo(loose)
    with monkeypatch.context() as impatient:
        impatient.setattr(tip_proofs, "_PATIENCE_S", 1.0)
        assert not holds(".envrc")
    loose.unlink()
    (tooled / ".git/objects").rename(tooled / "objects")
    (tooled / ".git/objects").symlink_to("../objects")
    assert not holds(".envrc"), "a link in its place leads nowhere"
    assert not (tooled / "MARK").exists()


def test_without_a_note_nothing_is_known(tooled, holds, tmp_path):
    (tmp_path / "tips").unlink()
    assert not holds(".envrc")
    (tmp_path / "tips").write_bytes(b"\xff\n" * 10 + b"--help\n")
    assert not holds(".envrc")
