"""Scans of git directories: submodules, worktrees, odd files, and the programs that git's configuration names."""

import os
import shutil
from pathlib import Path

import pytest

from substrat.daemon.workspaces import placeholders, protected_paths
from substrat.daemon.workspaces.scan_record import Bounds
from substrat.daemon.workspaces.workspace_scan import scan
from substrat.errors import WorkspaceUnusable
from tests.daemon.workspaces.repositories import found, git


def test_a_repository_cannot_be_renamed_and_its_configuration_not_changed(repository):
    seen = found(repository)
    assert {".git", ".git/info"} <= seen["pinned"]
    assert {".git/config", ".git/hooks"} <= seen["read_only"]
    assert {".git/commondir", ".git/config.worktree"} <= seen["missing"]


def test_submodules_and_linked_worktrees(repository, tmp_path):
    git(repository, "init", "-q", tmp_path / "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", "--name", "deep/mod", tmp_path / "other", "mod")
    git(repository, "worktree", "add", "-q", tmp_path / "linked")
    seen = found(repository)
    module = ".git/modules/deep/mod"
    assert {".git/modules", ".git/modules/deep", module} <= seen["pinned"]
    assert {f"{module}/config", "mod/.git", ".git/worktrees"} <= seen["read_only"]
    assert ".git/worktrees/linked" not in seen["pinned"], "it lies outside of the workspace"
    assert f"{module}/commondir" in seen["missing"]


def test_a_worktree_in_the_workspace_works_and_is_protected(repository):
    git(repository, "worktree", "add", "-q", repository / "inner")
    seen = found(repository)
    assert ".git/worktrees" in seen["read_only"]
    assert ".git/worktrees/inner" in seen["pinned"]
    assert {".git/worktrees/inner/commondir", ".git/worktrees/inner/gitdir", "inner/.git"} <= seen["read_only"]
    assert ".git/worktrees/inner/config.worktree" in seen["missing"]


def planted(place):
    """What an agent may have put where git's directory of worktrees is to be kept, in a repository of its own making."""
    place.mkdir(parents=True)
    (place / "HEAD").touch()
    yield "an entry that leads nowhere"
    (place / "locked").symlink_to("/etc/hostname")
    yield "a link in it"
    (place / "locked").unlink()
    (place / "gitdir").write_text(f"{place}\n")
    yield "an entry that leads into the workspace"
    shutil.rmtree(place)
    place.symlink_to("/etc")
    yield "a link"
    place.unlink()
    place.write_text("x")
    yield "a file"
    place.unlink()
    place.parent.rmdir()
    os.mkfifo(place.parent)
    yield "something else above it"


def test_what_an_agent_has_put_in_the_place_of_a_kept_worktree_is_read_only_and_ends_no_turn(repository):
    git(repository, "init", "-q", repository / "sub")
    for case in planted(repository / "sub/.git/worktrees/substrat"):
        seen = scan(str(repository))
        is_open = f"{repository}/sub/.git/worktrees/substrat" in seen.pinned
        assert is_open == (case == "an entry that leads into the workspace"), case
        assert f"{repository}/sub/.git/worktrees" in seen.read_only, case
        made = (*seen.missing, *seen.keepers)
        assert placeholders.make_all(made) == made, case
        placeholders.remove_all(sorted(made, reverse=True))


@pytest.mark.parametrize(
    "name", ["modules", "worktrees", "info", "hooks", "commondir", "HEAD", "modules/x", "index", "config"]
)
@pytest.mark.parametrize("kind", ["fifo", "file"])
@pytest.mark.parametrize("where", [".git", "sub/.git"])
def test_what_is_no_directory_or_no_file_is_no_error(repository, where, name, kind):
    git(repository, "init", "-q", repository / "sub")
    place = repository / where / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    (os.mkfifo if kind == "fifo" else Path.touch)(place)
    seen = found(repository)
    if name in {"modules", "worktrees", "info", "hooks", "commondir", "config"}:
        assert f"{where}/{name}" in seen["read_only"]
    assert "sub/.git" in seen["pinned"]
    assert f"{where}/worktrees" in seen["missing"] | seen["read_only"]


