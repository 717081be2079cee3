"""Git's part of a landing, with a person's real repository: what is previewed, and what moves."""

import pytest

from substrat.core.workspaces.landing import LandingMode
from substrat.daemon.clones.landing_git import Conflicting
from substrat.errors import Conflict, Refused


async def preview(room, mode=LandingMode.MERGE):
    """The commit that the branch would move to."""
    head = str(room.clone.kept.head)
    return await room.landing_git.preview(room.clone, room.landing(mode), room.tip(), head, "fix")


async def test_a_branch_that_has_not_moved_takes_the_head_itself_and_else_a_commit_of_the_persons(room):
    head = room.agent_commits({"a.txt": "a"}, {"b.txt": "b"})
    assert await preview(room) == head
    mine = room.commit({"mine.txt": "mine"})
    merged, squashed = await preview(room), await preview(room, LandingMode.SQUASH)
    assert room.git("log", "-1", "--format=%P %an %s", merged) == f"{mine} {head} Me Merge substrat/fix"
    assert room.git("log", "-1", "--format=%P %an %s", squashed) == f"{mine} Me Squash substrat/fix"
    assert room.git("ls-tree", "--name-only", squashed).split() == ["README", "a.txt", "b.txt", "mine.txt"]
    with pytest.raises(Refused, match="merge without --ff-only"):
        await preview(room, LandingMode.FF_ONLY)


async def test_a_conflict_names_its_files_and_leaves_the_checkout_alone(room):
    room.agent_commits({"README": "theirs\n", "b": "b"})
    room.commit({"README": "mine\n"})
    with pytest.raises(Conflicting) as conflict:
        await preview(room)
    assert conflict.value.files == ("README",)
    assert room.git("status", "--porcelain") == ""


async def test_the_branch_moves_where_it_is_checked_out_and_no_ignored_file_is_overwritten(room):
    (room.top / ".git" / "info" / "exclude").write_text(".env\n")
    head = room.agent_commits({".env": "theirs"})
    (room.top / ".env").write_text("mine")
    before = room.tip()
    checkout = await room.host_git.checkout(room.clone, "main")
    with pytest.raises(Conflict, match=r"git refuses to move main in .*\.env"):
        await room.host_git.move(room.clone, room.landing(), head, before, checkout)
    assert (room.tip(), (room.top / ".env").read_text()) == (before, "mine")
    (room.top / ".env").unlink()
    await room.host_git.move(room.clone, room.landing(), head, before, checkout)
    assert (room.tip(), room.git("status", "--porcelain")) == (head, "")
    assert (room.top / ".env").read_text() == "theirs"


async def test_a_look_at_the_checkout_and_a_move_run_nothing_that_the_repository_names(room):
    """Hooks and a monitor are the person's own; a daemon runs them for nobody."""
    mark = room.top.parent / "mark"
    hook = room.top / ".git" / "evil"
    hook.write_text(f"#!/bin/sh\necho >> {mark}\n")
    hook.chmod(0o755)
    for name in ("post-merge", "post-checkout", "post-index-change", "reference-transaction"):
        (room.top / ".git" / "hooks").mkdir(exist_ok=True)
        (room.top / ".git" / "hooks" / name).symlink_to(hook)
    head = room.agent_commits({"a.txt": "a"})
    room.git("config", "core.fsmonitor", str(hook))
    mark.unlink()
    index = (room.top / ".git" / "index").read_bytes()
    (room.top / "README").touch()
    await room.landing_git._check_clean(room.clone)
    assert (room.top / ".git" / "index").read_bytes() == index, "a look writes no index"
    checkout = await room.host_git.checkout(room.clone, "main")
    await room.host_git.move(room.clone, room.landing(), head, room.tip(), checkout)
    assert not mark.exists()
    room.git("-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "the control")
    assert mark.exists()
