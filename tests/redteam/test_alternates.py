"""Lists of alternates that an agent in place writes, so that a clone of the repository shows what nobody has shown it."""

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import app, git

__all__ = ["app"]


@pytest.fixture
def secrets(daemon):
    """Notes in a directory that has an `info`, and a repository, both in the person's home."""
    notes, other = daemon.home / "notes", daemon.home / "other"
    (notes / "info").mkdir(parents=True)
    (notes / "diary").write_text("my diary\n")
    other.mkdir()
    git(daemon, other, "init", "-q", "-b", "main")
    (other / "secret.txt").write_text("my secret\n")
    git(daemon, other, "add", "-A")
    git(daemon, other, "commit", "-qm", "secret")
    return git(daemon, other, "rev-parse", "HEAD:secret.txt")


def seen(daemon, name, blob):
    """Return what an agent in a clone sees of the borrowed objects, and of a blob of the other repository."""
    words = f"/shell find /run/substrat/objects -type f | grep -c diary; git cat-file -p {blob} 2>&1; true"
    daemon.ok("send", name, words, "--wait")
    return daemon.shell(name)


@pytest.mark.parametrize("way", ["written", "moved", "made"])
def test_a_list_of_alternates_shows_a_clone_nothing_that_it_had_not(daemon, app, secrets, way):
    """`made`: git's directories of objects were removed before, as some tools leave them."""
    if way == "made":
        (app / ".git" / "objects" / "info").rmdir()
    daemon.start()
    lines = f"printf '%s\\n' {daemon.home}/notes {daemon.home}/other/.git/objects"
    tries = {
        "written": f"{lines} > .git/objects/info/alternates",
        "moved": f"mv .git/objects/info .git/objects/x; mkdir .git/objects/info; {lines} > .git/objects/info/alternates",
        "made": f"mkdir .git/objects/info; {lines} > .git/objects/info/alternates",
    }
    daemon.spawn("bad", app, f"/shell {tries[way]}", "--network", "none")
    assert git(daemon, app, "status", "--short") == ""
    daemon.spawn("child", app, "/shell true", "--clone")
    assert seen(daemon, "child", secrets).splitlines() == ["0", f"fatal: Not a valid object name {secrets}"]


def test_a_repository_that_an_agent_has_made_lends_nothing(daemon, secrets):
    """Before it there was none, so nothing of its list was ever a person's."""
    daemon.start()
    work = daemon.workspace()
    make = (
        f"git init -q -b main inner; echo {daemon.home}/other/.git/objects > inner/.git/objects/info/alternates; cd inner; "
        "git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x"
    )
    daemon.spawn("bad", work, f"/shell {make}", "--network", "none")
    daemon.spawn("child", work / "inner", "/shell true", "--clone")
    assert f"Not a valid object name {secrets}" in seen(daemon, "child", secrets)
    said = daemon.ctl("spawn", "told", "-w", work / "inner", "--clone")
    assert "repack -a -d` copies those that it needs" in said.err, said
    # A person who has looked may want just that; what another agent's finding tells isn't what he has looked at.
    daemon.spawn("good", work, "/shell touch .envrc2; mkdir -p sub; echo x > sub/.envrc")
    wait_until(lambda: daemon.show("good")["attention"]["kind"] == "unsafe")
    daemon.ok("accept", "good")
    assert daemon.show("bad")["attention"]["kind"] == "unsafe"
    daemon.spawn("early", work / "inner", "/shell true", "--clone")
    assert f"Not a valid object name {secrets}" in seen(daemon, "early", secrets)
    daemon.ok("accept", "bad")
    daemon.spawn("other", work / "inner", "/shell true", "--clone")
    assert "my secret" in seen(daemon, "other", secrets)


def test_a_list_of_an_agents_counts_for_no_directory_above_either(daemon, secrets):
    daemon.start()
    work = daemon.workspace()
    (work / "part").mkdir()
    lend = f"echo {daemon.home}/other/.git/objects > {{0}}/.git/objects/info/alternates"
    make = "git init -q -b main {0}; git -C {0} -c user.name=x -c user.email=x@y commit -q --allow-empty -m x; " + lend
    daemon.spawn("bad", work / "part", f"/shell {make.format('inner')}", "--network", "none")
    daemon.ok("end", "bad")
    daemon.spawn("worse", work, f"/shell {make.format('made')}", "--network", "none")
    for number, place in enumerate((work / "made", work / "part" / "inner")):
        daemon.spawn(f"child{number}", place, "/shell true", "--clone")
        assert f"Not a valid object name {secrets}" in seen(daemon, f"child{number}", secrets)


def test_a_list_of_the_persons_own_goes_on_to_count(daemon, secrets):
    borrowing = daemon.home / "borrowing"
    git(daemon, daemon.home, "clone", "-q", "--shared", str(daemon.home / "other"), str(borrowing))
    daemon.start()
    daemon.spawn("here", borrowing, "/say hi")
    daemon.spawn("fix", borrowing, "/shell true", "--clone")
    assert "my secret" in seen(daemon, "fix", secrets)


def test_a_repository_that_borrows_of_many_has_clones_that_work_with_the_first_of_them(daemon, app, secrets):
    others = [daemon.home / f"bare{number}" for number in range(40)]
    for other in others:
        git(daemon, daemon.home, "init", "-q", "--bare", str(other))
    lists = [daemon.home / "other" / ".git", *others]
    (app / ".git" / "objects" / "info" / "alternates").write_text("".join(f"{git_dir}/objects\n" for git_dir in lists))
    daemon.start()
    said = daemon.ctl("spawn", "fix", "-w", app, "/shell echo x > x", "--clone", "--wait")
    assert "borrows those of more than 31 repositories" in said.err, said
    assert "my secret" in seen(daemon, "fix", secrets)
    assert git(daemon, app, "show", "refs/substrat/fix/wip:x") == "x"
