"""What git runs when a person goes on with a rebase that was left under way."""

import pytest

from substrat.core.workspaces import git_sequencer


@pytest.mark.parametrize(("name", "data", "lines"), [
    ("git-rebase-todo", b"pick 1 x\n# exec x\n\nfixup -C 2\nupdate-ref refs/heads/x\n", ()),
    ("git-rebase-todo", b"pick 1 x\n  x make\nexec\ttouch y\r\n", ("x make", "exec\ttouch y")),
    ("git-rebase-todo", b"new thing\n", ("new thing",)),
    ("strategy", b"ort\n", ()),
    ("strategy", b"../../evil\n", ("strategy ../../evil",)),
    ("opts", b"[options]\n\tstrategy = ours\n\tedit = true\n", ()),
    ("opts", b"[options]\n\tstrategy = ../../evil\n", ("strategy ../../evil",)),
])  # fmt: skip
def test_what_runs(name, data, lines):
    assert git_sequencer.runs(name, data) == lines


def test_only_what_is_new_is_told():
    before = {"/todo": ("exec make", "exec make")}
    assert list(git_sequencer.changes(before, {"/todo": ("exec make",)})) == []
    ((path, text),) = git_sequencer.changes(before, {"/todo": ("exec make", "exec make", "exec make", "exec evil")})
    assert path == "/todo"
    assert "would run 'exec make', 'exec evil'" in text