def test_of_many_repositories_all_are_read_only_in_part_or_as_wholes(work):
    git(work, "init", "-q", work / "r0")
    for number in range(1, 200):
        shutil.copytree(work / "r0", work / f"r{number}")
    seen = scan(str(work), bounds=Bounds(seconds=60.0))
    assert seen.notes == ()
    assert len(seen.whole) == 184
    assert len(seen.mounts) < 640
    for number in range(200):
        own = f"{work}/r{number}/.git"
        assert own in seen.whole or {f"{own}/config", f"{own}/hooks"} <= {*seen.read_only, *seen.missing}
        assert f"{work}/r{number}" in seen.pinned


def test_a_link_in_a_whole_read_only_git_directory_is_told(work):
    for number in range(3):
        git(work, "init", "-q", work / f"r{number}")
        shutil.rmtree(work / f"r{number}/.git/hooks", ignore_errors=True)
        (work / f"r{number}/.git/hooks").symlink_to("../../hooks")
    seen = scan(str(work), bounds=Bounds(writable=0))
    assert len(seen.whole) == 3
    (note,) = seen.notes
    assert note.count("/.git/hooks") == 3


def test_what_configurations_name_is_looked_up_to_a_bound(repository):
    """An agent's own nested repositories count, so their number and size are its to choose."""
    settings = "[alias]\n" + "".join(f"\ta{number} = !./p{number}\n" for number in range(600))
    (repository / ".git" / "config").write_text(settings)
    seen = scan(str(repository))
    assert len(seen.unprotectable) <= 512
    assert any(".git/config" in note for note in seen.notes if note.startswith("too much"))


def test_a_program_named_from_the_worktrees_top_is_protected(repository):
    (repository / "tools").mkdir()
    (repository / "tools" / "monitor").write_text("")
    for value in ("$(git rev-parse --show-toplevel)/tools/monitor", "$PWD/tools/monitor"):
        git(repository, "config", "core.fsmonitor", value)
        assert "tools/monitor" in found(repository)["read_only"]


def settings_told(repository, text):
    with open(repository / ".git" / "config", "a") as file:
        file.write(text)
    return [name for name, _ in scan(str(repository)).unprotectable]


TOLD = {
    "a module": ('[filter "n"]\n\tclean = python3 -m nbstripout\n', "filter.n.clean"),
    "beside a script": ('[filter "x"]\n\tclean = python3 tools/clean.py\n', "filter.x.clean"),
    "not there": ('[difftool "meld"]\n\tpath = tools/meld\n', "difftool.meld.path"),
    "a value": ("[something]\n\tnew = tools/new\n", "something.new"),
    "nested": ("[filter \"x\"]\n\tclean = sh -c 'tools/new %f'\n", "filter.x.clean"),
}


@pytest.mark.parametrize(("text", "name"), TOLD.values(), ids=TOLD)
def test_what_git_would_run_of_the_workspace_is_told(repository, text, name):
    (repository / "tools").mkdir()
    (repository / "tools" / "clean.py").write_text("import json\n")
    assert settings_told(repository, text) == [name]


def test_a_program_of_a_setting_that_no_table_names_is_read_only(repository):
    (repository / "tools").mkdir()
    (repository / "tools" / "meld").write_text("#!/bin/sh\n")
    text = '[difftool "meld"]\n\tpath = tools/meld\n[lfs "customtransfer.x"]\n\tpath = tools/meld\n'
    assert settings_told(repository, text) == []
    assert str(repository / "tools" / "meld") in scan(str(repository)).read_only


