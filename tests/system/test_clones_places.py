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


def move_objects(house, app, where):
    """Put the objects of a repository elsewhere, with a link to them."""
    place = house.directory / where
    place.parent.mkdir(exist_ok=True)
    (app / ".git" / "objects").rename(place)
    (app / ".git" / "objects").symlink_to(place)
    return place


def test_a_link_to_objects_is_named_and_the_remedy_puts_the_directory_in_its_place(house, app):
    move_objects(house, app, "disk/objs")
    house.start()
    refused = house.ctl("spawn", "fix", "-w", app, "--clone")
    assert (refused.code, f"{app}/.git/objects is a link to {house.directory}/disk/objs" in refused.error) == (1, True)
    noted = house.ctl("spawn", "here", "-w", app, "--in-place", "--wait", "/shell git log --format=%s 2>&1").err
    assert "here begins where git doesn't work: " in noted
    assert "a part" not in house.shell("here")
    type_remedy(noted)
    assert git(house, app, "fsck", "--no-dangling") == ""
    house.ok("send", "here", "--wait", "/shell git log --format=%s")
    assert "a part" in house.shell("here")
    house.spawn("fix", app, commit("a.txt"), "--clone")
    assert house.show("fix")["clone"]["ahead"] == 1


def test_a_link_to_the_objects_of_another_repository_becomes_a_list_of_what_is_borrowed(house, app):
    other = house.directory / "other"
    git(house, app, "clone", "-q", str(app), str(other))
    for path in sorted((app / ".git" / "objects").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (app / ".git" / "objects").rmdir()
    (app / ".git" / "objects").symlink_to(other / ".git" / "objects")
    house.start()
    type_remedy(house.ctl("spawn", "fix", "-w", app, "--clone").error)
    assert git(house, app, "fsck", "--no-dangling") + git(house, other, "fsck", "--no-dangling") == ""
    house.spawn("fix", app, commit("a.txt"), "--clone")
    assert house.show("fix")["clone"]["ahead"] == 1


def test_a_link_to_objects_in_the_workspace_itself_is_in_nobodys_way_in_place(house, app):
    move_objects(house, app, "app/objs")
    house.start()
    assert "doesn't work" not in house.ctl("spawn", "here", "-w", app, "--in-place", "--wait", "/shell git log").err
    assert "a part" in house.shell("here")


def test_nothing_is_made_behind_a_link_in_the_place_of_lfs(house, app):
    disk = house.directory / "disk"
    disk.mkdir()
    (app / ".git" / "lfs").symlink_to(disk)
    house.start()
    name = "ab" * 32
    deeds = f"mkdir -p .git/lfs/objects/ab/ab; echo large >.git/lfs/objects/ab/ab/{name}; echo x >y"
    house.spawn("fix", app, f"/shell {deeds}", "--clone")
    assert list(disk.iterdir()) == []
    assert "1 object of git-lfs is only there" in house.ctl("rm", "fix").out


def test_at_the_top_of_a_bare_layout_its_worktrees_are_named_and_are_cloned(house, app):
    top = house.directory / "layout"
    git(house, app, "clone", "-q", "--bare", str(app), str(top / ".bare"))
    (top / ".git").write_text("gitdir: ./.bare\n")
    git(house, top, "worktree", "add", "-q", str(top / "main"), "main")
    house.start()
    refused = house.ctl("spawn", "fix", "-w", top, "--clone")
    assert (refused.code, f"{top}/.bare, which is a bare repository" in refused.error) == (1, True), refused
    listed = type_remedy(refused.error)
    worktree = listed.splitlines()[-1].split()[0]
    assert worktree == str(top / "main")
    house.spawn("fix", worktree, commit("a.txt"), "--clone")
    house.ok("merge", "fix")
    assert (top / "main" / "a.txt").read_text() == "new\n"


def test_an_agent_goes_on_where_its_repository_was_moved_to(house, app):
    (app / "sub" / "deep").mkdir()
    (app / "sub" / "deep" / "d.txt").write_text("d\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "deep")
    house.start()
    house.spawn("fix", app / "sub", commit("a.txt"), "--clone")
    session = house.show("fix")["session_id"]
    new = house.directory / "elsewhere" / "app"
    new.parent.mkdir()
    app.rename(new)
    gone = f"{app}/.git isn't there, and fix has a clone of it: move it back, or `substratctl set fix workspace=DIR`"
    house.ctl("send", "fix", "--wait", "/say on")
    assert gone in house.show("fix")["turn"]["error"]
    assert gone in house.ctl("merge", "fix").error
    assert gone in house.ctl("show", "fix").out
    other = house.directory / "other"
    git(house, new, "clone", "-q", str(new), str(other))
    lacks = house.ctl("set", "fix", f"workspace={other}")
    assert lacks.code == 1, "a clone of it has the commits for now, but no ref that keeps them"
    assert "isn't the repository of fix's work, because refs/substrat/fix/wip isn't" in lacks.error
    assert "`substratctl set NAME workspace=DIR`" in house.ctl("diff", "fix").error
    house.ok("set", "fix", f"workspace={new}")
    assert house.show("fix")["workspace"] == f"{new}/sub"
    house.ok("resume", "fix", "--wait")
    house.ok("send", "fix", "--wait", f"{commit('b.txt')}; pwd; git log --format=%s")
    assert house.shell("fix").split("\n")[:2] == [f"{new}/sub", "add b.txt"]
    assert house.show("fix")["session_id"] == session
    (chat,) = house.home.glob(f".cursor/chats/*/{session}")
    assert chat.parent.name == hashlib.md5(f"{new}/sub".encode(), usedforsecurity=False).hexdigest()
    assert "isn't there" not in house.ctl("show", "fix").out
    house.ok("merge", "fix")
    assert (new / "sub" / "b.txt").read_text() == "new\n"
    assert not app.exists()


def test_another_workspace_is_refused_in_a_turn_and_in_place(house, app):
    house.start()
    house.spawn("here", app, "/say hi")
    refused = house.ctl("set", "here", f"workspace={app}")
    assert (refused.code, "not in a clone" in refused.error) == (1, True), refused
    house.ok("spawn", "fix", "-w", app, "--clone", "/sleep 60")
    house.ctl("wait", "fix", "--timeout", "0")
    wait_until(lambda: house.show("fix")["state"] == "running", "the turn runs")
    refused = house.ctl("set", "fix", f"workspace={app}")
    assert (refused.code, "substratctl suspend fix" in refused.error) == (1, True), refused
    house.ok("suspend", "fix")
    house.ok("set", "fix", f"workspace={app}")
