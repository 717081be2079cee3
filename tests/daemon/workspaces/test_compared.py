"""Files of git directories that git obeys and an agent's git must write: a turn's end compares them."""

import os
import subprocess

import pytest

from substrat.daemon.workspaces import protected_paths
from substrat.daemon.workspaces.workspace_scan import scan
from tests.daemon.workspaces.repositories import git

REPLACE = "git replace $(git rev-parse HEAD) $(git -c user.name=a -c user.email=b commit-tree -m x HEAD^{tree})"
WAYS = {
    "a rule": ("echo '/new' >> .git/info/exclude", "info/exclude"),
    "a rule in the place of a comment": ("printf '/new' > .git/info/exclude", "info/exclude"),
    "a link": ("ln -sf ../../rules .git/info/exclude", "info/exclude"),
    "a FIFO": ("rm -f .git/info/exclude; mkfifo .git/info/exclude", "info/exclude"),
    "a graft": ("git rev-parse HEAD > .git/info/grafts", "info/grafts"),
    "the end of the history": ("git rev-parse HEAD > .git/shallow", "shallow"),
    "a replaced object": (REPLACE, "refs/replace"),
    "a packed replaced object": (f"{REPLACE}; git pack-refs --all", "packed-refs"),
    "a step of a rebase": ("echo 'exec touch x' >> .git/rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo"),
    "a merge by a program": ("echo ../evil > .git/rebase-merge/strategy", "rebase-merge/strategy"),
    "a cherry-pick": ("mkdir .git/sequencer; echo 'exec x' > .git/sequencer/todo", "sequencer/todo"),
}


@pytest.fixture
def rebasing(repository):
    """A repository with commits, a rebase under way and a rule of the person's own."""
    for number in range(3):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"{number}")
    edit = ("-c", "sequence.editor=sed -i s/^pick/edit/", "-c", "core.editor=true")
    git(repository, *edit, "rebase", "-q", "-i", "HEAD~2")
    (repository / ".git/info/exclude").write_text("# mine\n*.o\n")
    return repository


def news(repository, script):
    """What a turn's end tells after a script, below `.git`."""
    before = protected_paths.decode(protected_paths.encode(scan(str(repository))))
    assert before is not None
    subprocess.run(["sh", "-ec", script], cwd=repository, check=True, env={**os.environ, "HOME": str(repository)})
    found = protected_paths.changes(before, scan(str(repository)))
    return [os.path.relpath(path, repository / ".git") for path in found]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_turn_changes_in_them_is_told_once(rebasing, way):
    script, path = WAYS[way]
    assert news(rebasing, script) == [path]
    assert news(rebasing, "touch new") == []


def test_ordinary_work_and_what_was_there_before_is_nothing_new(rebasing):
    (rebasing / ".git/shallow").touch()
    git(rebasing, "replace", "--graft", "HEAD")
    commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
    assert news(rebasing, f"{commit}; git tag one; git pack-refs --all; {commit}; git gc -q") == ["packed-refs"]
    assert news(rebasing, f"{commit}; git tag two; git pack-refs --all; git gc -q; rm .git/info/exclude") == []


def test_a_linked_worktrees_own_rebase_is_compared_too(repository):
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "worktree", "add", "-q", repository / "linked")
    script = "mkdir .git/worktrees/linked/rebase-merge; echo 'exec x' > .git/worktrees/linked/rebase-merge/git-rebase-todo"
    assert news(repository, script) == ["worktrees/linked/rebase-merge/git-rebase-todo"]


def test_what_an_earlier_daemon_did_not_look_at_is_not_told(repository):
    before = protected_paths.decode(b'{"underway": {"/w/.git/sequencer/todo": ["exec x"]}, "hiding": {}}')
    assert before is not None
    (repository / ".git/info/exclude").write_text("new\n")
    assert str(repository / ".git/info/exclude") not in protected_paths.changes(before, scan(str(repository)))
