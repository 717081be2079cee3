"""A person's configuration as git answers in a real sandbox, with all files that git on the host reads."""

import os
from dataclasses import replace

import pytest

from substrat.daemon.clones.git_sandbox import GitSandbox
from substrat.daemon.clones.persons_git import PersonsGitReader
from substrat.daemon.clones.repository import Repositories
from substrat.daemon.workspaces.git_places import Borrowing


@pytest.fixture
def read(room, bubblewrap):
    """Read the configuration in a checkout, with a HOME."""

    async def found():
        return bubblewrap

    async def nothing():
        return ()

    sandbox = GitSandbox(found, nothing)

    async def ask(git_dir, home=room.home):
        environ = {**room.environ, "HOME": str(home)}
        reader = PersonsGitReader(sandbox, Repositories(sandbox, Borrowing(())), environ)
        return (await reader.read(room.clone, str(git_dir), (room.tip(),))).settings

    return ask


async def test_includes_and_conditions_count_as_on_the_host_in_linked_worktrees_too(room, read):
    """With a home behind a link, too, as on systems whose `/home` is one."""
    (room.top / ".git" / "filters").write_text('[filter "odd"]\n\tclean = sh tool\n')
    room.git("config", "include.path", "filters")
    with (room.home / ".gitconfig").open("a") as config:
        config.write('[includeIf "gitdir:~/"]\n\tpath = ~/work\n[include]\n\tpath = /no/such\n')
    (room.home / "work").write_text("[user]\n\temail = work@example.invalid\n")
    linked = room.home / "linked"
    room.git("worktree", "add", "-q", str(linked))
    room.git("config", "extensions.worktreeConfig", "true")
    room.git("config", "--worktree", "core.attributesFile", "/rules", at=linked)
    home = room.home.parent / "link"
    home.symlink_to(room.home)
    in_main = await read(room.top / ".git", home)
    assert (in_main.name, in_main.email, in_main.filters) == ("Me", "me@example.invalid", {"odd": ("sh tool",)})
    in_linked = await read(room.top / ".git" / "worktrees" / "linked", home)
    assert in_linked == in_main._replace(attributes="/rules")
    assert room.git("config", "user.email", at=linked) == "me@example.invalid", "the git directory lies elsewhere"
    room.git("config", "core.worktree", str(room.top))
    moved = room.home / "app.git"
    os.rename(room.top / ".git", moved)
    room.clone = replace(room.clone, git_dir=str(moved))
    (room.top / ".git").write_text(f"gitdir: {moved}\n")
    assert (await read(moved, home)).email == "work@example.invalid"
