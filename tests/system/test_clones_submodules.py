"""Submodules in private clones: filled from the user's own repositories, without a network, and nothing of them is lost."""

import pytest

from tests.system.test_clones import app, git

__all__ = ["app"]

FILE = ("-c", "protocol.file.allow=always")


def repository(house, name, files):
    """A repository with one commit."""
    work = house.workspace(name, git=True)
    for path, text in files.items():
        (work / path).write_text(text)
    git(house, work, "add", "-A")
    git(house, work, "commit", "-qm", f"files of {name}")
    return work


@pytest.fixture
def nested(house, app):
    """`app` with the submodule `libs/json`, in which there is the submodule `inner`."""
    inner, lib = repository(house, "inner", {"deep.txt": "deep\n"}), repository(house, "lib", {"lib.txt": "lib\n"})
    git(house, lib, *FILE, "submodule", "--quiet", "add", str(inner), "inner")
    git(house, lib, "commit", "-qm", "inner")
    git(house, app, *FILE, "submodule", "--quiet", "add", str(lib), "libs/json")
    git(house, app, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    git(house, app, "commit", "-qm", "libs/json")
    return app


def test_submodules_are_there_at_the_commits_of_the_base_without_a_network(house, nested):
    git(house, nested / "libs" / "json", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x", "--allow-empty")
    house.start()
    look = (
        "cat libs/json/lib.txt libs/json/inner/deep.txt; git status --short; git submodule update --init --recursive; "
        "git submodule status --recursive | cut -c 1"
    )
    house.spawn("fix", nested, f"/shell {look}", "--clone", "--network", "none")
    assert house.shell("fix") == "lib\ndeep\n \n \n"
    assert "x" in git(house, nested / "libs" / "json", "log", "-1", "--format=%s")


COMMIT = (
    "cd libs/json; git checkout -q -b mine; echo new > new.txt; git add .; git commit -qm 'in the submodule'; cd ../..; "
    "git add libs/json; git commit -qm 'the submodule moves'"
)


def test_a_submodules_commit_is_handed_over_as_a_bundle_and_the_superprojects_lands(house, nested):
    house.start()
    house.spawn("fix", nested, f"/shell {COMMIT}", "--clone", "--network", "none")
    head = git(house, nested, "rev-parse", "refs/substrat/fix/head:libs/json")
    bundle = house.directory / "json.bundle"
    line = ("exec", "fix", "--", "git", "-C", "libs/json", "bundle", "create", "-", "mine", "--not", "--remotes")
    bundle.write_bytes(house.follow(*line).communicate()[0])
    git(house, nested / "libs" / "json", "-c", "transfer.fsckObjects=true", "fetch", "-q", str(bundle), "mine:mine")
    at = git(house, nested, "rev-parse", "refs/substrat/fix/head")
    house.ok("merge", "fix", "--accept", "libs/json", "--at", at)
    git(house, nested, "submodule", "--quiet", "update")
    assert git(house, nested / "libs" / "json", "rev-parse", "HEAD") == head
    assert (nested / "libs" / "json" / "new.txt").read_text() == "new\n"
    # The person's branches are known in the clone at the next turn's start, so nothing is only there.
    house.ok("send", "fix", "--wait", "/say done")
    assert "its clone is removed" in house.ctl("rm", "fix").out


@pytest.mark.parametrize(
    ("deeds", "told"),
    [
        (COMMIT, "1 commit in a submodule"),
        ("echo x > libs/json/inner/new.txt", "files of repositories inside it"),
        (f"{COMMIT}; git rm -qf libs/json; git commit -qm 'without it'", "1 commit in a submodule"),
        ("cd libs/json; echo x >> lib.txt; git stash -q", "commits in submodules"),
        (
            "cd libs/json; echo x > x; mkdir -p {0}; echo x > {0}/exclude".format("../../.git/modules/libs/json/info"),
            "ignored file",
        ),
    ],
)
def test_rm_leaves_a_clone_in_whose_submodules_something_is_that_is_nowhere_else(house, nested, deeds, told):
    house.start()
    house.spawn("fix", nested, f"/shell {deeds}", "--clone", "--network", "none")
    said = house.ctl("rm", "fix")
    assert "stays, because" in said.out + said.err, said
    assert told in said.out + said.err, said


def test_a_clone_whose_submodules_are_as_they_were_goes(house, nested):
    house.start()
    house.spawn("fix", nested, "/shell ls", "--clone", "--network", "none")
    assert "its clone is removed" in house.ctl("rm", "fix").out
