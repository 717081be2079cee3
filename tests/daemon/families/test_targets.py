"""Whether a clone's branch is still there, as a person's git leaves it."""

import subprocess

import pytest

from substrat.daemon.families.targets import gone


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


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_is_gone_when_neither_a_file_nor_the_packed_refs_have_it(repository, packed):
    git, top = repository
    if packed:
        git("pack-refs", "--all")
    assert gone(f"{top}/.git", ("main", "team/main", "team", "mai", "m/main")) == {"team", "mai", "m/main"}
    git("branch", "-m", "main", "trunk")
    assert gone(f"{top}/.git", ("main",)) == {"main"}


def test_what_cannot_be_known_or_is_still_to_be_made_is_not_gone(repository):
    _, top = repository
    place, names = f"{top}/.git", ("gone",)
    assert gone(place, names) == {"gone"}
    assert not gone("/nowhere", names)
    (top / ".git" / "packed-refs").write_bytes(b"#" * (2 << 20))
    assert not gone(place, names), "there may be too many refs"
    heads = top / ".git" / "refs" / "heads"
    heads.rename(f"{heads}.away")
    heads.write_text("this repository uses the reftable format\n")
    (top / ".git" / "packed-refs").unlink()
    assert not gone(place, names)
