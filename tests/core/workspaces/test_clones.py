"""Names of clones' refs: ours agree with git's own check."""

import subprocess
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.workspaces.clones import Clone, Kept, ref_problem
from tests.support.cases import each


def git_takes(name):
    return subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False).returncode == 0


NAMES = """
    fix substrat/fix a.b a..b a.lock a.lock/b .a a/.b a. a~1 a^ a:b a?b a[b a*b a\\b a@{b -a /a a/ a//b ä a@b {a}
"""


@each("name", [*NAMES.split(), "a b", "a\x7fb"])
def test_a_name_is_refused_as_git_refuses_it(name):
    assert (ref_problem(name) is None) is git_takes(name)


@settings(max_examples=60)
@given(st.text("ab./@{}-~ \\^:?*[lock", min_size=1, max_size=8))
def test_no_name_is_taken_that_git_refuses(name):
    assert git_takes(name) or ref_problem(name) is not None


def test_a_clone_with_unlanded_commits_is_unlanded():
    clone = Clone("id", "fix", "/trees/id", "/app", "/app/.git", "/app", "substrat/fix")
    assert not clone.is_unlanded
    assert replace(clone, kept=Kept(1, 1.0, "abc", "def", ahead=2, landed=False)).is_unlanded
    assert clone.turn_ref(3) == "refs/substrat/fix/turns/3"