ORDINARY = """
[remote "origin"]
	url = https://example.invalid/a/b.git
	fetch = +refs/heads/*:refs/remotes/origin/*
	gh-resolved = base
	promisor = true
	partialclonefilter = blob:none
[branch "feature/x"]
	remote = origin
	merge = refs/heads/feature/x
	base = origin/main
[user]
	name = A B
	email = a@b.invalid
	signingkey = ~/.ssh/id.pub
[gpg]
	format = ssh
[gpg "ssh"]
	allowedSignersFile = ~/.ssh/allowed_signers
[commit]
	template = .github/template
[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = git-lfs smudge -- %f
	process = git-lfs filter-process
	required = true
[lfs "https://example.invalid/a/b.git/info/lfs"]
	access = basic
[lfs]
	url = https://example.invalid/lfs
[submodule "vendor/lib"]
	url = ../lib.git
	active = true
[core]
	sshCommand = ssh -i ~/.ssh/work -o IdentitiesOnly=yes
	excludesFile = ~/.gitignore
	pager = delta --dark
	worktree = ../../../vendor/lib
[credential "https://example.invalid"]
	helper = !/usr/bin/gh auth git-credential
	useHttpPath = true
[url "git@example.invalid:"]
	insteadOf = https://example.invalid/
[gitflow "prefix"]
	feature = feature/
[merge]
	tool = vimdiff
[difftool "vscode"]
	cmd = code --wait --diff $LOCAL $REMOTE
[mergetool "x"]
	path = C:/Program Files/Meld/meld.exe
[merge "mergiraf"]
	driver = mergiraf merge --git %O %A %B -s %S -x %X -y %Y -p %P
[diff "jupyternotebook"]
	command = git-nbdiffdriver diff
[diff "golang"]
	xfuncname = "^[ \\t]*(func|type)/x"
[svn-remote "svn"]
	fetch = trunk:refs/remotes/origin/trunk
[alias]
	lg = log --graph
	root = !git rev-parse --show-toplevel
	fix = !sed s/a/b/ x
[http]
	proxy = http://127.0.0.1:3128
[extensions]
	worktreeConfig = true
"""


def test_an_ordinary_configuration_gives_no_alarm(repository):
    assert settings_told(repository, ORDINARY) == []


@pytest.mark.parametrize("place", ["", "nested"])
@pytest.mark.parametrize("name", ["objects", "objects/info"])
def test_a_link_at_a_directory_of_objects_is_told_and_mounted_over_nothing(repository, place, name):
    top = repository / place if place else repository
    if place:
        git(repository, "init", "-q", place)
    path = top / ".git" / name
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path.name}.moved")
    if not place and name == "objects/info":
        with pytest.raises(WorkspaceUnusable, match=r"objects/info is a link"):
            scan(str(repository))
        return
    found = scan(str(repository))
    assert any(f"links can't be protected: {path}" in note for note in found.notes)
    assert not [one for one in found.mounts if one.startswith(str(path))]


def test_a_repository_whose_refs_are_in_tables_gets_no_directory_that_is_joined_to_it(repository):
    """git could commit nothing there; one that is made all the same is told."""
    before = scan(str(repository))
    assert f"{repository}/.git/commondir" in before.missing
    git(repository, "config", "core.repositoryFormatVersion", "1")
    (repository / ".git/config").write_text(
        (repository / ".git/config").read_text() + "[extensions]\n\trefStorage = reftable\n"
    )
    seen = scan(str(repository))
    assert set(before.missing) - set(seen.missing) == {f"{repository}/.git/commondir"}
    (repository / ".git/commondir").write_text("../x\n")
    assert protected_paths.changes(seen, scan(str(repository))) == [f"{repository}/.git/commondir"]


def test_a_branch_that_no_file_can_be_named_after_breaks_no_scan(repository):
    git(repository, "init", "-q", "nested")
    for head in (b"ref: refs/heads/a\0b\n", b"ref: refs/heads/" + b"x" * 300):
        for place in (repository, repository / "nested"):
            (place / ".git" / "HEAD").write_bytes(head)
        assert f"{repository}/nested/.git/config" in scan(str(repository)).read_only
