"""Repositories whose parts lie elsewhere than git puts them, for clones and in place; remedies are typed as they stand."""

import hashlib
import re
import subprocess

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, git

__all__ = ["app"]


def type_remedy(sentence):
    """Type the command that stands between backticks in a sentence, and return what it prints."""
    command = re.search(r"`([^`]+)`", sentence).group(1)
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout


def move_objects(daemon, app, where):
    """Put the objects of a repository elsewhere, with a link to them."""
    place = daemon.directory / where
    place.parent.mkdir(exist_ok=True)
    (app / ".git" / "objects").rename(place)
    (app / ".git" / "objects").symlink_to(place)
    return place


def test_a_link_to_objects_is_named_and_the_remedy_puts_the_directory_in_its_place(daemon, app):
    move_objects(daemon, app, "disk/objs")
    daemon.start()
    refused = daemon.ctl("spawn", "fix", "-w", app, "--clone")
    assert (refused.code, f"{app}/.git/objects is a link to {daemon.directory}/disk/objs" in refused.error) == (1, True), (
        refused
    )
    noted = daemon.ctl("spawn", "here", "-w", app, "--in-place", "--wait", "/shell git log --format=%s 2>&1").err
    assert "here begins where git doesn't work: " in noted
    assert "a part" not in daemon.shell("here")
    type_remedy(noted)
    assert git(daemon, app, "fsck", "--no-dangling") == ""
    daemon.ok("send", "here", "--wait", "/shell git log --format=%s")
    assert "a part" in daemon.shell("here")
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    assert daemon.show("fix")["clone"]["ahead"] == 1


def test_a_link_to_the_objects_of_another_repository_becomes_a_list_of_what_is_borrowed(daemon, app):
    other = daemon.directory / "other"
    git(daemon, app, "clone", "-q", str(app), str(other))
    for path in sorted((app / ".git" / "objects").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (app / ".git" / "objects").rmdir()
    (app / ".git" / "objects").symlink_to(other / ".git" / "objects")
    daemon.start()
    type_remedy(daemon.ctl("spawn", "fix", "-w", app, "--clone").error)
    assert git(daemon, app, "fsck", "--no-dangling") + git(daemon, other, "fsck", "--no-dangling") == ""
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    assert daemon.show("fix")["clone"]["ahead"] == 1


def test_a_link_to_objects_in_the_workspace_itself_is_in_nobodys_way_in_place(daemon, app):
    move_objects(daemon, app, "app/objs")
    daemon.start()
    assert "doesn't work" not in daemon.ctl("spawn", "here", "-w", app, "--in-place", "--wait", "/shell git log").err
    assert "a part" in daemon.shell("here")


def test_nothing_is_made_behind_a_link_in_the_place_of_lfs(daemon, app):
    disk = daemon.directory / "disk"
    disk.mkdir()
    (app / ".git" / "lfs").symlink_to(disk)
    daemon.start()
    name = "ab" * 32
    deeds = f"mkdir -p .git/lfs/objects/ab/ab; echo large >.git/lfs/objects/ab/ab/{name}; echo x >y"
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    assert list(disk.iterdir()) == []
    assert "1 object of git-lfs is only there" in daemon.ctl("rm", "fix").out


def test_at_the_top_of_a_bare_layout_its_worktrees_are_named_and_are_cloned(daemon, app):
    top = daemon.directory / "layout"
    git(daemon, app, "clone", "-q", "--bare", str(app), str(top / ".bare"))
    (top / ".git").write_text("gitdir: ./.bare\n")
    git(daemon, top, "worktree", "add", "-q", str(top / "main"), "main")
    daemon.start()
    refused = daemon.ctl("spawn", "fix", "-w", top, "--clone")
    assert (refused.code, f"{top}/.bare, which is a bare repository" in refused.error) == (1, True), refused
    listed = type_remedy(refused.error)
    worktree = listed.splitlines()[-1].split()[0]
    assert worktree == str(top / "main")
    daemon.spawn("fix", worktree, commit("a.txt"), "--clone")
    daemon.ok("merge", "fix")
    assert (top / "main" / "a.txt").read_text() == "new\n"


def test_an_agent_goes_on_where_its_repository_was_moved_to(daemon, app):
    (app / "sub" / "deep").mkdir()
    (app / "sub" / "deep" / "d.txt").write_text("d\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "deep")
    daemon.start()
    daemon.spawn("fix", app / "sub", commit("a.txt"), "--clone")
    session = daemon.show("fix")["session_id"]
    new = daemon.directory / "elsewhere" / "app"
    new.parent.mkdir()
    app.rename(new)
    gone = f"{app}/.git isn't there, and fix has a clone of it: move it back, or `substratctl set fix workspace=DIR`"
    daemon.ctl("send", "fix", "--wait", "/say on")
    assert gone in daemon.show("fix")["turn"]["error"]
    assert gone in daemon.ctl("merge", "fix").error
    assert gone in daemon.ctl("show", "fix").out
    other = daemon.directory / "other"
    git(daemon, new, "clone", "-q", str(new), str(other))
    lacks = daemon.ctl("set", "fix", f"workspace={other}")
    assert lacks.code == 1, "a clone of it has the commits for now, but no ref that keeps them"
    assert "isn't the repository of fix's work, because refs/substrat/fix/wip isn't" in lacks.error
    assert "`substratctl set NAME workspace=DIR`" in daemon.ctl("diff", "fix").error
    daemon.ok("set", "fix", f"workspace={new}")
    assert daemon.show("fix")["workspace"] == f"{new}/sub"
    daemon.ok("resume", "fix", "--wait")
    daemon.ok("send", "fix", "--wait", f"{commit('b.txt')}; pwd; git log --format=%s")
    assert daemon.shell("fix").split("\n")[:2] == [f"{new}/sub", "add b.txt"]
    assert daemon.show("fix")["session_id"] == session
    (chat,) = daemon.home.glob(f".cursor/chats/*/{session}")
    assert chat.parent.name == hashlib.md5(f"{new}/sub".encode(), usedforsecurity=False).hexdigest()
    assert "isn't there" not in daemon.ctl("show", "fix").out
    daemon.ok("merge", "fix")
    assert (new / "sub" / "b.txt").read_text() == "new\n"
    assert not app.exists()


def test_another_workspace_is_refused_in_a_turn_and_in_place(daemon, app):
    daemon.start()
    daemon.spawn("here", app, "/say hi")
    refused = daemon.ctl("set", "here", f"workspace={app}")
    assert (refused.code, "not in a clone" in refused.error) == (1, True), refused
    daemon.ok("spawn", "fix", "-w", app, "--clone", "/sleep 60")
    daemon.ctl("wait", "fix", "--timeout", "0")
    wait_until(lambda: daemon.show("fix")["state"] == "running", "the turn runs")
    refused = daemon.ctl("set", "fix", f"workspace={app}")
    assert (refused.code, "substratctl suspend fix" in refused.error) == (1, True), refused
    daemon.ok("suspend", "fix")
    daemon.ok("set", "fix", f"workspace={app}")
