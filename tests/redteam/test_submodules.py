"""Submodules that an agent names, and links among the repositories of a person's: clones run and show nothing by them."""

from pathlib import Path

import pytest

from tests.system.test_clones import app, fingerprint, git
from tests.system.test_clones_submodules import nested

__all__ = ["app", "nested"]


@pytest.fixture
def secret(daemon):
    """A repository of the person's that no agent is to see; returns it, and a blob in it."""
    other = daemon.home / "other"
    other.mkdir()
    git(daemon, other, "init", "-q", "-b", "main")
    (other / "secret.txt").write_text("my secret\n")
    git(daemon, other, "add", "-A")
    git(daemon, other, "commit", "-qm", "secret")
    return other, git(daemon, other, "rev-parse", "HEAD:secret.txt")


def test_links_among_the_repositories_of_submodules_show_nothing(daemon, nested, secret):
    other, blob = secret
    modules = nested / ".git" / "modules"
    (modules / "direct").symlink_to(other / ".git")
    (modules / "libs" / "inner").mkdir()
    for name in ("HEAD", "refs", "config"):
        (modules / "libs" / "inner" / name).symlink_to(other / ".git" / name)
    (modules / "libs" / "inner" / "objects").symlink_to(other / ".git" / "objects")
    (modules / "libs" / "json" / "lfs").symlink_to(other)
    (modules / "libs" / "json" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    daemon.start()
    look = (
        f"find /run/substrat -name '*secret*' -o -name {blob[2:]}; find /run/substrat/modules -maxdepth 4 -name objects; "
        f"cat libs/json/lib.txt; for at in . libs/json; do git -C $at cat-file -p {blob}; done 2>&1; true"
    )
    daemon.spawn("fix", nested, f"/shell {look}", "--clone")
    none = f"fatal: Not a valid object name {blob}\n"
    assert daemon.shell("fix") == f"/run/substrat/modules/modules/libs/json/objects\nlib\n{none}{none}"


HOSTILE = """\
[submodule "../../escape"]
	path = a
	url = {url}
[submodule "libs/json"]
	path = b/c
	url = ext::sh -c 'touch {ran}'
	update = !touch {ran}
[submodule "libs/json/modules/inner"]
	path = libs/json
	url = -u./evil
[submodule "libs/json/objects"]
	path = d
	url = --upload-pack=touch {ran}
[submodule "x"]
	path = ../up
	url = {url}
"""


def test_a_commits_submodules_run_nothing_and_lead_nowhere(daemon, nested, secret):
    """A person may fetch such a commit; one of an agent's comes into no repository, because git refuses such names."""
    ran = daemon.home / "ran"
    known = git(daemon, nested, "rev-parse", "HEAD:libs/json")
    git(daemon, nested, "switch", "-qc", "evil")
    (nested / ".gitmodules").write_text(HOSTILE.format(ran=ran, url=nested))
    (nested / "link").symlink_to(secret[0])
    git(daemon, nested, "add", "-A")
    for path in ("a", "b/c", "d"):
        git(daemon, nested, "update-index", "--add", "--cacheinfo", f"160000,{known},{path}")
    git(daemon, nested, "commit", "-qm", "evil")
    git(daemon, nested, "switch", "-q", "main")
    daemon.start()
    before, outside = fingerprint(nested), sorted(Path(daemon.state).parent.iterdir())
    look = "ls -A a b/c d libs/json; ls .git/modules; git status --short; git submodule update"
    daemon.spawn("fix", nested, f"/shell {look}", "--clone", "--base", "evil")
    # `b/c` has the name of a submodule that the person has, and the same commit; the others stay empty.
    said = daemon.shell("fix")
    assert said.startswith("a:\n\nb/c:\n.git\n.gitmodules\nREADME.md\ninner\nlib.txt\n\nd:\n\nlibs/json:\nlibs\n"), said
    assert not ran.exists()
    assert fingerprint(nested) == before
    assert sorted(Path(daemon.state).parent.iterdir()) == outside


def test_an_agents_own_commit_of_such_names_is_kept_nowhere(daemon, nested):
    daemon.start()
    text = r'[submodule "../../up"]\n\tpath = up\n\turl = ./x\n'
    daemon.spawn(
        "bad", nested, f"/shell printf '{text}' > .gitmodules; git add .gitmodules; git commit -qm evil", "--clone"
    )
    assert "git refuses to take it into" in daemon.events("bad", "clone:not-kept")[-1]["text"]
    assert git(daemon, nested, "for-each-ref", "refs/substrat/bad/head") == ""
