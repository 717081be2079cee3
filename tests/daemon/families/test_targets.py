"""Whether a clone's branch is still there, as a person's git leaves it."""

import subprocess
from dataclasses import replace

import pytest

from substrat.core.workspaces.clones import Clone
from substrat.daemon.families import targets


@pytest.fixture
def repository(tmp_path):
    """A repository with a branch `main`, and one `team/main`."""

    def git(*words):
        line = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-C", str(tmp_path), *words]
        subprocess.run(line, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("branch", "team/main")
    return git, tmp_path


def clone_into(target, top):
    return Clone("a", "a", "/trees/a", str(top), f"{top}/.git", str(top), "substrat/a", target, "b" * 40)


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_is_gone_when_neither_a_file_nor_the_packed_refs_have_it(repository, packed):
    git, top = repository
    if packed:
        git("pack-refs", "--all")
    found = {name: targets.is_gone(clone_into(name, top)) for name in ("main", "team/main", "team", "mai", "m/main")}
    assert found == {"main": False, "team/main": False, "team": True, "mai": True, "m/main": True}
    git("branch", "-m", "main", "trunk")
    assert targets.is_gone(clone_into("main", top))


def test_what_cannot_be_known_or_is_still_to_be_made_is_not_gone(repository):
    _, top = repository
    clone = clone_into("gone", top)
    assert targets.is_gone(clone)
    for other in (replace(clone, target=None), replace(clone, base=None), replace(clone, git_dir="/nowhere")):
        assert not targets.is_gone(other)
    (top / ".git" / "packed-refs").write_bytes(b"#" * (2 << 20))
    assert not targets.is_gone(clone), "there may be too many refs"
    heads = top / ".git" / "refs" / "heads"
    heads.rename(f"{heads}.away")
    heads.write_text("this repository uses the reftable format\n")
    (top / ".git" / "packed-refs").unlink()
    assert not targets.is_gone(clone)
